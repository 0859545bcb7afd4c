//! Calico's objects in a separate etcd.
//!
//! The keys and the JSON are Calico's. Every write is a transaction that compares the revision that
//! was read, so that no change is lost; and no write leaves while the lease is not ours.
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp, WatchOptions, WatchStream};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

mod connection;
mod object;

pub use connection::Credentials;
use connection::{Connection, Source, explain, reader};
use object::{
    API_VERSION, CONFIGURATIONS, Entry, FELIX, INFORMATION, NODES, NodeLabels, PEERS, POOLS, key,
    prefix,
};

use super::{
    DEFAULT, Error, IdChange, ReadCache, Routing, Snapshot, Unreadable, WantedPeer, Written, peer,
};
use crate::{
    api::route_reflector_set,
    infra::{Api, lease::Fence},
    nodes::Texts,
};

/// Objects per answer.
const PAGE_SIZE: i64 = 1000;

/// Calico in etcd.
pub struct Etcd {
    connection: Connection,
    fence: Fence,
    /// Calico's names of nodes, by their names in Kubernetes, from the last read.
    names: Mutex<HashMap<Arc<str>, String>>,
    pub(super) cache: ReadCache,
}

/// Why an object is not read.
fn why<T>(unread: Option<Result<T, impl ToString>>) -> String {
    match unread {
        Some(Err(error)) => error.to_string(),
        _ => "not JSON".into(),
    }
}

impl Etcd {
    /// The etcd of a spec. The Secret it names is read in `namespace` at a request to etcd, and
    /// again when that fails.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the spec names endpoints beside a Secret: objects that are older than
    /// the rule against it.
    pub fn new(
        client: kube::Client,
        namespace: &str,
        spec: &route_reflector_set::Etcd,
        fence: Fence,
    ) -> Result<Self, Error> {
        let source = match (&spec.secret_ref, &spec.endpoints[..]) {
            (Some(secret), []) => Source::Secret {
                secrets: Box::new(Api::namespaced(client, namespace)),
                namespace: namespace.into(),
                name: secret.name.clone(),
            },
            (None, [_, ..]) => Source::Spec(spec.endpoints.clone()),
            (Some(secret), _) => {
                return Err(Error::Invalid(format!(
                    "spec.datastore.etcd.endpoints: with secretRef, the endpoints belong in the Secret \
                     {} too, as its key endpoints: credentials are sent nowhere else",
                    secret.name
                )));
            }
            (None, []) => {
                return Err(Error::Invalid(
                    "spec.datastore.etcd: needs a secretRef, or the endpoints of an etcd that requires \
                     no credentials"
                        .into(),
                ));
            }
        };
        let (connection, names) = (Connection::new(source), Mutex::default());
        Ok(Self { connection, fence, names, cache: ReadCache::default() })
    }

