//! Calico's objects in an etcd of its own, with TLS and client certificates.
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, Identity, TlsOptions, Txn,
    TxnOp,
};
use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use lab::etcd::Etcd;
use serde_json::{Value, json};
use traffic_operator::{
    api::route_reflector_set,
    infra::lease::Fence,
    manifests::{NAME, NAMESPACE},
    route_reflector::{
        datastore::{Datastore, Error, IdChange, WantedPeer, Written},
        families::Addresses,
    },
};

use super::CLIENTS;
use crate::bench::{Bench, run};

mod access;
mod watching;
mod whole;

const SECRET: &str = "calico-etcd-secrets";
const ROOT: &str = "/calico/resources/v3/projectcalico.org";

struct Stage<'a> {
    bench: &'a Bench,
    etcd: Etcd,
    raw: Client,
}

impl<'a> Stage<'a> {
    async fn new(bench: &'a Bench) -> Self {
        let etcd = Etcd::start().await.expect("etcd");
        let raw = connect(&etcd).await;
        Self::of(bench, etcd, raw).await
    }

    async fn of(bench: &'a Bench, etcd: Etcd, raw: Client) -> Self {
        let stage = Self { bench, etcd, raw };
        let (ca, certificate, key) = (&stage.etcd.ca, &stage.etcd.certificate, &stage.etcd.key);
        stage.secret(&[("etcd-ca", ca), ("etcd-cert", certificate), ("etcd-key", key)]).await;
        stage
    }

    /// Writes the Secret, and the right to read it that a user grants to the operator.
    async fn secret(&self, entries: &[(&str, &str)]) {
        let client = || self.bench.client.clone();
        let mut data = BTreeMap::from([("endpoints", &*self.etcd.endpoint)]);
        data.extend(entries.iter().copied());
        let metadata = json!({"name": SECRET, "namespace": NAMESPACE});
        let secrets = Api::<Secret>::namespaced(client(), NAMESPACE);
        let _ = secrets.delete(SECRET, &DeleteParams::default()).await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data,
        });
        let apply = PatchParams::apply("test").force();
        secrets.patch(SECRET, &apply, &Patch::Apply(secret)).await.expect("Secret");
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{
                "apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET],
                "verbs": ["get"],
            }],
        });
        let roles = Api::<Role>::namespaced(client(), NAMESPACE);
        roles.patch(SECRET, &apply, &Patch::Apply(role)).await.expect("Role");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": SECRET},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        });
        let bindings = Api::<RoleBinding>::namespaced(client(), NAMESPACE);
        bindings.patch(SECRET, &apply, &Patch::Apply(binding)).await.expect("RoleBinding");
    }

    async fn store(&self) -> Datastore {
        self.store_of(&[&self.etcd.endpoint], Some(SECRET), &Fence::open()).await
    }

    /// With these members, which the Secret names if there is one.
    async fn store_of(&self, members: &[&str], secret: Option<&str>, fence: &Fence) -> Datastore {
        let etcd = match secret {
            Some(secret) => json!({"secretRef": {"name": secret}}),
            None => json!({"endpoints": members}),
        };
        if secret == Some(SECRET) {
            let secrets = Api::<Secret>::namespaced(self.bench.client.clone(), NAMESPACE);
            let patch = json!({"stringData": {"endpoints": members.join("\n")}});
            let params = PatchParams::default();
            secrets.patch(SECRET, &params, &Patch::Merge(patch)).await.expect("patch Secret");
        }
        let spec = json!({"type": "etcd", "etcd": etcd});
        let spec: route_reflector_set::Datastore = serde_json::from_value(spec).expect("spec");
        Datastore::new(self.bench.operators_code().await, NAMESPACE, &spec, fence).expect("store")
    }

    async fn put(&self, at: &str, value: &str) {
        self.raw.kv_client().put(format!("{ROOT}/{at}"), value, None).await.expect("put");
    }

    async fn get(&self, at: &str) -> Option<Value> {
        let found = self.raw.kv_client().get(format!("{ROOT}/{at}"), None).await.expect("get");
        found.kvs().first().map(|kv| serde_json::from_slice(kv.value()).expect("JSON"))
    }

    /// Every key, with its bytes and revision.
    async fn all(&self) -> BTreeMap<String, (String, i64)> {
        let options = Some(GetOptions::new().with_prefix());
        let found = self.raw.kv_client().get("/", options).await.expect("get");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entry =
            |kv: &etcd_client::KeyValue| (text(kv.key()), (text(kv.value()), kv.mod_revision()));
        found.kvs().iter().map(entry).collect()
    }
}

async fn connect(etcd: &Etcd) -> Client {
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(&etcd.ca))
        .identity(Identity::from_pem(&etcd.certificate, &etcd.key));
    let options = ConnectOptions::new().with_tls(tls);
    Client::connect([&etcd.endpoint], Some(options)).await.expect("client")
}

/// A value as Calico writes it, with a line end and a field of a later version.
const TOR: &str = r#"{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"tor","uid":"u","creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"node":"calico-1","peerIP":"10.0.0.9","asNumber":65001,"z":{"a":1.50}}}
"#;
const THEIRS: &str = r#"{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"rrs-to-rrs"},"spec":{"nodeSelector":"has(rr)","peerSelector":"has(rr)"}}"#;

