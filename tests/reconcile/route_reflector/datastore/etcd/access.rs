//! Endpoints and credentials: those that let the operator in, and clear errors for the others.
use std::time::{Duration, Instant};

use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, api::DeleteParams};
use serde_json::json;
use tokio::net::TcpListener;
use traffic_operator::{
    api::route_reflector_set,
    infra::lease::Fence,
    manifests::NAMESPACE,
    route_reflector::datastore::{Datastore, Written},
};

use super::{super::CLIENTS, SECRET, Stage};
use crate::{
    bench::{eventually, run},
    route_reflector::documented::{documented, shell},
};

/// Limit of every call: the deadline, and a margin for a busy machine.
const DEADLINE: Duration = Duration::from_secs(12);

/// Reads, and returns the text of the error, which must come within the deadline.
async fn refused(store: &Datastore) -> String {
    let start = Instant::now();
    let error = store.read().await.expect_err("it cannot be read");
    assert!(start.elapsed() < DEADLINE, "{:?}: {error}", start.elapsed());
    error.to_string()
}

#[test]
fn an_etcd_that_cannot_be_used_is_a_clear_error_within_the_deadline() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        let good = stage.etcd.endpoint.as_str();
        let (ca, certificate, key) = (&*stage.etcd.ca, &*stage.etcd.certificate, &*stage.etcd.key);
        let contains = |text: &str, parts: &[&str]| {
            for part in parts {
                assert!(text.contains(part), "{part:?} is not in: {text}");
            }
            assert!(!text.contains("PRIVATE") && !text.contains("BEGIN"), "{text}");
        };

        stage
            .secret(&[
                ("etcd-ca", &stage.etcd.stranger),
                ("etcd-cert", certificate),
                ("etcd-key", key),
            ])
            .await;
        contains(&refused(&stage.store().await).await, &[good, "invalid peer certificate"]);
        stage.secret(&[("etcd-ca", ca)]).await;
        contains(&refused(&stage.store().await).await, &[good, "no etcd-cert and etcd-key"]);
        stage.secret(&[("etcd-ca", ca), ("etcd-cert", certificate)]).await;
        contains(&refused(&stage.store().await).await, &[SECRET, "etcd-cert but no etcd-key"]);
        stage.secret(&[("etcd-ca", "no PEM"), ("etcd-cert", "x"), ("etcd-key", "y")]).await;
        refused(&stage.store().await).await;
        stage.secret(&[("etcd-cert", certificate), ("etcd-key", key)]).await;
        contains(
            &refused(&stage.store().await).await,
            &["spec.datastore.etcd.secretRef", "etcd-ca"],
        );
        let none = stage.store_of(&[good], None, &Fence::open()).await;
        contains(&refused(&none).await, &["spec.datastore.etcd.secretRef", "etcd-ca"]);
        // No password is sent in plain text, nor to a host that the object's author names.
        let user = ("username", "calico");
        let plain = ("endpoints", "http://127.0.0.1:1");
        stage.secret(&[plain, user, ("password", "PRIVATE")]).await;
        let store = stage.store_of(&["http://127.0.0.1:1"], Some(SECRET), &Fence::open()).await;
        contains(&refused(&store).await, &["http://127.0.0.1:1", "only sent over https"]);
        let both: route_reflector_set::Datastore = serde_json::from_value(
            json!({"type": "etcd", "etcd": {"endpoints": [good], "secretRef": {"name": SECRET}}}),
        )
        .expect("spec");
        let client = bench.operators_code().await;
        let both = Datastore::new(client, NAMESPACE, &both, &Fence::open()).err().expect("refused");
        contains(&both.to_string(), &["spec.datastore.etcd.endpoints", "belong in the Secret"]);
        let other = stage.store_of(&[good], Some("other"), &Fence::open()).await;
        contains(&refused(&other).await, &["get the Secret"]);

        stage.secret(&[("etcd-ca", ca), ("etcd-cert", certificate), ("etcd-key", key)]).await;
        let dead = format!("https://127.0.0.1:{}", unused_port().await);
        let store = stage.store_of(&[&dead], Some(SECRET), &Fence::open()).await;
        contains(&refused(&store).await, &[&dead, "refused"]);
        // Accepts the connection and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("listener");
        let mute = format!("https://{}", silent.local_addr().expect("address"));
        let store = stage.store_of(&[&mute], Some(SECRET), &Fence::open()).await;
        contains(&refused(&store).await, &[&mute, "no answer within"]);
        // One good member is enough.
        let store = stage.store_of(&[&dead, &mute, good], Some(SECRET), &Fence::open()).await;
        store.read().await.expect("the good member");
        store.read().await.expect("and again");

        let store = stage.store().await;
        store.read().await.expect("read");
        stage.etcd.pause().expect("pause");
        contains(&refused(&store).await, &[good, "no answer within"]);
        stage.etcd.resume().expect("resume");
        store.read().await.expect("it recovers");
        stage.etcd.kill().expect("kill");
        contains(&refused(&store).await, &[good]);
        stage.etcd.restart().expect("restart");
        let mut tries = 0;
        while let Err(error) = store.read().await {
            tries += 1;
            assert!(tries < 300, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

async fn unused_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
    listener.local_addr().expect("address").port()
}

#[test]
fn a_user_with_a_password_may_do_what_etcd_lets_him() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        let mut raw = stage.raw.clone();
        raw.user_add("root", "root", None).await.expect("root");
        raw.user_grant_role("root", "root").await.expect("root");
        raw.role_add("calico").await.expect("role");
        let all = etcd_client::Permission::read_write("/calico/").with_prefix();
        raw.role_grant_permission("calico", all).await.expect("permission");
        raw.user_add("calico-user", "right", None).await.expect("user");
        raw.user_grant_role("calico-user", "calico").await.expect("grant");
        raw.user_add("stranger", "right", None).await.expect("user");
        raw.auth_enable().await.expect("enable");
        let etcd = &stage.etcd;
        let with = async |user: &str, password: &str| {
            stage
                .secret(&[
                    ("etcd-ca", &etcd.ca),
                    ("etcd-cert", &etcd.certificate),
                    ("etcd-key", &etcd.key),
                    ("username", user),
                    ("password", password),
                ])
                .await;
            stage.store().await
        };
        let store = with("calico-user", "right").await;
        assert_eq!(store.apply_peer(&CLIENTS).await.expect("apply"), Written::Changed);
        let error = refused(&with("calico-user", "wrong").await).await;
        assert!(error.contains("authentication failed") && !error.contains("wrong"), "{error}");
        let error = refused(&with("stranger", "right").await).await;
        assert!(error.contains("permission denied"), "{error}");
    });
}

