//! The cluster of a pass: the API server, and the workers.
use std::{collections::BTreeMap, sync::Arc, time::Instant};

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Client, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams,
        PostParams, Preconditions,
    },
    core::ObjectMeta,
};
use serde_json::{Value, json};

use super::{
    acknowledge::{Answer, Asked, WorkerClient},
    cluster::{Cluster, Eviction},
    file::{self, STATE_KEY, stored::fingerprint},
    plan::{Handed, Immutable, Part, Publish, Scale},
    watches::{self, CONTENT, GIVEN, NUDGE, PodFacts, WorkloadCache, WorkloadFacts},
};
use crate::{
    acknowledgement::{self, Grant, Key},
    api::{Swarm, swarm::WorkloadKind},
    clock,
    controller::{
        Error, FIELD_MANAGER, MANAGED_BY,
        disruptions::{self, Disruptions, EVICTION},
        error::is_refusal,
        merge_params,
    },
    infra::{Api, watch::Metadata},
};

/// The label of everything that a `Swarm` owns: its name's hash, because a name may be longer than
/// a label.
const OWNER: &str = "traffic.example.com/swarm-uid";

/// The connection of one pass to the real cluster.
pub(super) struct Live<'a> {
    /// Reads and writes.
    pub client: &'a Client,
    /// The client for reports of workers.
    pub workers: &'a WorkerClient,
    /// The data of the watches.
    pub cache: &'a WorkloadCache,
    /// The zones that evictions disrupt.
    pub disruptions: &'a Disruptions,
    /// The `Swarm` of the pass.
    pub swarm: &'a Swarm,
}

