//! Objects that a NetworkProber creates beside its agents: only for authors who may create them
//! there.
use serde_json::json;

use super::{Author, PROBER, kinds, refused, rule};
use crate::bench::{eventually, run};

#[test]
fn who_may_create_no_monitor_has_none_created() {
    run(async |bench| {
        let clerk = Author::with_rules(&bench, "clerk-probers", &[kinds()]).await;
        let command = "set it to false, or grant it with: kubectl create rolebinding \
            'create-monitors:clerk-probers' -n team-a --clusterrole=traffic-operator-create-monitors \
            --user='clerk-probers'";
        let scraped = [
            "spec.monitoring.podMonitor: user 'clerk-probers' has no right to create \
             podmonitors.monitoring.coreos.com in namespace team-a",
            command,
        ];
        let recorded = [
            "spec.monitoring.prometheusRule: user 'clerk-probers' has no right to create \
             prometheusrules.monitoring.coreos.com in namespace team-a",
            command,
        ];
        let (monitor_on, rule_on) = (json!({"podMonitor": true}), json!({"prometheusRule": true}));
        // Both are on by default. Policies take a moment to come into force.
        let asked = json!({"monitoring": null});
        let refusal = async || clerk.try_create(PROBER, asked.clone()).await.err();
        eventually("the policy", refusal).await;
        refused(clerk.try_create(PROBER, json!({"monitoring": monitor_on})).await, &scraped);
        refused(clerk.try_create(PROBER, json!({"monitoring": rule_on})).await, &recorded);
        clerk.create(PROBER, "quiet", json!({})).await.expect("neither");
        let on = json!({"spec": {"monitoring": {"podMonitor": true}}});
        refused(clerk.patch(PROBER, "quiet", on).await, &scraped);

        // Existing settings stay, and unrelated fields may change.
        let create = rule("monitoring.coreos.com", "podmonitors", &["create"]);
        let rules = rule("monitoring.coreos.com", "prometheusrules", &["create"]);
        let all = [kinds(), create.clone(), rules.clone()];
        let maker = Author::with_rules(&bench, "maker-probers", &all).await;
        maker.until_granted(&bench, &create).await;
        maker.until_granted(&bench, &rules).await;
        maker
            .create(PROBER, "web", json!({"monitoring": null}))
            .await
            .expect("the right is enough");
        for (spec, texts) in [
            (json!({"podSelector": {"matchLabels": {"app": "other"}}}), &scraped),
            (json!({"monitoring": {"labels": {"release": "x"}}}), &scraped),
            (json!({"pollingPeriod": "20s"}), &recorded),
        ] {
            refused(clerk.patch(PROBER, "web", json!({"spec": spec})).await, texts);
        }
        for spec in [json!({"probes": ["UDP"]}), json!({"monitoring": {"podMonitor": false}})] {
            let change = json!({"spec": spec});
            clerk.patch(PROBER, "web", change).await.expect("what needs no right");
        }
    });
}

#[test]
fn who_may_create_no_daemon_set_has_none_created() {
    run(async |bench| {
        let clerk = Author::with_rules(&bench, "clerk-daemons", &[kinds()]).await;
        let right = "spec.mode: DaemonSet: user 'clerk-daemons' has no right to create \
            daemonsets.apps in namespace team-a; grant it with: kubectl create rolebinding \
            'create-daemonsets:clerk-daemons' -n team-a \
            --clusterrole=traffic-operator-create-daemonsets --user='clerk-daemons'";
        let everywhere = json!({"mode": "DaemonSet"});
        let refusal = async || clerk.try_create(PROBER, everywhere.clone()).await.err();
        eventually("the policy", refusal).await;
        refused(clerk.try_create(PROBER, everywhere.clone()).await, &[right]);
        clerk.create(PROBER, "sidecars", json!({})).await.expect("sidecars");
        let change = json!({"spec": everywhere});
        refused(clerk.patch(PROBER, "sidecars", change).await, &[right]);

        let create = rule("apps", "daemonsets", &["create"]);
        let maker = Author::with_rules(&bench, "maker-daemons", &[kinds(), create.clone()]).await;
        maker.until_granted(&bench, &create).await;
        maker.create(PROBER, "nodes", everywhere).await.expect("the right is enough");
        // The clerk may not choose which image runs on each node.
        let image = json!({"spec": {"agentImage": "registry.example/other:1"}});
        refused(clerk.patch(PROBER, "nodes", image).await, &[right]);
        let sidecar = json!({"spec": {"mode": "Sidecar"}});
        clerk.patch(PROBER, "nodes", sidecar).await.expect("less");
    });
}

#[test]
fn who_may_create_no_pods_has_none_send_requests() {
    run(async |bench| {
        let clerk = Author::with_rules(&bench, "clerk-targets", &[kinds()]).await;
        let right = "spec.targets: user 'clerk-targets' has no right to create deployments.apps in \
            namespace team-a, whose pods send the requests; grant it with: kubectl create rolebinding \
            'create-deployments:clerk-targets' -n team-a \
            --clusterrole=traffic-operator-create-deployments --user='clerk-targets'";
        let targets = json!({"targets": [{"name": "api", "apiServer": true}]});
        let refusal = async || clerk.try_create(PROBER, targets.clone()).await.err();
        eventually("the policy", refusal).await;
        refused(clerk.try_create(PROBER, targets.clone()).await, &[right]);
        clerk.create(PROBER, "none", json!({"targets": []})).await.expect("no targets");
        let change = json!({"spec": targets});
        refused(clerk.patch(PROBER, "none", change).await, &[right]);

        let create = rule("apps", "deployments", &["create"]);
        let maker = Author::with_rules(&bench, "maker-targets", &[kinds(), create.clone()]).await;
        maker.until_granted(&bench, &create).await;
        maker.create(PROBER, "asks", targets).await.expect("the right is enough");
        // The clerk may not choose which pods ask.
        let others = json!({"spec": {"podSelector": {"matchLabels": {"app": "other"}}}});
        refused(clerk.patch(PROBER, "asks", others).await, &[right]);
        let fewer = json!({"spec": {"targets": []}});
        clerk.patch(PROBER, "asks", fewer).await.expect("less");
    });
}