fn node(name: &str, kubernetes: &str, bgp: &Value) -> String {
    let refs = json!([{"nodeName": kubernetes, "orchestrator": "k8s"}]);
    json!({
        "kind": "Node", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "uid": "u", "labels": {"a": "b"}},
        "spec": {"bgp": bgp, "orchRefs": refs, "wireguard": {"new": [1]}},
    })
    .to_string()
}

#[test]
fn etcd_keys_that_are_not_ours_stay_byte_by_byte() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        stage.put("bgppeers/tor", TOR).await;
        stage.put("bgppeers/rrs-to-rrs", THEIRS).await;
        stage.put("bgppeers/broken", "{").await;
        // Its name begins like ours, and it is of another kind.
        stage.put("bgppeersx/peer", "x").await;
        let bgp = json!({"ipv4Address": "10.0.0.1/24", "routeReflectorClusterID": "224.0.0.9"});
        stage.put("nodes/calico-1", &node("calico-1", "node-1", &bgp)).await;
        let before = stage.all().await;

        let store = stage.store().await;
        let read = store.read().await.expect("read");
        assert_eq!((read.flavor, read.mesh, read.as_number), ("etcd", true, 64_512));
        let unreadable: Vec<_> = read.unreadable.iter().map(ToString::to_string).collect();
        assert_eq!(unreadable, ["BGPPeer broken (not JSON)"]);
        let names: Vec<_> = read.peers.iter().map(|p| (&*p.name, p.ours)).collect();
        assert_eq!(names, [("rrs-to-rrs", false), ("tor", false)]);
        assert_eq!(read.peers[1].node.as_deref(), Some("node-1"), "its name in Kubernetes");
        let ids = [("node-1".into(), Ipv4Addr::new(224, 0, 0, 9))];
        assert_eq!(read.cluster_ids, BTreeMap::from(ids));
        let addresses = Addresses::parse(Some("10.0.0.1"), None);
        assert_eq!(read.speakers, Some(BTreeMap::from([("node-1".into(), (addresses, None))])));

        for name in ["rrs-to-rrs", "broken"] {
            let refused = store.apply_peer(&WantedPeer { name, ..CLIENTS }).await;
            assert!(matches!(refused, Err(Error::Taken { .. })), "{refused:?}");
            let (_, revision) = before[&format!("{ROOT}/bgppeers/{name}")];
            let refused = store.delete_peer(name, &revision.to_string()).await;
            assert!(matches!(refused, Err(Error::Taken { .. })), "{refused:?}");
        }

        assert_eq!(store.apply_peer(&CLIENTS).await.expect("create"), Written::Changed);
        assert_eq!(store.apply_peer(&CLIENTS).await.expect("same"), Written::Unchanged);
        let made = stage.get("bgppeers/peer-to-rrs-1").await.expect("ours");
        assert_eq!(
            (&made["kind"], &made["apiVersion"]),
            (&json!("BGPPeer"), &json!("projectcalico.org/v3"))
        );
        // Calico's client refuses to edit objects that have neither.
        assert!(
            made["metadata"]["uid"].is_string()
                && made["metadata"]["creationTimestamp"].is_string()
        );
        let ours = store.read().await.expect("read").peers[0].clone();
        assert!(ours.ours && ours.set.as_deref() == Some("main"), "{ours:?}");
        let stale = store.delete_peer(CLIENTS.name, "1").await;
        assert!(matches!(stale, Err(Error::Changed(_))), "{stale:?}");
        assert_eq!(
            store.delete_peer(CLIENTS.name, &ours.version).await.expect("ours"),
            Written::Changed
        );
        assert_eq!(stage.all().await, before);
    });
}