impl Cluster for Live<'_> {
    fn now(&self) -> Instant {
        clock::instant()
    }

    async fn pod(&self, name: &str) -> Result<Option<PodFacts>, Error> {
        watches::pod(self.client, &self.namespace(), name).await.map_err(Error::kube("get Pod"))
    }

    async fn pods(&self, workload: &WorkloadFacts) -> Result<Vec<PodFacts>, Error> {
        let pods = watches::pods(self.client, &self.namespace(), workload).await;
        pods.map_err(Error::kube("list Pods"))
    }

    async fn ask(&self, pod: &PodFacts, key: Option<&Key>) -> Result<Answer, String> {
        let Some(ip) = pod.ip else { return Err("it has no address yet".into()) };
        let refresh = &self.swarm.spec.refresh;
        let key = key.filter(|_| pod.signs);
        let asked = Asked { worker: &pod.name, uid: &pod.uid, key };
        self.workers.ask(asked, ip, refresh.port, &refresh.path).await
    }

    fn secret(&self) -> Option<Arc<str>> {
        acknowledgement::new_key().map(Arc::from)
    }

    async fn publish(&self, publish: &Publish) -> Result<Option<ObjectMeta>, Error> {
        let object = file_object(self.swarm, publish);
        self.replace(&self.swarm.config_map(), object, publish.on.is_some()).await
    }

    fn published(&self, metadata: &ObjectMeta, publish: &Publish) {
        self.cache.wrote(self.swarm, metadata, Arc::new(publish.data.clone()));
    }

    async fn part(&self, part: &Part) -> Result<bool, Error> {
        let object = part_object(self.swarm, part);
        let written = self.replace(&part.name, object, part.on.is_some()).await?;
        if let Some(metadata) = &written {
            self.cache.wrote(self.swarm, metadata, Arc::new(part.data.clone()));
        }
        Ok(written.is_some())
    }

    /// Writes the immutable file and points the template at it.
    async fn pin(&self, immutable: Immutable) -> Result<(), Error> {
        let namespace = self.namespace();
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
        let mut object = owned(self.swarm, &immutable.name);
        object["data"] = json!(immutable.data);
        object["immutable"] = json!(true);
        let object: ConfigMap = serde_json::from_value(object)
            .map_err(|error| Error::Invalid(format!("spec.configMap: {error}")))?;
        match api.create(&creation(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = api.get_opt(&immutable.name).await;
                let there = there.map_err(Error::kube("get ConfigMap"))?;
                // Another text may mean the same: names were not always quoted, and the key may be
                // newer.
                let says = |data: &BTreeMap<String, String>| {
                    let text = |key: &str| data.get(key).map(String::as_str);
                    let config = text(&self.swarm.spec.config_map.key)?;
                    Some(file::parse(config, text(STATE_KEY)).ok()?.published)
                };
                let wanted = says(&immutable.data);
                let same = there.is_some_and(|there| {
                    let said = there.data.as_ref().and_then(says);
                    wanted.is_some() && said == wanted && there.immutable == Some(true)
                });
                if !same {
                    return Err(Error::Taken(format!(
                        "ConfigMap {namespace}/{} exists with another content; delete it",
                        immutable.name
                    )));
                }
            }
            Err(source) => return Err(Error::Kube { action: "create ConfigMap", source }),
        }
        let volumes: Vec<_> = immutable
            .volumes
            .iter()
            .map(|volume| json!({"name": volume, "configMap": {"name": immutable.name}}))
            .collect();
        let patch = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        let patch = Patch::Strategic(&patch);
        self.workload()
            .patch(&self.swarm.spec.workload.name, &merge_params(), &patch)
            .await
            .map_err(Error::kube("patch StatefulSet"))?;
        Ok(())
    }

    async fn pinned(&self) -> Result<Vec<String>, Error> {
        let uid = self.swarm.uid().unwrap_or_default();
        let api = Api::<Metadata<ConfigMap>>::namespaced(self.client.clone(), &self.namespace());
        let params = ListParams::default().labels(&format!("{OWNER}={uid}"));
        let maps = api.list(&params).await.map_err(Error::kube("list ConfigMaps"))?;
        Ok(maps.iter().map(ResourceExt::name_any).collect())
    }

    async fn unpin(&self, name: &str) -> Result<(), Error> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace());
        match api.delete(name, &DeleteParams::background()).await {
            Ok(()) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::kube("delete ConfigMap")(error)),
        }
    }

    async fn evict(&self, worker: &str, uid: &str) -> Result<Eviction, Error> {
        let node = self.node_of(uid);
        let holder = disruptions::holder("Swarm", &self.swarm.key());
        let Ok(attempt) = self.disruptions.attempt(&holder, node.as_deref(), EVICTION) else {
            return Ok(Eviction::Deferred);
        };
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let options =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let params = EvictParams { delete_options: Some(options), ..EvictParams::default() };
        let answer = self.pods_api().evict(worker, &params).await;
        attempt.answered(&answer);
        match answer {
            Ok(_) => Ok(Eviction::Done),
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => Ok(Eviction::Gone),
            // A disruption budget (429), two of them (500), or another guard of this pod: the
            // others must not wait for it.
            Err(kube::Error::Api(s)) => Ok(Eviction::Refused(s.message)),
            Err(source) => Err(Error::Kube { action: "evict Pod", source }),
        }
    }

    async fn nudge(&self, worker: &str, uid: &str, epoch: u64) -> Result<bool, Error> {
        // The UID restricts it to exactly this pod.
        let patch = json!({"metadata": {"uid": uid, "annotations": {NUDGE: epoch.to_string()}}});
        let patch = Patch::Merge(&patch);
        let api = Api::<Metadata<Pod>>::namespaced(self.client.clone(), &self.namespace());
        match api.patch(worker, &merge_params(), &patch).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => Ok(false),
            // Its kubelet delivers the file within a minute without that.
            Err(kube::Error::Api(s)) => {
                tracing::warn!(error = %s, worker, "pod not annotated");
                Ok(false)
            }
            Err(source) => Err(Error::Kube { action: "annotate Pod", source }),
        }
    }

    async fn grant(&self, handed: &Handed, version: u64, key: Option<&Key>) {
        let Handed { pod, streams } = handed;
        let Some((key, ip)) = key.zip(pod.ip).filter(|_| pod.signs) else { return };
        let jobs = streams.iter().map(ToString::to_string).collect();
        let (uid, worker) = (pod.uid.to_string(), pod.name.to_string());
        let grant = Grant { uid, worker, version, jobs };
        let refresh = &self.swarm.spec.refresh;
        self.workers.grant(&grant, key, ip, refresh.port, &refresh.path).await;
    }

    /// The old number is part of the write: a workload that someone has scaled meanwhile, to zero
    /// maybe, is not scaled back.
    async fn scale(&self, scale: Scale) -> Result<(), Error> {
        let patch = json!([
            {"op": "test", "path": "/spec/replicas", "value": scale.from},
            {"op": "replace", "path": "/spec/replicas", "value": scale.to},
        ]);
        let patch = serde_json::from_value(patch)
            .map_err(|error| Error::Invalid(format!("scale workload: {error}")))?;
        let name = &self.swarm.spec.workload.name;
        let (api, patch) = (self.workload(), Patch::Json::<()>(patch));
        match api.patch_subresource("scale", name, &merge_params(), &patch).await {
            Ok(_) => Ok(()),
            // The next pass knows the other number.
            Err(kube::Error::Api(status)) if status.code == 422 => {
                Err(Error::Pending("ApiError", format!("scale workload: {}", status.message)))
            }
            Err(source) => Err(Error::Kube { action: "scale workload", source }),
        }
    }
}

