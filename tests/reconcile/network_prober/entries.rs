//! The one `MutatingWebhookConfiguration`: each NetworkProber writes its entry into it, and nothing
//! else.
use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use lab::fault::{Fault, Rule};
use serde_json::{Value, json};

use super::{selector, served, with};
use crate::{
    bench::{Bench, eventually, run},
    faults::start,
};

const OBJECT: &str = "traffic-operator";

/// An entry of another owner, for no resource.
fn foreign() -> Value {
    json!({
        "name": "somebody.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Ignore",
        "objectSelector": {"matchLabels": {"no": "pod"}},
    })
}

async fn names(bench: &Bench) -> Vec<String> {
    let object = bench.webhooks().get(OBJECT).await.expect("the object");
    object.webhooks.into_iter().flatten().map(|entry| entry.name).collect()
}

async fn until_names(bench: &Bench, expected: &[&str]) {
    let what = format!("the entries {expected:?}");
    eventually(&what, async || (names(bench).await == expected).then_some(())).await;
}

/// Patches the object as an administrator, by strategic merge: entries are distinguished by name.
async fn edit(bench: &Bench, entry: Value) {
    let patch = Patch::Strategic(json!({"webhooks": [entry]}));
    let api = bench.webhooks();
    api.patch(OBJECT, &PatchParams::default(), &patch).await.expect("edit");
}

