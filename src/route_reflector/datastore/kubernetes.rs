//! Calico's objects in the Kubernetes API.
//!
//! Never by server-side apply: Calico's own API server, from `projectcalico.org/v3`, cannot
//! create by it. A new object is created, which fails if the name is taken in the meantime; ours
//! are merge-patched at the version that was read.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PostParams, Preconditions},
    core::GroupVersionKind,
    discovery::ApiResource,
    runtime::watcher::{self, Event},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    CalicoPeer, DEFAULT, Error, ListenPorts, ReadCache, Snapshot, Stale, Unreadable, WantedPeer,
    Written,
    peer::{self, ConfigurationSpec, InformationSpec, PeerSpec},
    routing::{FelixSpec, InstallationSpec, Pool, Routing},
};
use crate::{
    controller::{FIELD_MANAGER, error::is_refusal, merge_params},
    infra::{
        Api,
        watch::{self, DeserializeGuard, Metadata},
    },
};

/// The time for which the discovered group, or the absence of Calico, is cached. A migration takes
/// minutes, and both groups are served during it: no error reveals it.
const REDISCOVER: Duration = Duration::from_mins(1);

/// One of the places where Calico has its objects in the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// `projectcalico.org/v3`: definitions of its own, or Calico's API server.
    V3,
    /// `crd.projectcalico.org/v1`: what Calico itself reads where there is no other.
    V1,
}

impl Group {
    /// Group and version.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V3 => "projectcalico.org/v3",
            Self::V1 => "crd.projectcalico.org/v1",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::V3 => "projectcalico.org",
            Self::V1 => "crd.projectcalico.org",
        }
    }

    fn resource(self, kind: &str, plural: &str) -> ApiResource {
        let (group, version) = self.api_version().split_once('/').unwrap_or_default();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    fn peers(self) -> ApiResource {
        self.resource(peer::KIND, "bgppeers")
    }

    fn configurations(self) -> ApiResource {
        self.resource("BGPConfiguration", "bgpconfigurations")
    }

    pub(super) fn node_statuses(self) -> ApiResource {
        self.resource("CalicoNodeStatus", "caliconodestatuses")
    }

    fn pools(self) -> ApiResource {
        self.resource("IPPool", "ippools")
    }

    fn felix(self) -> ApiResource {
        self.resource("FelixConfiguration", "felixconfigurations")
    }

    fn information(self) -> ApiResource {
        self.resource("ClusterInformation", "clusterinformations")
    }
}

/// Objects per page, or their metadata: peers are small (1.5 kB), and there may be 15,000.
const PAGE_SIZE: u32 = 500;

/// The part of an object's spec that is read; a missing object is empty.
fn spec<S: DeserializeOwned + Default>(object: &DynamicObject) -> Result<S, serde_json::Error> {
    Option::<S>::deserialize(&object.data["spec"]).map(Option::unwrap_or_default)
}

fn unreadable(kind: &str, name: &str) -> impl FnOnce(serde_json::Error) -> Error {
    move |error| Error::Unreadable(format!("{kind} {name}: {error}"))
}

/// Calico in the Kubernetes API.
pub struct Kubernetes {
    client: Client,
    /// The group, or its absence, with the time of the discovery.
    group: Mutex<Option<(Option<Group>, Instant)>>,
    discovering: tokio::sync::Mutex<()>,
    pub(super) cache: ReadCache,
}

