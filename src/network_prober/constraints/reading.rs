//! Reads the constraints of namespaces periodically: a quota changes with every pod, and a watch
//! would deliver each of these changes.
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::{Client, ResourceExt, api::ListParams};
use tokio::sync::watch as signal;

use super::{ByNamespace, Constraints};
use crate::{infra::Api, network_prober::snapshot::Snapshot};

/// Time between two readings. A controller tries a refused pod again after seconds, then minutes:
/// by then it is created without an agent.
const EVERY: Duration = Duration::from_mins(1);

/// The time for which new namespaces are collected.
const COLLECT: Duration = Duration::from_millis(500);

/// Objects on a page, and at most in a namespace: no namespace has as many quotas, and one takes 2
/// kB.
const PAGE_SIZE: u32 = 100;

/// The number of namespaces that are read at a time.
const AT_A_TIME: usize = 4;

/// The namespaces in which pods get agents.
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

    fn has(&self, namespace: &str) -> bool {
        self.everywhere || self.namespaces.contains(namespace)
    }

    /// Returns the namespaces that have not been read yet, so that repeated changes of consent do
    /// not make the operator read other namespaces again.
    fn but(&self, read: &Self) -> Self {
        Self {
            everywhere: self.everywhere && !read.everywhere,
            namespaces: self.namespaces.difference(&read.namespaces).cloned().collect(),
        }
    }
}

/// Reads periodically and never ends; `operator` is the operator's namespace.
pub async fn follow(
    client: Client,
    mut snapshots: signal::Receiver<Arc<Snapshot>>,
    operator: String,
    known: signal::Sender<Arc<ByNamespace>>,
) {
    let (mut began, mut already) = (Instant::now(), Wanted::default());
    loop {
        let wanted = Wanted::of(&snapshots.borrow_and_update(), &operator);
        let before = Arc::clone(&known.borrow());
        let mut found = read(&client, &wanted.but(&already), &before).await;
        for (namespace, constraints) in before.iter() {
            if already.has(namespace) && wanted.has(namespace) {
                found.entry(namespace.clone()).or_insert_with(|| constraints.clone());
            }
        }
        already = wanted.clone();
        let found = Arc::new(found);
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
            Err(_) => (began, already) = (Instant::now(), Wanted::default()),
            Ok(true) => tokio::time::sleep(COLLECT).await,
            // No component follows the cluster any more.
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

/// Reads the constraints of these namespaces once.
///
/// # Errors
/// The error of the API server.
pub async fn of_namespaces(
    client: &Client,
    namespaces: impl IntoIterator<Item = &str>,
) -> kube::Result<ByNamespace> {
    let mut found = ByNamespace::new();
    for namespace in namespaces {
        found.insert(namespace.to_owned(), of_namespace(client, namespace).await?);
    }
    Ok(found)
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
    let params = ListParams::default().limit(PAGE_SIZE);
    let add = |range: LimitRange| {
        all.entry(range.namespace().unwrap_or_default()).or_default().add_range(&range);
    };
    Api::all(client.clone()).list_pages(params.clone(), add).await?;
    let add = |quota: ResourceQuota| {
        all.entry(quota.namespace().unwrap_or_default()).or_default().add_quota(&quota);
    };
    Api::all(client.clone()).list_pages(params, add).await?;
    all.retain(|_, constraints| !constraints.is_empty());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(everywhere: bool, namespaces: &[&str]) -> Wanted {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        Wanted { everywhere, namespaces }
    }

    #[test]
    fn a_namespace_that_is_new_has_no_other_read_again() {
        let read = wanted(false, &["a", "b"]);
        assert_eq!(wanted(false, &["a", "b", "c"]).but(&read), wanted(false, &["c"]));
        assert_eq!(wanted(false, &["a"]).but(&read), Wanted::default());
        assert_eq!(wanted(true, &["a"]).but(&read), wanted(true, &[]));
        assert_eq!(wanted(true, &[]).but(&wanted(true, &[])), Wanted::default());
    }
}
