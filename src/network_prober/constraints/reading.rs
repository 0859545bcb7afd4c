//! Reads what namespaces demand, on a clock: a quota changes with every pod, and a watch would
//! bring each of these changes.
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use tokio::sync::watch as signal;

use super::{ByNamespace, Constraints};
use crate::network_prober::view::Snapshot;

/// How often they are read. A controller tries a refused pod again after seconds, then minutes: by
/// then it is created without an agent.
const EVERY: Duration = Duration::from_mins(1);

/// How long namespaces that are new are collected.
const COLLECT: Duration = Duration::from_millis(500);

/// Objects on a page, and in a namespace at most: nobody has as many quotas, and one takes 2 kB.
const PAGE_SIZE: u32 = 100;

/// How many namespaces are read at a time.
const AT_A_TIME: usize = 4;

/// Where pods get agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    everywhere: bool,
    namespaces: BTreeSet<String>,
}

impl Wanted {
    fn of(snapshot: &Snapshot, operator: &str) -> Self {
        let mut wanted = Self::default();
        for view in snapshot.views.values().filter(|view| view.injects()) {
            let Ok(settings) = &view.settings else { continue };
            if settings.namespace == operator && settings.namespaces.is_some() {
                wanted.everywhere = true;
            } else if view.over.is_none() {
                wanted.namespaces.extend(view.scope.allowed().into_iter().map(ToOwned::to_owned));
            }
        }
        wanted
    }
}

/// Reads for ever; `operator` is the operator's namespace.
pub async fn follow(
    client: Client,
    mut snapshots: signal::Receiver<Arc<Snapshot>>,
    operator: String,
    known: signal::Sender<Arc<ByNamespace>>,
) {
    loop {
        let began = Instant::now();
        let wanted = Wanted::of(&snapshots.borrow_and_update(), &operator);
        let before = Arc::clone(&known.borrow());
        let found = Arc::new(read(&client, &wanted, &before).await);
        known.send_if_modified(|known| {
            let changed = **known != *found;
            *known = Arc::clone(&found);
            changed
        });
        let other = snapshots.wait_for(|snapshot| Wanted::of(snapshot, &operator) != wanted);
        let left = EVERY.saturating_sub(began.elapsed());
        // Either it is time, or there are other namespaces.
        let other = tokio::time::timeout(left, other).await.map(|found| found.is_ok());
        match other {
            Err(_) => {}
            Ok(true) => tokio::time::sleep(COLLECT).await,
            // Nobody follows the cluster any more.
            Ok(false) => return,
        }
    }
}

async fn read(client: &Client, wanted: &Wanted, before: &ByNamespace) -> ByNamespace {
    let mut found = ByNamespace::new();
    if wanted.everywhere {
        match everywhere(client).await {
            Ok(all) => return all,
            Err(error) => {
                tracing::warn!(%error, "reading the quotas of all namespaces failed");
                return before.clone();
            }
        }
    }
    let each = wanted.namespaces.iter().cloned().map(|namespace| async move {
        let answer = of_namespace(client, &namespace).await;
        (namespace, answer)
    });
    let mut answers = stream::iter(each).buffer_unordered(AT_A_TIME);
    while let Some((namespace, answer)) = answers.next().await {
        let constraints = answer.unwrap_or_else(|error| {
            tracing::warn!(%error, "reading the quotas of the namespace {namespace} failed");
            before.get(&namespace).cloned().unwrap_or_default()
        });
        if !constraints.is_empty() {
            found.insert(namespace, constraints);
        }
    }
    found
}

async fn of_namespace(client: &Client, namespace: &str) -> kube::Result<Constraints> {
    let params = ListParams::default().limit(PAGE_SIZE);
    let mut constraints = Constraints::default();
    let ranges = Api::<LimitRange>::namespaced(client.clone(), namespace);
    for range in ranges.list(&params).await? {
        constraints.add_range(&range);
    }
    let quotas = Api::<ResourceQuota>::namespaced(client.clone(), namespace);
    for quota in quotas.list(&params).await? {
        constraints.add_quota(&quota);
    }
    Ok(constraints)
}

async fn everywhere(client: &Client) -> kube::Result<ByNamespace> {
    let mut all = ByNamespace::new();
    each(Api::<LimitRange>::all(client.clone()), |range| {
        all.entry(range.namespace().unwrap_or_default()).or_default().add_range(&range);
    })
    .await?;
    each(Api::<ResourceQuota>::all(client.clone()), |quota| {
        all.entry(quota.namespace().unwrap_or_default()).or_default().add_quota(&quota);
    })
    .await?;
    all.retain(|_, constraints| !constraints.is_empty());
    Ok(all)
}

async fn each<K>(api: Api<K>, mut take: impl FnMut(K)) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = api.list(&params).await?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        page.into_iter().for_each(&mut take);
        let Some(token) = next else { return Ok(()) };
        params = params.continue_token(&token);
    }
}