/// Runs the real kubectl on the file that `make deploy` applies.
async fn kubectl(bench: &Bench, arguments: &[&str]) {
    let program = tokio::task::spawn_blocking(|| lab::tools::ensure("kubectl"));
    let program = program.await.expect("task").expect("kubectl");
    let status = tokio::process::Command::new(program)
        .args(arguments)
        .args(["-f", "deploy/base/webhook.yaml"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("KUBECONFIG", bench.plane().kubeconfig())
        .status()
        .await
        .expect("kubectl");
    assert!(status.success(), "{arguments:?}");
}

const APPLY: [&str; 3] = ["apply", "--server-side", "--force-conflicts"];

#[test]
fn each_prober_has_one_entry_and_writes_no_other() {
    served(async |bench, _operator| {
        edit(&bench, foreign()).await;
        let since = Timestamp::now();
        bench.prober("one", selector()).await;
        bench.until_condition("one", "Ready", "True", "Serving").await;
        let (foreign, one, two) = (
            "somebody.example.com",
            "one.default.probes.bigmikes.io",
            "two.default.probes.bigmikes.io",
        );
        until_names(&bench, &[foreign, one]).await;
        bench.prober("two", selector()).await;
        bench.until_condition("two", "Ready", "True", "Serving").await;
        until_names(&bench, &[foreign, one, two]).await;
        bench.intercepted("default").await;
        // There is no other object of the kind, and each prober made one write.
        let all = bench.webhooks().list(&ListParams::default()).await.expect("list");
        let all: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
        assert_eq!(all.iter().filter(|name| name.starts_with(OBJECT)).count(), 1, "{all:?}");
        let of_webhooks = async |since: Timestamp| {
            let mut writes = bench.writes_since(since).await;
            writes.retain(|write| write.resource.starts_with("mutatingwebhookconfigurations"));
            writes
        };
        let writes = of_webhooks(since).await;
        assert!(writes.iter().all(|write| write.verb == "patch" && write.name == OBJECT));
        assert_eq!(writes.len(), 2, "{writes:?}");
        // A foreign change to an entry is reverted, and costs the other entry no write.
        let since = Timestamp::now();
        edit(&bench, json!({"name": one, "failurePolicy": "Fail", "timeoutSeconds": 30})).await;
        let back = async || {
            let entry = bench.entry("default", "one").await?;
            (entry["failurePolicy"] == "Ignore" && entry["timeoutSeconds"] == 2).then_some(())
        };
        eventually("the entry to be as it was", back).await;
        edit(&bench, json!({"name": two, "$patch": "delete"})).await;
        eventually("the entry to be back", async || bench.entry("default", "two").await).await;
        let writes = of_webhooks(since).await;
        assert_eq!(writes.len(), 2, "{writes:?}");
        // Each removes its own entry, and its field manager.
        bench.probers("default").delete("one", &DeleteParams::default()).await.expect("delete");
        until_names(&bench, &[foreign, two]).await;
        let object = bench.webhooks().get(OBJECT).await.expect("the object");
        let managers = serde_json::to_string(&object.metadata.managed_fields).expect("JSON");
        assert!(managers.contains(two) && !managers.contains(one), "{managers}");
        bench.probers("default").delete("two", &DeleteParams::default()).await.expect("delete");
        until_names(&bench, &[foreign]).await;
        let entry = bench.webhooks().get(OBJECT).await.expect("the object").webhooks;
        let entry = serde_json::to_value(entry).expect("JSON");
        assert_eq!(entry[0]["clientConfig"], self::foreign()["clientConfig"]);
    });
}

#[test]
fn what_went_while_the_operator_was_away_has_no_entry_afterwards() {
    served(async |bench, operator| {
        edit(&bench, foreign()).await;
        for name in ["deleted", "forced", "stays"] {
            bench.prober(name, selector()).await;
        }
        let entry = |name: &str| format!("{name}.default.probes.bigmikes.io");
        let all = ["deleted", "forced", "stays"].map(entry);
        eventually("three entries", async || {
            let names = names(&bench).await;
            all.iter().all(|name| names.contains(name)).then_some(())
        })
        .await;
        operator.terminate().await;
        let probers = bench.probers("default");
        // One waits for its finalizer, and one has its finalizer removed.
        probers.delete("deleted", &DeleteParams::default()).await.expect("delete");
        let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        probers.patch("forced", &PatchParams::default(), &strip).await.expect("strip");
        probers.delete("forced", &DeleteParams::default()).await.expect("delete");
        assert!(probers.get_opt("deleted").await.expect("get").is_some());
        assert!(probers.get_opt("forced").await.expect("get").is_none());
        let _operator = bench.ready_operator().await;
        until_names(&bench, &["somebody.example.com", &entry("stays")]).await;
        eventually("the object to go", async || {
            probers.get_opt("deleted").await.ok()?.is_none().then_some(())
        })
        .await;
        bench.intercepted("default").await;
    });
}

#[test]
#[ignore = "needs kubectl: `make verify` runs it"]
fn deploying_again_takes_no_entry_away() {
    served(async |bench, _operator| {
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        bench.until_condition("np", "Ready", "True", "Serving").await;
        let version = async || {
            let object = bench.webhooks().get(OBJECT).await.expect("the object");
            object.metadata.generation
        };
        let (before, entry) = (version().await, bench.entry("default", "np").await);
        assert!(entry.is_some());
        // As `make deploy` does, as other tools do, and once more.
        for arguments in [&APPLY[..], &["apply"], &APPLY] {
            kubectl(&bench, arguments).await;
            assert_eq!(bench.entry("default", "np").await, entry, "{arguments:?}");
            assert_eq!(version().await, before, "{arguments:?}: it was written again");
        }
        // A replacement of the object removes all entries, and the operator restores them.
        kubectl(&bench, &["replace"]).await;
        eventually("the entry to be back", async || bench.entry("default", "np").await).await;
        bench.intercepted("default").await;
    });
}

#[test]
#[ignore = "needs kubectl: `make verify` runs it"]
fn without_the_object_all_else_goes_on_and_the_status_says_how_to_bring_it_back() {
    served(async |bench, _operator| {
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        bench.pod("default", "a", json!({})).await;
        bench.webhooks().delete(OBJECT, &DeleteParams::default()).await.expect("delete");
        let text = bench.until_condition("np", "Ready", "False", "WebhookMissing").await;
        assert!(text.contains("kubectl apply --server-side -f deploy/base/webhook.yaml"), "{text}");
        // Existing agents are counted and keep their certificates.
        bench.runs("default", "a", "10.1.0.1").await;
        bench.until_prober("np", &[("/injected", json!(1)), ("/pods", json!(["a"]))]).await;
        bench.maps("default").delete("np", &DeleteParams::default()).await.expect("delete");
        eventually("its ConfigMap", async || bench.maps("default").get_opt("np").await.ok()?).await;
        // One that is deleted now waits for nothing.
        bench.prober("goes", json!({"podSelector": {"matchLabels": {"app": "other"}}})).await;
        bench.until_condition("goes", "Ready", "False", "WebhookMissing").await;
        bench.probers("default").delete("goes", &DeleteParams::default()).await.expect("delete");
        eventually("the object to go", async || {
            bench.probers("default").get_opt("goes").await.ok()?.is_none().then_some(())
        })
        .await;
        assert!(bench.webhooks().get_opt(OBJECT).await.expect("get").is_none());
        kubectl(&bench, &APPLY).await;
        bench.until_condition("np", "Ready", "True", "Serving").await;
        bench.intercepted("default").await;
    });
}

#[test]
fn cleanup_removes_the_webhook_even_if_a_config_map_stays() {
    run(async |bench| {
        let other = "cleanup-other";
        let consent = json!({"annotations": {"probes.bigmikes.io/allow": "default/np"}});
        bench.namespace(other, with(json!({"labels": {"probed": "yes"}}), &consent)).await;
        let proxy = bench.proxy().await;
        let operator = start(&bench, &proxy, "15s", "operator-1");
        operator.ready().await;
        let spec =
            with(selector(), &json!({"namespaceSelector": {"matchLabels": {"probed": "yes"}}}));
        bench.prober("np", spec).await;
        until_names(&bench, &["np.default.probes.bigmikes.io"]).await;
        let map = async || bench.maps(other).get_opt("np").await.ok().flatten();
        eventually("the ConfigMap", map).await;
        let refuse = Rule::new(Fault::Refuse(403)).verbs(&["delete"]).resource("configmaps");
        proxy.set([refuse.namespace(other)]);
        bench.probers("default").delete("np", &DeleteParams::default()).await.expect("delete");
        until_names(&bench, &[]).await;
        assert!(map().await.is_some(), "its deletion was refused");
        assert!(bench.probers("default").get_opt("np").await.expect("get").is_some());
        // The rest follows as soon as it can.
        proxy.clear();
        let gone = async || {
            let there = bench.probers("default").get_opt("np").await.ok()?;
            (there.is_none() && map().await.is_none()).then_some(())
        };
        eventually("the end of the NetworkProber", gone).await;
        // Other tests count the namespaces that consent.
        bench.namespace(other, json!({})).await;
    });
}