impl Live<'_> {
    fn namespace(&self) -> String {
        self.swarm.key().0
    }

    /// Returns the node of one of the workload's pods, if it is bound to one.
    fn node_of(&self, uid: &str) -> Option<Box<str>> {
        let view = self.cache.view(self.swarm)?;
        view.pods.iter().find(|pod| *pod.uid == *uid)?.node.clone()
    }

    /// Writes a `ConfigMap` over the version that it carries, or a new one; `None`: another writer
    /// was faster.
    async fn replace(
        &self,
        map: &str,
        object: Value,
        there: bool,
    ) -> Result<Option<ObjectMeta>, Error> {
        let written = if there {
            let api =
                Api::<Metadata<ConfigMap>>::namespaced(self.client.clone(), &self.namespace());
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(map, &params, &Patch::Apply(&object)).await.map(|map| map.metadata)
        } else {
            let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace());
            let object: ConfigMap = serde_json::from_value(object)
                .map_err(|error| Error::Invalid(format!("spec.configMap: {error}")))?;
            api.create(&creation(), &object).await.map(|map| map.metadata)
        };
        match written {
            Ok(metadata) => Ok(Some(metadata)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(kube::Error::Api(status)) if is_refusal(&status) => {
                Err(Error::Unwritten(format!("ConfigMap {map}: {}", status.message)))
            }
            Err(source) => Err(Error::Kube { action: "write ConfigMap", source }),
        }
    }

    fn pods_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace())
    }

    fn workload(&self) -> Api<DynamicObject> {
        let resource = match self.swarm.spec.workload.kind {
            WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace(), &resource)
    }
}

fn creation() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

/// The `ConfigMap` with the next file. The version on which it is based makes the write a
/// compare-and-swap.
pub(super) fn file_object(swarm: &Swarm, publish: &Publish) -> Value {
    map_object(swarm, &swarm.config_map(), &publish.data, publish.on.as_deref())
}

/// The same of a part.
pub(super) fn part_object(swarm: &Swarm, part: &Part) -> Value {
    map_object(swarm, &part.name, &part.data, part.on.as_deref())
}

fn map_object(
    swarm: &Swarm,
    name: &str,
    data: &BTreeMap<String, String>,
    on: Option<&str>,
) -> Value {
    let config = data.get(&swarm.spec.config_map.key).map_or("", String::as_str);
    let state = data.get(STATE_KEY).map_or("", String::as_str);
    let mut object = owned(swarm, name);
    object["data"] = json!(data);
    object["metadata"]["annotations"] = json!({
        CONTENT: fingerprint(config, state), GIVEN: swarm.key().1
    });
    if let Some(version) = on {
        object["metadata"]["resourceVersion"] = json!(version);
    }
    object
}

/// An object of a `Swarm`, without content.
fn owned(swarm: &Swarm, name: &str) -> Value {
    let (namespace, _) = swarm.key();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {
                "app.kubernetes.io/managed-by": MANAGED_BY,
                OWNER: swarm.uid().unwrap_or_default(),
            },
            "ownerReferences": [swarm.controller_owner_ref(&())],
        }
    })
}
