//! Reads objects as `kubectl get -o json` does, without a process for each look: most of what the
//! scenarios cost was that.
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Node, Pod},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::{Value, json};
use tokio::{runtime::Handle, task::block_in_place, time::timeout};
use traffic_operator::api::{NetworkProber, Swarm, TrafficWatch};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kinds that the scenarios look at all the time.
fn kinds() -> [ApiResource; 9] {
    [
        ApiResource::erase::<Node>(&()),
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Event>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<Lease>(&()),
        ApiResource::erase::<TrafficWatch>(&()),
        ApiResource::erase::<NetworkProber>(&()),
        ApiResource::erase::<Swarm>(&()),
    ]
}

/// Arguments of `kubectl get`.
struct Query<'a> {
    resource: ApiResource,
    name: Option<&'a str>,
    /// Of all namespaces if there is none.
    namespace: Option<&'a str>,
    list: ListParams,
}

impl<'a> Query<'a> {
    /// Returns nothing if only kubectl knows what is meant.
    fn of(arguments: &[&'a str]) -> Option<Self> {
        let (mut words, mut namespace, mut list) = (vec![], Some("default"), ListParams::default());
        let mut rest = arguments.iter().copied();
        while let Some(argument) = rest.next() {
            match argument {
                "-n" => namespace = Some(rest.next()?),
                "-A" => namespace = None,
                "-l" => list = list.labels(rest.next()?),
                flag if flag.starts_with('-') => {
                    list = list.fields(flag.strip_prefix("--field-selector=")?);
                }
                word => words.push(word),
            }
        }
        let (kind, name) = match words.as_slice() {
            [kind] => (*kind, None),
            [kind, name] => (*kind, Some(*name)),
            _ => return None,
        };
        let known =
            |known: &ApiResource| kind == known.plural || kind == known.kind.to_ascii_lowercase();
        let resource = kinds().into_iter().find(known)?;
        let namespace = namespace.filter(|_| resource.kind != "Node");
        Some(Self { resource, name, namespace, list })
    }

    async fn send(self, client: Client) -> Result<Value> {
        let api = match self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::<DynamicObject>::all_with(client, &self.resource),
        };
        let plain = |mut object: DynamicObject| {
            // As kubectl, which shows them only if it is asked to.
            object.metadata.managed_fields = None;
            object
        };
        if let Some(name) = self.name {
            return Ok(serde_json::to_value(plain(api.get(name).await?))?);
        }
        let items = api.list(&self.list).await?.items.into_iter().map(plain);
        Ok(json!({"items": items.collect::<Vec<_>>()}))
    }
}

/// Returns what `kubectl get` prints with these arguments; `None` if only kubectl knows what they
/// mean.
pub fn get(client: &Client, arguments: &[&str]) -> Option<Result<Value>> {
    let answer = timeout(PATIENCE, Query::of(arguments)?.send(client.clone()));
    let answer = block_in_place(|| Handle::current().block_on(answer));
    Some(answer.context("the API server does not answer").flatten())
}
