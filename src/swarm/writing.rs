//! Writes what was decided.
use std::{sync::Arc, time::Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ObjectMeta, PartialObjectMeta},
};
use serde_json::{Value, json};

use super::{
    SwarmReconciler,
    file::STATE_KEY,
    ground::{CONTENT, GIVEN, NUDGE},
    handover::Refresh,
    history::fingerprint,
    plan::{Desired, Immutable, Publish},
    workers::epoch_of,
};
use crate::{
    api::{Swarm, swarm::WorkloadKind},
    controller::{Error, FIELD_MANAGER, MANAGED_BY, Notice, error::is_refusal, merge_params},
};

/// The label of everything that a `Swarm` owns: its name's hash, because a name may be longer than a label.
const OWNER: &str = "traffic.example.com/swarm-uid";

impl SwarmReconciler {
    pub(super) async fn write(
        &self,
        swarm: &Swarm,
        desired: Desired,
    ) -> Result<Vec<Notice>, Error> {
        let key = swarm.key();
        if let Some(memory) = desired.memory {
            self.memories.put(key.clone(), memory);
        }
        let mut notices = Vec::new();
        if let Some(publish) = desired.publish {
            notices.extend(self.publish(swarm, publish).await?);
        }
        if let Some(immutable) = desired.immutable {
            self.pin(swarm, immutable).await?;
        }
        for refresh in desired.refresh {
            notices.extend(match refresh {
                Refresh::Evict { worker, uid } => self.evict(swarm, &worker, &uid).await?,
                Refresh::Nudge { worker, uid, epoch } => {
                    self.nudge(swarm, &worker, &uid, epoch).await?
                }
            });
        }
        if let Some(replicas) = desired.scale {
            notices.push(self.scale(swarm, replicas).await?);
        }
        Ok(notices)
    }