/// The Secret, and the right to read it, created by the commands of the documentation.
#[test]
#[ignore = "needs kubectl: `make verify` runs it"]
fn the_documented_commands_let_the_operator_read_endpoints_and_credentials() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        let etcd = &stage.etcd;
        let dir = std::env::temp_dir().join(format!("calico-etcd-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("directory");
        for (name, text) in
            [("ca.pem", &etcd.ca), ("cert.pem", &etcd.certificate), ("key.pem", &etcd.key)]
        {
            std::fs::write(dir.join(name), text).expect("file");
        }
        let client = bench.client.clone();
        let gone = DeleteParams::default();
        // Objects of an earlier run.
        let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
        let _ = secrets.delete("calico-etcd", &gone).await;
        let roles = Api::<Role>::namespaced(client.clone(), NAMESPACE);
        let _ = roles.delete("traffic-operator-etcd", &gone).await;
        let bindings = Api::<RoleBinding>::namespaced(client, NAMESPACE);
        let _ = bindings.delete("traffic-operator-etcd", &gone).await;
        let store = stage.store_of(&[], Some("calico-etcd"), &Fence::open()).await;
        let error = refused(&store).await;
        assert!(error.contains("get the Secret"), "{error}");

        let commands = documented("create secret generic calico-etcd");
        let example = "https://10.0.0.1:2379,https://10.0.0.2:2379";
        assert!(commands.contains(example), "{commands}");
        shell(&bench, &commands.replace(example, &etcd.endpoint), &dir).await;
        std::fs::remove_dir_all(&dir).expect("directory");
        // A right takes a moment to be in force.
        let read = eventually("the Secret", async || store.read().await.ok()).await;
        assert_eq!(read.flavor, "etcd");
    });
}