    pub(super) async fn read(&self) -> Result<Snapshot, Error> {
        // All at one revision, so that the objects are consistent.
        let mut revision = 0;
        let mut all = Vec::new();
        for plural in [PEERS, CONFIGURATIONS, INFORMATION, NODES, POOLS, FELIX] {
            all.push(self.list(plural, &mut revision).await?);
        }
        let [peers, configurations, information, nodes, pools, felix] = &all[..] else {
            return Ok(Snapshot::default());
        };
        let mut snapshot = Snapshot { flavor: "etcd", ..Snapshot::default() };
        let mut speakers = BTreeMap::new();
        let (mut names, mut labels) = (BTreeMap::new(), BTreeMap::new());
        let mut known = Interned::default();
        for (name, entry) in nodes {
            match entry.as_ref().map(Entry::node) {
                Some(Ok(Some(node))) => {
                    let kubernetes: Arc<str> = node.kubernetes.into();
                    names.insert(name.as_str(), Arc::clone(&kubernetes));
                    labels.insert(Arc::clone(&kubernetes), known.texts(&node.labels));
                    if !node.addresses.is_empty() {
                        let speaker = (node.addresses, node.as_number);
                        speakers.insert(Arc::clone(&kubernetes), speaker);
                    }
                    snapshot.cluster_ids.extend(node.cluster_id.map(|id| (kubernetes, id)));
                }
                Some(Ok(None)) => {}
                // It gets no labels, and takes no part.
                unread => {
                    let (object, why) = (format!("Node {name}"), why(unread));
                    snapshot.unreadable.push(Unreadable { object, why, ignored: true });
                }
            }
        }
        let by_kubernetes =
            names.iter().map(|(calico, name)| (Arc::clone(name), (*calico).to_owned()));
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = by_kubernetes.collect();
        snapshot.speakers = Some(speakers);
        snapshot.labels = Some(labels);
        for (name, entry) in peers {
            match entry.as_ref().map(Entry::peer) {
                Some(Ok(mut peer)) => {
                    // Calico's own name of the node, which may be another.
                    let kubernetes = peer.node.as_ref().and_then(|node| names.get(node.as_str()));
                    if let Some(kubernetes) = kubernetes {
                        peer.node = Some(kubernetes.to_string());
                    }
                    snapshot.peers.push(peer);
                }
                unread => {
                    let (object, ignored) = (format!("BGPPeer {name}"), unread.is_none());
                    let why = why(unread);
                    snapshot.unreadable.push(Unreadable { object, why, ignored });
                }
            }
        }
        let configuration = default(configurations, "BGPConfiguration", Entry::configuration)?;
        snapshot.mesh = configuration.mesh();
        snapshot.mesh_session = configuration.session();
        snapshot.only_of_mesh = configuration.only_of_mesh();
        snapshot.as_number = configuration.as_number();
        snapshot.listen_ports.all = configuration.listen_port;
        for (name, entry) in configurations {
            let found = entry.as_ref().and_then(|entry| entry.configuration().ok());
            // By Calico's name of the node, which may differ from that of Kubernetes.
            let node = name.strip_prefix("node.").and_then(|node| names.get(node)).cloned();
            let port = found.and_then(|found| found.listen_port);
            snapshot.listen_ports.nodes.extend(node.zip(port));
        }
        let information = default(information, "ClusterInformation", Entry::information)?;
        snapshot.locked = information.locked();
        let pools = pools.iter().filter_map(|(_, entry)| entry.as_ref()?.pool().ok());
        snapshot.routing = Routing {
            pools: pools.collect(),
            bird: configuration.program_cluster_routes.clone(),
            felix: default(felix, "FelixConfiguration", Entry::felix)?.program_cluster_routes,
            release: information.release(),
            ..Routing::default()
        };
        Ok(snapshot)
    }

    /// Returns a substitute when it cannot be read: none, because the cluster ids are there too.
    #[expect(clippy::unused_async, reason = "as the other datastore")]
    pub(super) async fn instead(&self, error: Error) -> Result<Snapshot, Error> {
        Err(error)
    }

    /// Returns all objects of a kind by name, at a revision; if it is 0, at the newest one, which
    /// is then returned.
    async fn list(&self, plural: &str, revision: &mut i64) -> Result<Listed, Error> {
        let (prefix, mut from) = (prefix(plural), prefix(plural).into_bytes());
        // The first key that is no longer one with the prefix: `/` is followed by `0`.
        let end = prefix.trim_end_matches('/').to_owned() + "0";
        let mut all = Listed::new();
        loop {
            let options = GetOptions::new()
                .with_range(end.as_str())
                .with_limit(PAGE_SIZE)
                .with_revision(*revision);
            let page = self.connection.call(|client| {
                let (from, options) = (from.clone(), options.clone());
                async move { reader(&client).get(from, Some(options)).await }
            });
            let mut page = page.await?;
            if *revision == 0 {
                *revision = page.header().map_or(0, etcd_client::ResponseHeader::revision);
            }
            let more = page.more();
            for kv in page.take_kvs() {
                from = kv.key().to_vec();
                let name = kv.key_str().unwrap_or_default().trim_start_matches(&prefix).to_owned();
                let value = serde_json::from_slice(kv.value()).ok();
                let revision = kv.mod_revision();
                all.push((name.clone(), value.map(|value| Entry { name, value, revision })));
            }
            if !more {
                return Ok(all);
            }
            from.push(0);
        }
    }

    /// Returns one object. Invalid JSON counts as an object without labels: not ours.
    async fn get(&self, plural: &str, name: &str) -> Result<Option<Entry>, Error> {
        let key = key(plural, name);
        let found = self.connection.call(|client| {
            let key = key.clone();
            async move { reader(&client).get(key, None).await }
        });
        let found = found.await?;
        Ok(found.kvs().first().map(|kv| Entry {
            name: name.into(),
            value: serde_json::from_slice(kv.value()).unwrap_or_default(),
            revision: kv.mod_revision(),
        }))
    }

    async fn ensure_writable(&self) -> Result<(), Error> {
        let information = self.get(INFORMATION, DEFAULT).await?;
        let locked = information.map(|i| read("ClusterInformation", DEFAULT, i.information()));
        if locked.transpose()?.unwrap_or_default().locked() {
            return Err(Error::Locked);
        }
        Ok(())
    }