impl Kubernetes {
    /// Calico in the cluster of this client, which bounds every call and refuses to write without
    /// the lease.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let (group, discovering) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { client, group, discovering, cache: ReadCache::default() }
    }

    pub(super) fn api<K>(&self, resource: &ApiResource) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource>,
    {
        Api::all_with(self.client.clone(), resource)
    }

    /// The group in use.
    pub(super) async fn group(&self) -> Result<Group, Error> {
        if let Some(group) = self.known_group() {
            return group;
        }
        // A pass and the watch begin at the same moment: only one of them sends the request.
        let _turn = self.discovering.lock().await;
        if let Some(group) = self.known_group() {
            return group;
        }
        let known = *self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.and_then(|(group, _)| group);
        let found = self.discover(known.is_some()).await;
        let group = match found {
            Ok(group) => Some(group),
            Err(Error::NotInstalled) => None,
            Err(error) => return Err(error),
        };
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some((group, Instant::now()));
        if let Some(group) = group
            && known.is_some_and(|known| known != group)
        {
            tracing::info!(group = group.api_version(), "Calico's objects are in another group");
            self.cache.bump();
        }
        group.ok_or(Error::NotInstalled)
    }

    /// Lists everything, page by page. A kind that is gone is discovered again at the next call.
    async fn list(
        &self,
        resource: &ApiResource,
        each: impl FnMut(DynamicObject),
    ) -> Result<(), Error> {
        let api = self.api::<DynamicObject>(resource);
        let listed = api.list_pages(ListParams::default().limit(PAGE_SIZE), each).await;
        listed.map_err(|source| self.failed("list Calico's objects", source))
    }

    /// Returns the cluster's BGPConfiguration. By list: a get cannot distinguish a missing kind
    /// from a missing object.
    async fn configuration(&self, group: Group) -> Result<Option<DynamicObject>, Error> {
        let mut found = None;
        self.list(&group.configurations(), |object| {
            if object.name_any() == DEFAULT {
                found = Some(object);
            }
        })
        .await?;
        Ok(found)
    }

    /// Classifies a failed call; the kind, or the object, may be gone.
    pub(super) fn failed(&self, action: &'static str, source: kube::Error) -> Error {
        match &source {
            kube::Error::Api(status) if status.code == 404 => {
                self.forget_group();
                Error::Changed("what Calico has installed".into())
            }
            kube::Error::Api(status) if status.code == 409 => {
                let name = status.details.as_ref().map_or("", |details| details.name.as_str());
                Error::Changed(format!("Calico's object {name:?}"))
            }
            _ => Error::Kube { action, source },
        }
    }

    pub(super) async fn read(&self) -> Result<Snapshot, Error> {
        match self.read_group().await {
            // Once more, after a check of the current location of the objects.
            Err(Error::Changed(_)) => self.read_group().await,
            result => result,
        }
    }

    /// Returns a substitute while Calico's API does not answer: the last snapshot, or after a
    /// restart the objects in its API server's storage.
    ///
    /// # Errors
    /// The error of reading, if there is neither, or if Calico's API did answer.
    pub(super) async fn instead(&self, error: Error) -> Result<Snapshot, Error> {
        if !is_unreachable(&error) {
            return Err(error);
        }
        let (since, snapshot) = match self.cache.last() {
            Some((at, snapshot)) => (Some(at), Snapshot::clone(&snapshot)),
            None => match self.read_of(Group::V1, ReadFrom::Crds).await {
                Ok(snapshot) => (None, snapshot),
                Err(_) => return Err(error),
            },
        };
        let why = crate::controller::Error::from(error).to_text();
        Ok(Snapshot { stale: Some(Stale { since, why }), ..snapshot })
    }

    async fn read_group(&self) -> Result<Snapshot, Error> {
        self.read_of(self.group().await?, ReadFrom::Api).await
    }

    async fn read_of(&self, group: Group, from: ReadFrom) -> Result<Snapshot, Error> {
        let (mut peers, mut unreadable_peers) = (Vec::new(), Vec::new());
        self.list(&group.peers(), |object| {
            let (name, version) = (object.name_any(), object.resource_version());
            match spec::<PeerSpec>(&object) {
                Ok(spec) => {
                    let hidden = (from == ReadFrom::Crds).then(|| hidden_labels(&object)).flatten();
                    let labels = hidden.as_ref().or(object.metadata.labels.as_ref());
                    peers.push(CalicoPeer::new(name, labels, spec, version.unwrap_or_default()));
                }
                Err(error) => unreadable_peers.push(Unreadable::peer(&name, &error)),
            }
        })
        .await?;
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        let (mut found, mut listen_ports) = (None, ListenPorts::default());
        self.list(&group.configurations(), |object| match object.name_any() {
            name if name == DEFAULT => found = Some(object),
            // An unreadable part contains no port.
            name => {
                let of_node = spec::<ConfigurationSpec>(&object).unwrap_or_default();
                listen_ports.note(&name, of_node.listen_port);
            }
        })
        .await?;
        let configuration: ConfigurationSpec = match found {
            Some(found) => spec(&found).map_err(unreadable("BGPConfiguration", DEFAULT))?,
            None => ConfigurationSpec::default(),
        };
        listen_ports.all = configuration.listen_port;
        let information = self.information(group).await?.unwrap_or_default();
        let release = information.release();
        let bird = configuration.program_cluster_routes.clone();
        let routing = Routing { bird, release, ..self.routing(group).await };
        Ok(Snapshot {
            peers,
            unreadable: unreadable_peers,
            mesh: configuration.mesh(),
            mesh_session: configuration.session(),
            only_of_mesh: configuration.only_of_mesh(),
            as_number: configuration.as_number(),
            listen_ports,
            flavor: group.api_version(),
            // The first release with the rule in its definitions. Its API server always had it.
            strict_mesh: group == Group::V3 || release >= Some((3, 32)),
            routing,
            locked: information.locked(),
            ..Snapshot::default()
        })
    }

    /// Reads who programs the routes. What cannot be read stops nothing: it is reported.
    async fn routing(&self, group: Group) -> Routing {
        let mut routing = Routing::default();
        let unknown = |what: &str, why: &dyn std::fmt::Display| Some(format!("{what}: {why}"));
        match self.api::<DynamicObject>(&group.pools()).list(&ListParams::default()).await {
            Ok(list) => {
                for object in list {
                    let name = object.name_any();
                    match spec::<Pool>(&object) {
                        Ok(pool) => routing.pools.push(Pool { name, ..pool }),
                        Err(why) => routing.unknown = unknown(&format!("IPPool {name}"), &why),
                    }
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(why) => routing.unknown = unknown("list IPPools", &why),
        }
        match self.default_of::<FelixSpec>(&group.felix()).await {
            Ok(found) => routing.felix = found.program_cluster_routes,
            Err(why) => routing.unknown = unknown("FelixConfiguration default", &why),
        }
        let kind = GroupVersionKind::gvk("operator.tigera.io", "v1", "Installation");
        let installation = ApiResource::from_gvk_with_plural(&kind, "installations");
        match self.default_of::<InstallationSpec>(&installation).await {
            Ok(found) => {
                let network = found.calico_network.unwrap_or_default();
                (routing.bgp, routing.mode) = (network.bgp, network.cluster_routing_mode);
            }
            Err(why) => routing.unknown = unknown("Installation default", &why),
        }
        routing
    }

    /// The spec of the object `default`; empty if there is none, or no such kind.
    async fn default_of<S: DeserializeOwned + Default>(
        &self,
        resource: &ApiResource,
    ) -> Result<S, String> {
        match self.api::<DynamicObject>(resource).get(DEFAULT).await {
            Ok(found) => spec(&found).map_err(|error| error.to_string()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(S::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The group, if it may be written to now.
    pub(super) async fn writable(&self) -> Result<Group, Error> {
        let group = self.group().await?;
        if self.information(group).await?.unwrap_or_default().locked() {
            return Err(Error::Locked);
        }
        Ok(group)
    }

    pub(super) async fn apply_peer(&self, wanted: &WantedPeer<'_>) -> Result<Written, Error> {
        let group = self.writable().await?;
        let api = self.api::<DynamicObject>(&group.peers());
        let found = api.get_opt(wanted.name).await.map_err(Error::kube("get BGPPeer"))?;
        let Some(found) = found else {
            return self.create(&group.peers(), wanted.object(group.api_version())).await;
        };
        let Some(patch) = wanted.patch(&raw(&found))? else { return Ok(Written::Unchanged) };
        self.patch(&api, &found, patch).await
    }

    pub(super) async fn delete_peer(&self, name: &str, version: &str) -> Result<Written, Error> {
        let group = self.writable().await?;
        let api = self.api::<DynamicObject>(&group.peers());
        let found = api.get_opt(name).await.map_err(Error::kube("get BGPPeer"))?;
        let Some(found) = found else { return Ok(Written::Unchanged) };
        peer::ensure_ours(peer::KIND, name, &raw(&found))?;
        if found.resource_version().as_deref() != Some(version) {
            return Err(Error::Changed(format!("BGPPeer {name}")));
        }
        self.delete(&api, &found).await
    }

    pub(super) async fn set_mesh(&self, on: bool) -> Result<Written, Error> {
        let group = self.writable().await?;
        let resource = group.configurations();
        let Some(found) = self.configuration(group).await? else {
            // Without a configuration, the mesh is on.
            if on {
                return Ok(Written::Unchanged);
            }
            let object = json!({
                "apiVersion": group.api_version(), "kind": "BGPConfiguration",
                "metadata": {"name": DEFAULT}, "spec": {"nodeToNodeMeshEnabled": false},
            });
            return self.create(&resource, object).await;
        };
        let now: ConfigurationSpec =
            spec(&found).map_err(unreadable("BGPConfiguration", DEFAULT))?;
        if now.mesh() == on {
            return Ok(Written::Unchanged);
        }
        let api = self.api(&resource);
        let fields = now.session().names_of_mesh();
        match self.patch(&api, &found, json!({"spec": {"nodeToNodeMeshEnabled": on}})).await {
            Err(Error::Kube { source: kube::Error::Api(status), .. })
                if !on && !fields.is_empty() && is_refusal(&status) =>
            {
                Err(Error::MeshFields { fields, refusal: status.message.clone() })
            }
            result => result,
        }
    }

    pub(super) async fn create(
        &self,
        resource: &ApiResource,
        object: Value,
    ) -> Result<Written, Error> {
        let object: DynamicObject = serde_json::from_value(object)
            .map_err(|error| Error::Invalid(format!("{}: {error}", resource.kind)))?;
        let params =
            PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let created = self.api::<DynamicObject>(resource).create(&params, &object).await;
        created.map_err(|source| self.failed("create one of Calico's objects", source))?;
        Ok(Written::Changed)
    }

    /// Patches the found object, at the version that it had.
    async fn patch(
        &self,
        api: &Api<DynamicObject>,
        found: &DynamicObject,
        mut patch: Value,
    ) -> Result<Written, Error> {
        patch["metadata"]["resourceVersion"] = json!(found.resource_version());
        let patched = api.patch(&found.name_any(), &merge_params(), &Patch::Merge(&patch)).await;
        patched.map_err(|source| self.failed("patch one of Calico's objects", source))?;
        Ok(Written::Changed)
    }

    /// Deletes the found object, at the version that it had.
    pub(super) async fn delete(
        &self,
        api: &Api<DynamicObject>,
        found: &DynamicObject,
    ) -> Result<Written, Error> {
        let preconditions =
            Preconditions { resource_version: found.resource_version(), uid: found.uid() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(&found.name_any(), &params).await {
            Ok(()) => Ok(Written::Changed),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Written::Unchanged),
            Err(source) => Err(self.failed("delete one of Calico's objects", source)),
        }
    }
}

/// The source of Calico's objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadFrom {
    /// Calico's API.
    Api,
    /// `crd.projectcalico.org`, where the API server of Calico stores them.
    Crds,
}

/// The labels of an object that Calico's API server wrote: it keeps all metadata of its own in one
/// annotation.
fn hidden_labels(object: &DynamicObject) -> Option<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Hidden {
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }
    let text = object.metadata.annotations.as_ref()?.get("projectcalico.org/metadata")?;
    serde_json::from_str(text).ok().map(|hidden: Hidden| hidden.labels)
}

/// Reports whether Calico's API did not answer, or reported that it cannot.
fn is_unreachable(error: &Error) -> bool {
    match error {
        Error::Kube { source: kube::Error::Api(status), .. } => status.code >= 500,
        Error::Kube { .. } => true,
        _ => false,
    }
}

/// The parts of an object that are decided upon, as JSON.
pub(super) fn raw(object: &DynamicObject) -> Value {
    json!({"metadata": {"labels": object.metadata.labels}, "spec": object.data["spec"]})
}

impl Kubernetes {
    /// Returns the last result, if it is still valid.
    fn known_group(&self) -> Option<Result<Group, Error>> {
        let known = *self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let (group, since) = known?;
        (since.elapsed() < REDISCOVER).then(|| group.ok_or(Error::NotInstalled))
    }

    /// Discovers the group again at the next call.
    fn forget_group(&self) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Looks for Calico. If it was not `known`, the list of all groups is requested first: one
    /// small request if there is none.
    async fn discover(&self, known: bool) -> Result<Group, Error> {
        if !known {
            let groups = self.client.list_api_groups().await;
            let groups = groups.map_err(Error::kube("discover Calico"))?.groups;
            let is_calicos = |name: &str| [Group::V3, Group::V1].iter().any(|g| g.name() == name);
            if !groups.iter().any(|group| is_calicos(&group.name)) {
                return Err(Error::NotInstalled);
            }
        }
        match (self.serves(Group::V3).await?, self.serves(Group::V1).await?) {
            (true, false) => Ok(Group::V3),
            (false, true) => Ok(Group::V1),
            (false, false) => Err(Error::NotInstalled),
            // Definitions may be installed long before Calico uses them: it uses the group in which
            // it keeps its ClusterInformation. After a migration there is one in both.
            (true, true) => {
                let v3 = self.information(Group::V3).await?.is_some();
                let only_v1 = !v3 && self.information(Group::V1).await?.is_some();
                Ok(if only_v1 { Group::V1 } else { Group::V3 })
            }
        }
    }

    async fn serves(&self, group: Group) -> Result<bool, Error> {
        match self.client.list_api_group_resources(group.api_version()).await {
            Ok(list) => {
                let has = |plural| list.resources.iter().any(|r| r.name == plural);
                Ok(has("bgppeers") && has("bgpconfigurations"))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            // Even when Calico's API server is down: the storage behind it must not be used
            // directly.
            Err(source) => Err(Error::Kube { action: "discover Calico", source }),
        }
    }

    pub(super) async fn information(&self, group: Group) -> Result<Option<InformationSpec>, Error> {
        let api = self.api::<DynamicObject>(&group.information());
        let found = api.get_opt(DEFAULT).await;
        let found = found.map_err(Error::kube("get ClusterInformation default"))?;
        let read =
            found.map(|found| spec(&found).map_err(unreadable("ClusterInformation", DEFAULT)));
        read.transpose()
    }
}

/// Time between two checks for another group, or for Calico where it is missing.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The pause after a failed watch or discovery.
const PAUSE: Duration = Duration::from_secs(5);

/// The time for which events are collected into one: someone may change 15,000 peers in a loop.
const COLLECT: Duration = Duration::from_millis(200);

type Meta = Metadata<DynamicObject>;
type Events = BoxStream<'static, Result<Event<DeserializeGuard<Meta>>, watcher::Error>>;

/// No `watch::Mirror`: the objects are not kept, but listed again when a pass needs them.
#[derive(Default)]
struct Watch {
    /// The group, and the events of its peers and configurations.
    running: Option<(Group, Events)>,
    /// True if the last item reported readable objects.
    stands: bool,
}

/// An item whenever something may have changed.
pub(super) fn changes(store: Arc<Kubernetes>) -> BoxStream<'static, ()> {
    stream::unfold((Watched(store), Watch::default()), |(store, mut watch)| async move {
        watch.next(&store.0).await;
        Some(((), (store, watch)))
    })
    .boxed()
}

/// Marks the store as unwatched when a watch is dropped.
struct Watched(Arc<Kubernetes>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.cache.watching(false);
    }
}

impl Watch {
    /// Returns at the next change.
    async fn next(&mut self, store: &Kubernetes) {
        loop {
            let group = match store.group().await {
                Ok(group) => group,
                Err(error) => {
                    self.running = None;
                    store.cache.watching(false);
                    tracing::debug!(%error, "Calico's objects are not watched");
                    // Waiters must see that, too; once.
                    if std::mem::take(&mut self.stands) {
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (_, events) = match &mut self.running {
                Some(current) if current.0 == group => current,
                running => running.insert((group, watch_group(store, group))),
            };
            match tokio::time::timeout(LOOK_AGAIN, until_change(events)).await {
                Ok(Ok(())) => {
                    collect(events).await;
                    // In this order: a reader must not get the result of an earlier read now.
                    store.cache.bump();
                    store.cache.watching(true);
                    self.stands = true;
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "watch of Calico's objects failed, trying again");
                    self.running = None;
                    store.cache.watching(false);
                    store.forget_group();
                    tokio::time::sleep(PAUSE).await;
                }
                // Time to look for the group.
                Err(_) => {}
            }
        }
    }
}

fn watch_group(store: &Kubernetes, group: Group) -> Events {
    let events = |resource: &ApiResource| {
        let api: Api<Meta> = store.api(resource);
        watch::follow(api, watch::config().page_size(PAGE_SIZE))
    };
    let peers = events(&group.peers());
    let configurations = events(&group.configurations());
    stream::select(peers, configurations).boxed()
}

/// Returns when something changed, or all was listed (again).
async fn until_change(events: &mut Events) -> Result<(), watcher::Error> {
    while let Some(event) = events.next().await {
        match event? {
            Event::Apply(_) | Event::Delete(_) | Event::InitDone => return Ok(()),
            Event::Init | Event::InitApply(_) => {}
        }
    }
    Ok(())
}

/// Takes what else has come, and comes within a moment. An error shows itself again at the next
/// event.
async fn collect(events: &mut Events) {
    let end = tokio::time::sleep(COLLECT);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return,
            event = events.next() => if event.is_none_or(|event| event.is_err()) { return },
        }
    }
}

#[cfg(test)]
mod tests;
