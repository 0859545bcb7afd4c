//! Reads the subject of the explanation.
use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, ResourceExt};

use super::{Facts, Live, PodFacts};
use crate::{
    api::NetworkProber,
    infra::Api,
    inspect::{
        cluster::{self, Listed, describe},
        leader::{self, Place},
    },
    network_prober::{
        measurement::{self, Querier, Subject},
        overview::{Measured, Overview, PodView},
        scope::NamespaceFacts,
    },
    pods::{INJECTED_BY_ANNOTATION, PodObject},
    prometheus,
    runtime::status_page::PROBERS_PATH,
};

/// A Prometheus that a command queries directly.
pub type Asked = Option<prometheus::Client>;

/// Reads everything about one `NetworkProber`.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn gather(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
    asked: &Asked,
) -> anyhow::Result<Facts> {
    let prober = cluster::read(client, "get NetworkProber", Some(namespace), name).await?;
    let live = live(client, place, Some((namespace, name))).await.map(|overview| Live {
        identity: overview.identity,
        version: overview.version,
        prober: overview.probers.into_iter().next(),
    });
    let asked = match asked {
        Some(client) => Some(measure(client, &prober).await),
        None => None,
    };
    Ok(Facts { prober, live, asked })
}

/// Reads everything about one pod.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn gather_pod(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
    asked: &Asked,
) -> anyhow::Result<PodFacts> {
    let api = Api::<PodObject>::namespaced(client.clone(), namespace);
    let pod = api.get_opt(name).await;
    let pod = pod.map_err(|error| anyhow::anyhow!(describe("get Pod", error)))?;
    let Some(pod) = pod else {
        anyhow::bail!(
            "there is no pod {name:?} in namespace {namespace:?}; kubectl -n {namespace} get pods"
        );
    };
    let all = cluster::list::<NetworkProber>(client).await;
    let Listed { read: probers, unreadable } =
        all.map_err(|error| anyhow::anyhow!(describe("list NetworkProbers", error)))?;
    let of_namespace = Api::<Namespace>::all(client.clone()).get(namespace).await;
    let of_namespace = of_namespace
        .map(|n| NamespaceFacts::of(&n.metadata))
        .map_err(|e| describe("get Namespace", e));
    // Any prober that names it; the operator may know better.
    let by = pod.annotation(INJECTED_BY_ANNOTATION).map(str::to_owned);
    let live = match live(client, place, None).await {
        Ok(overview) => {
            let path = format!("{PROBERS_PATH}/pods/{namespace}/{name}");
            let view = leader::ask::<PodView>(client, place, &path).await;
            view.map(|(view, _)| (overview, view))
        }
        Err(because) => Err(because),
    };
    let by = live.as_ref().ok().and_then(|(_, view)| view.prober.clone()).or(by);
    let by = by.as_deref().and_then(|by| by.split_once('/'));
    let (mut measured, mut agent) = (None, None);
    if let Some((home, prober)) = by {
        let is =
            |p: &&NetworkProber| (p.namespace().as_deref(), &*p.name_any()) == (Some(home), prober);
        match (asked, probers.iter().find(is)) {
            (Some(client), Some(prober)) => {
                measured = Some(measure(client, prober).await);
                let querier = Querier::Command(client.clone());
                let figures =
                    measurement::agent(&querier, &Subject::of(prober), (namespace, name)).await;
                agent = Some(figures.map_err(|error| error.message));
            }
            _ if live.is_ok() => {
                let one = self::live(client, place, Some((home, prober))).await.ok();
                measured = one.and_then(|one| one.probers.into_iter().next()?.measured);
            }
            _ => {}
        }
    }
    let operator = place.namespace.clone();
    let namespace = of_namespace;
    Ok(PodFacts { pod, namespace, probers, unreadable, operator, live, measured, agent })
}

async fn live(
    client: &Client,
    place: &Place,
    one: Option<(&str, &str)>,
) -> Result<Overview, String> {
    let path = match one {
        // Names in Kubernetes need no escapes.
        Some((namespace, name)) => format!("{PROBERS_PATH}?namespace={namespace}&name={name}"),
        None => PROBERS_PATH.to_owned(),
    };
    leader::ask::<Overview>(client, place, &path).await.map(|(overview, _)| overview)
}

async fn measure(client: &prometheus::Client, prober: &NetworkProber) -> Measured {
    let querier = Querier::Command(client.clone());
    let (figures, problem) = match measurement::measure(&querier, &Subject::of(prober)).await {
        Ok(figures) => (Some(figures), None),
        Err(error) => (None, Some(error.message)),
    };
    Measured { endpoint: client.name().to_owned(), problem, figures }
}
