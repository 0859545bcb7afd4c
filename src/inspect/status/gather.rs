//! Reads the objects, the Lease, and the image of the leader's pod.
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Client,
    api::{DynamicObject, ListParams},
    discovery::ApiResource,
};

use super::{
    Facts, KindFacts, Object, Unread,
    kinds::{self, Reported},
};
use crate::{
    api::{NetworkProber, RouteReflectorSet, Swarm, TrafficWatch},
    infra::Api,
    inspect::{cluster::describe, leader},
};

/// Reads everything, in one namespace or in all; cluster-scoped objects in both cases. The Lease
/// has a namespace and a name.
///
/// If one part cannot be read, the others are still read.
pub async fn gather(client: &Client, lease: (&str, &str), namespace: Option<&str>) -> Facts {
    let operator = async {
        let leads = leader::lease(client, lease).await;
        let holder = leads.as_ref().ok().and_then(Option::as_ref).map(|leader| &leader.holder);
        let image = match holder {
            Some(holder) => image(client, lease.0, holder).await,
            None => None,
        };
        (leads.map_err(|error| unread("get Lease", error)), image)
    };
    let ((leadership, image), watches, probers, swarms, sets) = tokio::join!(
        operator,
        list::<TrafficWatch>(client, namespace),
        list::<NetworkProber>(client, namespace),
        list::<Swarm>(client, namespace),
        list::<RouteReflectorSet>(client, namespace),
    );
    Facts {
        now: Timestamp::now(),
        lease: format!("{}/{}", lease.0, lease.1),
        leadership,
        image,
        kinds: vec![watches, probers, swarms, sets],
    }
}

/// Returns the image of a pod; none if the operator runs outside the cluster, or if the caller may
/// not read this pod.
async fn image(client: &Client, namespace: &str, pod: &str) -> Option<String> {
    let pod = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(pod).await.ok()??;
    pod.spec?.containers.into_iter().next()?.image
}

async fn list<K: Reported>(client: &Client, namespace: Option<&str>) -> KindFacts {
    let resource = ApiResource::erase::<K>(&());
    let namespace = namespace.filter(|_| K::NAMESPACED);
    let api = Api::<DynamicObject>::dynamic(client.clone(), &resource, namespace);
    let listed = api.list(&ListParams::default()).await;
    let objects = listed.map(|list| {
        let mut objects: Vec<_> = list.items.into_iter().map(read::<K>).collect();
        objects.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        objects
    });
    KindFacts {
        kind: K::kind(&()).into_owned(),
        command: K::COMMAND,
        columns: K::COLUMNS,
        objects: objects.map_err(|error| unread("list", error)),
    }
}

/// Reads one object; one of another version is only named, and the others are shown.
fn read<K: Reported>(object: DynamicObject) -> Object {
    let meta = object.metadata.clone();
    match object.try_parse::<K>() {
        Ok(object) => kinds::object(&object),
        Err(error) => Object {
            namespace: meta.namespace,
            name: meta.name.unwrap_or_default(),
            unreadable: Some(error.to_string()),
            ..Object::default()
        },
    }
}

fn unread(action: &'static str, error: kube::Error) -> Unread {
    let (missing, forbidden) = match &error {
        kube::Error::Api(status) => (status.is_not_found(), status.is_forbidden()),
        _ => (false, false),
    };
    if missing {
        return Unread::NotInstalled;
    }
    let why = describe(action, error);
    if forbidden { Unread::Forbidden(why) } else { Unread::Failed(why) }
}