    /// Carries out one operation if the key still has a revision; 0 is that of one that is not
    /// there.
    async fn swap(&self, key: String, revision: i64, operation: TxnOp) -> Result<Written, Error> {
        let compare = Compare::mod_revision(key.as_str(), CompareOp::Equal, revision);
        let txn = Txn::new().when([compare]).and_then([operation]);
        let done = self.connection.call(|client| {
            let (txn, fence) = (txn.clone(), self.fence.clone());
            async move {
                let mut client = client.kv_client();
                // Until the bytes leave: see the client of the API server.
                fence.guard(client.txn(txn)).await.transpose()
            }
        });
        match done.await? {
            None => Err(Error::NotLeading),
            Some(answer) if answer.succeeded() => Ok(Written::Changed),
            Some(_) => Err(Error::Changed(key)),
        }
    }

    async fn put(&self, plural: &str, found: &Entry, value: &Value) -> Result<Written, Error> {
        let key = key(plural, &found.name);
        let operation = TxnOp::put(key.as_str(), value.to_string(), None);
        self.swap(key, found.revision, operation).await
    }

    async fn create(&self, plural: &str, name: &str, object: Value) -> Result<Written, Error> {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let object = object::born(object, &uid(), &now);
        let entry = Entry { name: name.into(), value: Value::Null, revision: 0 };
        self.put(plural, &entry, &object).await
    }

    pub(super) async fn apply_peer(&self, wanted: &WantedPeer<'_>) -> Result<Written, Error> {
        self.ensure_writable().await?;
        let Some(found) = self.get(PEERS, wanted.name).await? else {
            return self.create(PEERS, wanted.name, wanted.object(API_VERSION)).await;
        };
        let Some(patch) = wanted.patch(&found.value)? else { return Ok(Written::Unchanged) };
        let mut value = found.value.clone();
        object::merge(&mut value, patch);
        self.put(PEERS, &found, &value).await
    }

    pub(super) async fn delete_peer(&self, name: &str, version: &str) -> Result<Written, Error> {
        self.ensure_writable().await?;
        let Some(found) = self.get(PEERS, name).await? else { return Ok(Written::Unchanged) };
        peer::ensure_ours(peer::KIND, name, &found.value)?;
        if found.revision.to_string() != version {
            return Err(Error::Changed(format!("BGPPeer {name}")));
        }
        let key = key(PEERS, name);
        let operation = TxnOp::delete(key.as_str(), None);
        self.swap(key, found.revision, operation).await
    }

    pub(super) async fn set_mesh(&self, on: bool) -> Result<Written, Error> {
        self.ensure_writable().await?;
        let spec = json!({"nodeToNodeMeshEnabled": on});
        let Some(found) = self.get(CONFIGURATIONS, DEFAULT).await? else {
            // Without a configuration, the mesh is on.
            if on {
                return Ok(Written::Unchanged);
            }
            let object = json!({
                "apiVersion": API_VERSION, "kind": "BGPConfiguration",
                "metadata": {"name": DEFAULT}, "spec": spec,
            });
            return self.create(CONFIGURATIONS, DEFAULT, object).await;
        };
        if read("BGPConfiguration", DEFAULT, found.configuration())?.mesh() == on {
            return Ok(Written::Unchanged);
        }
        let mut value = found.value.clone();
        object::merge(&mut value, json!({"spec": spec}));
        self.put(CONFIGURATIONS, &found, &value).await
    }

    /// Labels and cluster id change together: a node with the id but without the label would be in
    /// no mesh, and have no peers. calico-kube-controllers also copies labels, later, and finds
    /// these.
    pub(super) async fn mark(
        &self,
        node: &str,
        labels: &Value,
        id: IdChange,
    ) -> Result<Written, Error> {
        self.ensure_writable().await?;
        let Some(found) = self.find_node(node).await? else {
            return match id {
                IdChange::Set(_) => Err(Error::NoSpeaker(format!(
                    "node {node} cannot be a reflector: no Node of Calico's has an orchRef to it"
                ))),
                IdChange::Keep | IdChange::Remove => Ok(Written::Unchanged),
            };
        };
        match found.marked(labels, id)? {
            Some(value) => self.put(NODES, &found, &value).await,
            None => Ok(Written::Unchanged),
        }
    }
}

impl Etcd {
    /// Calico's Node of a node of Kubernetes. Its name is the one that was read last, or mostly the
    /// same; looking at all Nodes is for those that are neither.
    async fn find_node(&self, node: &str) -> Result<Option<Entry>, Error> {
        let known = self.names.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned();
        let name = known.as_deref().unwrap_or(node);
        let found = self.get(NODES, name).await?;
        let found = found.filter(|entry| entry.is_kubernetes_node(node));
        if found.is_some() {
            return Ok(found);
        }
        let all = self.list(NODES, &mut 0).await?;
        let mut entries = all.into_iter().filter_map(|(_, entry)| entry);
        Ok(entries.find(|entry| entry.is_kubernetes_node(node)))
    }
}

