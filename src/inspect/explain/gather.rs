//! Reads the subject of the explanation.
use k8s_openapi::{api::core::v1, jiff::Timestamp};
use kube::{Client, ResourceExt, api::ListParams};

use super::{Facts, Node, watch::WatchFacts};
use crate::{
    api::TrafficWatch,
    infra::{Api, watch::Metadata},
    inspect::{
        cluster::{self, Listed, describe},
        leader::{self, Place},
    },
};

/// Minimum similarity of a name to be suggested: a letter or two of a node name apart.
const ALIKE: f64 = 0.85;

/// Maximum number of suggested names.
const SUGGESTED: usize = 3;

/// Reads everything about one node, judged by all `TrafficWatch`es or by one.
///
/// # Errors
/// When the node or the `TrafficWatch` does not exist, or the API server refuses.
pub async fn gather(
    client: &Client,
    place: &Place,
    node: &str,
    only: Option<(&str, &str)>,
) -> anyhow::Result<Facts> {
    let node = read_node(client, node).await?;
    let watches = match only {
        Some((namespace, name)) => {
            let watch = cluster::find::<TrafficWatch>(client, Some(namespace), name).await;
            let watch = watch.map_err(|error| refused("get TrafficWatch", error))?;
            let watch = watch.ok_or_else(|| {
                anyhow::anyhow!("--watch {namespace}/{name}: there is no such TrafficWatch")
            })?;
            Listed { read: vec![watch], unreadable: vec![] }
        }
        None => {
            cluster::list(client).await.map_err(|error| refused("list TrafficWatches", error))?
        }
    };
    let live = leader::view(client, place, &node.name).await;
    Ok(Facts {
        node,
        watches: watches.read,
        unreadable: watches.unreadable,
        live,
        now: Timestamp::now(),
    })
}

/// Reads everything about one `TrafficWatch`.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn gather_watch(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
) -> anyhow::Result<WatchFacts> {
    let watch = cluster::read(client, "get TrafficWatch", Some(namespace), name).await?;
    let live = leader::watch(client, place, (namespace, name)).await;
    Ok(WatchFacts { watch, live, now: Timestamp::now() })
}

async fn read_node(client: &Client, name: &str) -> anyhow::Result<Node> {
    let nodes = Api::<v1::Node>::all(client.clone());
    let Some(node) = nodes.get_opt(name).await.map_err(|error| refused("get Node", error))? else {
        // Without the permission to list, there is nothing to suggest.
        let all = Api::<Metadata<v1::Node>>::all(client.clone()).list(&ListParams::default()).await;
        let names: Vec<_> = all.iter().flatten().map(ResourceExt::name_any).collect();
        anyhow::bail!(no_such_node(name, &names));
    };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    Ok(Node {
        name: node.name_any(),
        taints: taints.iter().map(taint).collect(),
        labels: node.metadata.labels.unwrap_or_default(),
    })
}

fn taint(taint: &v1::Taint) -> String {
    let value = taint.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
    format!("{}{value}:{}", taint.key, taint.effect)
}

fn refused(action: &'static str, error: kube::Error) -> anyhow::Error {
    anyhow::anyhow!(describe(action, error))
}

fn no_such_node(name: &str, names: &[String]) -> String {
    let mut alike: Vec<_> =
        names.iter().map(|other| (strsim::jaro_winkler(name, other), other)).collect();
    alike.retain(|(likeness, _)| *likeness >= ALIKE);
    alike.sort_by(|(a, x), (b, y)| b.total_cmp(a).then(x.cmp(y)));
    let alike: Vec<_> = alike.iter().take(SUGGESTED).map(|(_, name)| name.as_str()).collect();
    let hint = if alike.is_empty() {
        format!("the cluster has {} nodes: kubectl get nodes", names.len())
    } else {
        format!("did you mean {}?", alike.join(" or "))
    };
    format!("there is no node {name:?}; {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_suggested() {
        let names = ["node-1", "node-2", "gateway"].map(String::from);
        let text = no_such_node("node2", &names);
        assert!(text.contains("did you mean node-2"), "{text}");
        assert!(!text.contains("gateway"), "{text}");
        assert_eq!(
            no_such_node("zzz", &names),
            "there is no node \"zzz\"; the cluster has 3 nodes: kubectl get nodes"
        );
    }
}