    /// Writes the next file, unless somebody else has written meanwhile: then the next pass decides
    /// anew.
    async fn publish(&self, swarm: &Swarm, publish: Publish) -> Result<Vec<Notice>, Error> {
        let (namespace, name) = swarm.key();
        let map = swarm.config_map();
        let api = Api::<PartialObjectMeta<ConfigMap>>::namespaced(self.client.clone(), &namespace);
        let config = publish.data.get(&swarm.spec.config_map.key).map_or("", String::as_str);
        let state = publish.data.get(STATE_KEY).map_or("", String::as_str);
        let mut object = owned(swarm, &map);
        object["data"] = json!(publish.data);
        object["metadata"]["annotations"] = json!({
            CONTENT: fingerprint(config, state), GIVEN: name
        });
        let written = if let Some(version) = &publish.on {
            // The version makes it a compare-and-swap.
            object["metadata"]["resourceVersion"] = json!(version);
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&map, &params, &Patch::Apply(&object)).await.map(|map| map.metadata)
        } else {
            let api = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
            let object: ConfigMap = serde_json::from_value(object)
                .map_err(|error| Error::Invalid(format!("spec.configMap: {error}")))?;
            let params =
                PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
            api.create(&params, &object).await.map(|map| map.metadata)
        };
        let metadata: ObjectMeta = match written {
            Ok(metadata) => metadata,
            // Somebody else was faster: the next pass decides on what is there then.
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(vec![]),
            Err(kube::Error::Api(status)) if is_refusal(&status) => {
                return Err(Error::Refused(format!("ConfigMap {map}: {}", status.message)));
            }
            Err(source) => return Err(Error::Kube { action: "write ConfigMap", source }),
        };
        self.ground.wrote(swarm, &metadata, Arc::new(publish.data));
        self.memories.change(&swarm.key(), |memory| {
            memory.published = Some(Arc::clone(&publish.published));
            let told = Arc::make_mut(&mut memory.told);
            for (reason, count) in publish.moves {
                *told.counters.moves.entry(reason).or_default() += count;
            }
        });
        Ok(publish.notices)
    }

    /// Writes the immutable file, points the template at it, and removes those that nobody mounts.
    async fn pin(&self, swarm: &Swarm, immutable: Immutable) -> Result<(), Error> {
        let (namespace, _) = swarm.key();
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
        let mut object = owned(swarm, &immutable.name);
        object["data"] = json!(immutable.data);
        object["immutable"] = json!(true);
        let object: ConfigMap = serde_json::from_value(object)
            .map_err(|error| Error::Invalid(format!("spec.configMap: {error}")))?;
        let params =
            PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        match api.create(&params, &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = api.get_opt(&immutable.name).await;
                let there = there.map_err(Error::kube("get ConfigMap"))?;
                let same = there.is_some_and(|there| {
                    there.data.as_ref() == Some(&immutable.data) && there.immutable == Some(true)
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
        let api = self.workload(swarm);
        let patch = Patch::Strategic(&patch);
        api.patch(&swarm.spec.workload.name, &merge_params(), &patch)
            .await
            .map_err(Error::kube("patch StatefulSet"))?;
        self.sweep(swarm, &immutable.name).await
    }

    /// Removes immutable files that no pod mounts any more.
    async fn sweep(&self, swarm: &Swarm, current: &str) -> Result<(), Error> {
        let (namespace, _) = swarm.key();
        let (share, uid) = (swarm.config_map(), swarm.uid().unwrap_or_default());
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
        let params = ListParams::default().labels(&format!("{OWNER}={uid}"));
        let maps = api.list_metadata(&params).await.map_err(Error::kube("list ConfigMaps"))?;
        let Some(view) = self.ground.view(swarm) else { return Ok(()) };
        for map in maps {
            let name = map.name_any();
            let mounted = view.pods.iter().any(|pod| pod.mounts.iter().any(|m| **m == *name));
            let epoch = epoch_of(&share, &name);
            // The one before may be in the hands of a controller that has not seen the new template.
            let newest = epoch_of(&share, current).unwrap_or(0);
            let old = epoch.is_some_and(|epoch| epoch + KEEP < newest);
            if !mounted && old {
                match api.delete(&name, &DeleteParams::background()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    Err(error) => return Err(Error::kube("delete ConfigMap")(error)),
                }
            }
        }
        Ok(())
    }

    /// Evicts a pod, exactly this one.
    async fn evict(
        &self,
        swarm: &Swarm,
        worker: &Arc<str>,
        uid: &Arc<str>,
    ) -> Result<Vec<Notice>, Error> {
        let key = swarm.key();
        let api = Api::<Pod>::namespaced(self.client.clone(), &key.0);
        let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: None };
        let options =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let params = EvictParams { delete_options: Some(options), ..EvictParams::default() };
        let count = |action: &'static str| {
            self.memories.change(&key, |memory| {
                let told = Arc::make_mut(&mut memory.told);
                *told.counters.refreshes.entry(action).or_default() += 1;
                match action {
                    "evicted" => {
                        memory.refused.remove(worker);
                    }
                    _ => {
                        memory.refused.insert(Arc::clone(worker), Instant::now());
                    }
                }
            });
        };
        match api.evict(worker, &params).await {
            Ok(_) => {
                count("evicted");
                let note = format!("evicted pod {worker}, so that it reads its new list");
                Ok(vec![Notice { warning: false, reason: "WorkerRefreshed", note, node: None }])
            }
            // Another pod of that name, or none: this one is gone already.
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => Ok(vec![]),
            Err(kube::Error::Api(s)) if s.code == 429 => {
                count("refused");
                let note = format!("pod {worker} stays: {}", s.message);
                Ok(vec![Notice { warning: true, reason: "EvictionRefused", note, node: None }])
            }
            Err(source) => Err(Error::Kube { action: "evict Pod", source }),
        }
    }

    /// Changes a pod, so that the kubelet brings its volumes up to date at once.
    async fn nudge(
        &self,
        swarm: &Swarm,
        worker: &str,
        uid: &str,
        epoch: u64,
    ) -> Result<Vec<Notice>, Error> {
        let key = swarm.key();
        let api = Api::<Pod>::namespaced(self.client.clone(), &key.0);
        // The UID makes it this pod or none.
        let patch = json!({"metadata": {"uid": uid, "annotations": {NUDGE: epoch.to_string()}}});
        match api.patch_metadata(worker, &merge_params(), &Patch::Merge(&patch)).await {
            Ok(_) => {
                self.memories.change(&key, |memory| {
                    let told = Arc::make_mut(&mut memory.told);
                    *told.counters.refreshes.entry("reloaded").or_default() += 1;
                });
            }
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => {}
            Err(source) => return Err(Error::Kube { action: "annotate Pod", source }),
        }
        Ok(vec![])
    }

    async fn scale(&self, swarm: &Swarm, replicas: u32) -> Result<Notice, Error> {
        let patch = json!({"spec": {"replicas": replicas}});
        let name = &swarm.spec.workload.name;
        let api = self.workload(swarm);
        api.patch_subresource("scale", name, &merge_params(), &Patch::Merge(&patch))
            .await
            .map_err(Error::kube("scale workload"))?;
        let note = format!("{} {name} scaled to {replicas}", swarm.spec.workload.kind.as_str());
        Ok(Notice { warning: false, reason: "Scaled", note, node: None })
    }

    fn workload(&self, swarm: &Swarm) -> Api<kube::api::DynamicObject> {
        let (namespace, _) = swarm.key();
        let resource = match swarm.spec.workload.kind {
            WorkloadKind::StatefulSet => {
                kube::api::ApiResource::erase::<k8s_openapi::api::apps::v1::StatefulSet>(&())
            }
            WorkloadKind::Deployment => {
                kube::api::ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&())
            }
        };
        Api::namespaced_with(self.client.clone(), &namespace, &resource)
    }
}

/// How many immutable files are kept beside the current one and those that are mounted.
const KEEP: u64 = 2;

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