/// Equal texts are kept once: 5,000 nodes have mostly the same labels.
#[derive(Default)]
struct Interned(HashSet<Arc<str>>);

impl Interned {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }

    fn texts(&mut self, labels: &NodeLabels) -> Texts {
        labels.iter().map(|(key, value)| (self.text(key), self.text(value))).collect()
    }
}

/// The result of a list: names, and objects as far as they are JSON.
type Listed = Vec<(String, Option<Entry>)>;

fn read<T>(kind: &str, name: &str, read: Result<T, serde_json::Error>) -> Result<T, Error> {
    read.map_err(|error| Error::Unreadable(format!("{kind} {name} in etcd: {error}")))
}

/// The object of a kind that is called `default`.
fn default<T: Default>(
    all: &Listed,
    kind: &str,
    parse: impl Fn(&Entry) -> Result<T, serde_json::Error>,
) -> Result<T, Error> {
    let Some((_, entry)) = all.iter().find(|(name, _)| name == DEFAULT) else {
        return Ok(T::default());
    };
    let Some(entry) = entry else {
        return Err(Error::Unreadable(format!("{kind} {DEFAULT} in etcd is no JSON")));
    };
    read(kind, DEFAULT, parse(entry))
}

/// Returns a random UUID (version 4): Calico's client requires one for each object.
fn uid() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let (a, b) = (random(), random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | ((b >> 48) & 0x3fff),
        b & 0xffff_ffff_ffff
    )
}

/// The pause after a failed watch.
const PAUSE: Duration = Duration::from_secs(5);

/// The time for which changes are collected into one.
const COLLECT: Duration = Duration::from_millis(200);

/// The watched kinds: peers, configuration, and the Nodes, which hold the cluster ids.
const WATCHED: [&str; 3] = [PEERS, CONFIGURATIONS, NODES];

/// An item whenever something may have changed.
pub(super) fn changes(store: Arc<Etcd>) -> BoxStream<'static, ()> {
    stream::unfold((Watched(store), None), |(store, mut watch)| async move {
        next(&store.0, &mut watch).await;
        Some(((), (store, watch)))
    })
    .boxed()
}

/// Marks the store as unwatched when a watch is dropped.
struct Watched(Arc<Etcd>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.cache.watching(false);
    }
}

/// Returns at the next change, and when a watch is established (again).
async fn next(store: &Etcd, watch: &mut Option<WatchStream>) {
    loop {
        let Some(events) = watch else {
            match store.connection.call(begin).await {
                Ok(begun) => {
                    *watch = Some(begun);
                    store.cache.bump();
                    store.cache.watching(true);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "Calico's objects are not watched");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
        };
        if let Err(error) = until_change(events).await {
            tracing::warn!(error, "watch of Calico's objects failed, trying again");
            *watch = None;
            store.cache.watching(false);
            store.connection.close().await;
            continue;
        }
        let end = tokio::time::sleep(COLLECT);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                // An error shows itself again at the next event.
                changed = until_change(events) => if changed.is_err() { break },
            }
        }
        store.cache.bump();
        return;
    }
}

/// Watches everything; returns when all watches are open.
async fn begin(client: Client) -> Result<WatchStream, etcd_client::Error> {
    let options = || Some(WatchOptions::new().with_prefix());
    let mut stream = client.watch_client().watch(prefix(WATCHED[0]), options()).await?;
    for plural in &WATCHED[1..] {
        stream.watch(prefix(plural), options()).await?;
    }
    let mut standing = 0;
    while standing < WATCHED.len() {
        match stream.message().await? {
            Some(message) if message.canceled() => {
                return Err(etcd_client::Error::WatchError(message.cancel_reason().into()));
            }
            Some(message) => standing += usize::from(message.created()),
            None => return Err(etcd_client::Error::WatchError("etcd ended the watch".into())),
        }
    }
    Ok(stream)
}

async fn until_change(events: &mut WatchStream) -> Result<(), String> {
    loop {
        match events.message().await {
            Ok(Some(message)) if message.canceled() => {
                return Err(message.cancel_reason().to_owned());
            }
            Ok(Some(message)) if message.events().is_empty() => {}
            Ok(Some(_)) => return Ok(()),
            Ok(None) => return Err("etcd ended it".into()),
            Err(error) => return Err(explain(&error).0),
        }
    }
}

#[cfg(test)]
mod tests;