#[test]
fn a_cluster_id_is_written_to_calicos_own_node() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        let bgp = json!({"ipv4Address": "10.0.0.1/24", "asNumber": 64512});
        stage.put("nodes/calico-1", &node("calico-1", "node-1", &bgp)).await;
        // The name of another node in Kubernetes is the name of this one in Calico.
        stage.put("nodes/node-1", &node("node-1", "node-2", &bgp)).await;
        stage.put("nodes/node-3", &node("node-3", "node-3", &Value::Null)).await;
        let before = stage.all().await;
        let store = stage.store().await;
        let (id, none) = (Ipv4Addr::new(224, 0, 0, 1), json!({}));
        let set = IdChange::Set(id);
        assert_eq!(store.mark("node-1", &none, set).await.expect("set"), Written::Changed);
        assert_eq!(store.mark("node-1", &none, set).await.expect("set"), Written::Unchanged);
        let mut now = stage.get("nodes/calico-1").await.expect("Node");
        assert_eq!(now["spec"]["bgp"]["routeReflectorClusterID"], "224.0.0.1");
        assert_eq!(store.read().await.expect("read").cluster_ids["node-1"], id);
        now["spec"]["bgp"].as_object_mut().expect("bgp").remove("routeReflectorClusterID");
        let (text, _) = &before[&format!("{ROOT}/nodes/calico-1")];
        assert_eq!(now, serde_json::from_str::<Value>(text).expect("JSON"), "and nothing else");
        let removed = store.mark("node-1", &none, IdChange::Remove).await.expect("remove");
        assert_eq!(removed, Written::Changed);
        assert_eq!(stage.get("nodes/calico-1").await.expect("Node"), now);

        let labels = json!({"rr": "", "slot": "0", "group": null});
        let all = store.mark("node-1", &labels, set).await.expect("labels and id");
        assert_eq!(all, Written::Changed);
        let read = store.read().await.expect("read");
        let of = &read.labels.as_ref().expect("labels")["node-1"];
        let of: Vec<_> = of.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(of, [("a", "b"), ("rr", ""), ("slot", "0")], "Calico's own labels only");
        let gone = json!({"rr": null, "slot": null});
        store.mark("node-1", &gone, IdChange::Remove).await.expect("remove");
        assert_eq!(stage.get("nodes/calico-1").await.expect("Node"), now);

        for (node, text) in [("node-3", "no spec.bgp"), ("node-9", "no Node of Calico's")] {
            let error = store.mark(node, &none, set).await.expect_err(node);
            assert!(
                matches!(error, Error::NoSpeaker(_)) && error.to_string().contains(text),
                "{error}"
            );
            let nothing = store.mark(node, &none, IdChange::Remove).await.expect("nothing");
            assert_eq!(nothing, Written::Unchanged);
        }
    });
}

#[test]
fn the_mesh_in_etcd_is_one_field_and_a_lock_stops_all_writes() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        let store = stage.store().await;
        assert_eq!(store.set_mesh(true).await.expect("on"), Written::Unchanged);
        assert!(stage.all().await.is_empty());
        assert_eq!(store.set_mesh(false).await.expect("off"), Written::Changed);
        let mut object = stage.get("bgpconfigurations/default").await.expect("configuration");
        assert_eq!(object["spec"], json!({"nodeToNodeMeshEnabled": false}));
        object["spec"]["asNumber"] = json!(65_000);
        object["spec"]["new"] = json!({"a": [1]});
        stage.put("bgpconfigurations/default", &object.to_string()).await;
        assert_eq!(store.set_mesh(true).await.expect("on"), Written::Changed);
        object["spec"]["nodeToNodeMeshEnabled"] = json!(true);
        assert_eq!(stage.get("bgpconfigurations/default").await, Some(object));
        assert_eq!(store.read().await.expect("read").as_number, 65_000);

        let information = r#"{"metadata":{"name":"default"},"spec":{"datastoreReady":false}}"#;
        stage.put("clusterinformations/default", information).await;
        let before = stage.all().await;
        assert!(store.read().await.expect("read").locked);
        for refused in [store.apply_peer(&CLIENTS).await, store.set_mesh(false).await] {
            assert!(matches!(refused, Err(Error::Locked)), "{refused:?}");
        }
        assert_eq!(stage.all().await, before);
    });
}

#[test]
fn nothing_is_lost_when_two_write_the_same_key_and_nothing_is_written_without_the_lease() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        let shut = stage.store_of(&[&stage.etcd.endpoint], Some(SECRET), &Fence::default()).await;
        assert!(matches!(shut.apply_peer(&CLIENTS).await, Err(Error::NotLeading)));
        assert!(stage.all().await.is_empty());

        let store = stage.store().await;
        store.apply_peer(&CLIENTS).await.expect("create");
        // Another client increments a counter in our object, as fast as possible.
        let key = format!("{ROOT}/bgppeers/{}", CLIENTS.name);
        let mut kv = stage.raw.kv_client();
        let count = tokio::spawn(async move {
            let mut done = 0_u64;
            let end = Instant::now() + Duration::from_secs(5);
            while Instant::now() < end {
                let found = kv.get(key.as_str(), None).await.expect("get");
                let found = found.kvs().first().expect("ours");
                let mut value: Value = serde_json::from_slice(found.value()).expect("JSON");
                value["spec"]["count"] = json!(done + 1);
                let revision = found.mod_revision();
                let same = Compare::mod_revision(key.as_str(), CompareOp::Equal, revision);
                let put = TxnOp::put(key.as_str(), value.to_string(), None);
                let txn = Txn::new().when([same]).and_then([put]);
                done += u64::from(kv.txn(txn).await.expect("txn").succeeded());
            }
            done
        });
        let (mut written, mut conflicts) = (0, 0);
        while !count.is_finished() {
            let selector = format!("x == '{}'", written % 2);
            let wanted = WantedPeer { node_selector: &selector, ..CLIENTS };
            match store.apply_peer(&wanted).await {
                Ok(_) => written += 1,
                Err(Error::Changed(_)) => conflicts += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let count = count.await.expect("counter");
        let spec = stage.get("bgppeers/peer-to-rrs-1").await.expect("ours")["spec"].clone();
        assert_eq!(spec["count"], json!(count), "{written} written, {conflicts} conflicts");
        assert!(written + conflicts > 0 && count > 0);
    });
}
