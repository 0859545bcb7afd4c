//! A leader is stopped while one of its writes is on its way. Another one leads and decides
//! otherwise; then the write arrives, and then the process wakes. Neither may do harm.
use std::time::Duration;

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Api, api::DeleteParams};
use lab::fault::{Fault, Proxy, Rule};
use serde_json::{Value, json};
use traffic_operator::manifests;

use super::start;
use crate::{
    bench::{Bench, Operator, eventually, run},
    prometheus::Sample,
    route_reflector,
    swarm::{self, sample, streams},
    traffic_watch::judging::{KEY, three_nodes},
};

/// The sample of the original prober, whose lists are a file.
const PROBER: &str = include_str!("../../../deploy/samples/networkprober-original.yaml");

/// The lease of both replicas.
const LEASE: &str = "6s";

async fn until_holder(bench: &Bench, identity: &str) {
    let leases = Api::<Lease>::namespaced(bench.client.clone(), manifests::NAMESPACE);
    let held = async || {
        let lease = leases.get_opt(manifests::NAME).await.ok()??;
        (lease.spec?.holder_identity.as_deref() == Some(identity)).then_some(())
    };
    eventually(&format!("{identity} to lead"), held).await;
}

/// Waits for the end of a process that lost its lease.
async fn ends(operator: &mut Operator) -> Option<i32> {
    let ended = async || operator.child.try_wait().expect("wait");
    eventually("the operator to end", ended).await.code()
}

/// A leader behind a proxy.
struct Late {
    operator: Operator,
    proxy: Proxy,
}

impl Late {
    async fn start(bench: &Bench) -> Self {
        let proxy = bench.proxy().await;
        let operator = start(bench, &proxy, LEASE, "first");
        operator.ready().await;
        until_holder(bench, "first").await;
        Self { operator, proxy }
    }

    /// Sends a patch of this object, after this many others, on its way for this long.
    fn hold(&self, resource: &str, name: &str, others: usize, seconds: u64) {
        let way = Duration::from_secs(seconds);
        let rule = Rule::new(Fault::Delay(way)).verbs(&["patch"]).resource(resource);
        self.proxy.set([rule.name(name).skip(others).times(1)]);
    }

    /// Waits until the write is on its way, and stops the process: it cannot give it up any more.
    async fn stops(&self) {
        let begun = async || (self.proxy.faults() > 0).then_some(());
        eventually("the write to be on its way", begun).await;
        self.operator.signal("STOP");
    }

    /// Waits until the write arrives; returns the code of its answer.
    async fn arrives(&self) -> u16 {
        let answered = async || {
            let requests = self.proxy.requests();
            requests.iter().find(|r| r.fault.is_some() && r.code != 0).map(|r| r.code)
        };
        eventually("the late write to arrive", answered).await
    }

    /// Wakes the process; asserts that it ends, and that the only later writes are those of its
    /// successor.
    async fn wakes(mut self) {
        let before = self.proxy.requests().len();
        self.operator.signal("CONT");
        assert_eq!(ends(&mut self.operator).await, Some(1));
        let requests = self.proxy.requests();
        let later = requests[before..].iter().filter(|r| r.call.is_write());
        let later: Vec<_> = later.filter(|r| r.call.resource != "leases").collect();
        assert!(later.is_empty(), "{later:?}");
    }
}

async fn follower(bench: &Bench) -> Operator {
    let second = bench.operator_with("second", LEASE);
    second.ready().await;
    second
}

#[test]
fn a_label_that_arrives_after_its_writer_was_stopped_is_refused() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let first = Late::start(&bench).await;
        bench.until_label("node-2", KEY, Some("true")).await;
        let second = follower(&bench).await;
        first.hold("nodes/", "node-2", 0, 50);
        bench.prometheus.set("node-2", Sample::percent("1"));
        first.stops().await;
        // The other one decides the same, and then the opposite.
        bench.until_label("node-2", KEY, Some("false")).await;
        bench.prometheus.set("node-2", Sample::percent("95"));
        bench.until_label("node-2", KEY, Some("true")).await;
        let since = Timestamp::now();
        assert_eq!(first.arrives().await, 409);
        first.wakes().await;
        bench.judgments(3).await;
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        let writes = bench.writes_since(since).await;
        let made = |w: &&lab::AuditEvent| w.resource == "nodes" && w.code == 200;
        assert_eq!(writes.iter().filter(made).count(), 0, "{writes:?}");
        assert_eq!(second.terminate().await, Some(0));
    });
}

/// The second file of a handover gives streams to their new workers.
#[test]
fn a_file_that_arrives_in_mid_handover_after_its_writer_was_stopped_is_refused() {
    run(async |bench| {
        let stage = swarm::Stage::new(bench).await;
        let first = Late::start(&stage.bench).await;
        stage.stateful_set("late", 2, json!({})).await;
        let spec = json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}});
        stage.swarm("late", spec).await;
        let before = stage.settled("late", 2, &sample()).await;
        let second = follower(&stage.bench).await;
        first.hold("configmaps", "late-config", 1, 60);
        stage.scale("late", 3).await;
        first.stops().await;
        // The other one ends this handover and makes another one.
        let there = stage.settled("late", 3, &sample()).await;
        assert!(there.version > before.version);
        stage.scale("late", 2).await;
        let back = stage.settled("late", 2, &sample()).await;
        assert!(back.version > there.version);
        assert_eq!(first.arrives().await, 409);
        assert_eq!(stage.file("late").await.expect("a file").version, back.version);
        first.wakes().await;
        // This also asserts that no stream ever ran twice.
        stage.settled("late", 2, &sample()).await;
        assert_eq!(second.terminate().await, Some(0));
    });
}

#[test]
fn a_number_of_workers_that_arrives_after_its_writer_was_stopped_is_refused() {
    run(async |bench| {
        let stage = swarm::Stage::new(bench).await;
        let first = Late::start(&stage.bench).await;
        let second = follower(&stage.bench).await;
        stage.stateful_set("late", 1, json!({})).await;
        first.hold("statefulsets/scale", "late", 0, 60);
        let spec = json!({
            "jobs": streams(4), "refresh": {"strategy": "HotReload"},
            "autoscale": {"maxWeightPerWorker": 2, "min": 1, "max": 3, "cooldown": "2s"},
        });
        stage.swarm("late", spec).await;
        first.stops().await;
        // The other one needs three, and not two.
        stage.change("late", json!({"jobs": streams(6)})).await;
        stage.settled("late", 3, &streams(6)).await;
        assert_eq!(first.arrives().await, 422);
        first.wakes().await;
        let set = stage.sets().get("late").await.expect("StatefulSet");
        assert_eq!(set.spec.expect("spec").replicas, Some(3));
        stage.settled("late", 3, &streams(6)).await;
        assert_eq!(second.terminate().await, Some(0));
    });
}

/// Between the promotion of the successor and the demotion of the predecessor, the reasons for both
/// go away.
#[test]
fn a_demotion_that_arrives_in_mid_step_after_its_writer_was_stopped_is_refused() {
    run(async |bench| {
        let stage = route_reflector::Stage::new(bench).await;
        stage.nodes(4).await;
        let first = Late::start(&stage.bench).await;
        stage.set("main", json!({"count": {"min": 2, "max": 2}, "topology": "Simple"})).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        let second = follower(&stage.bench).await;
        first.hold("nodes/", "node-1", 0, 80);
        stage.cordon("node-1", true).await;
        first.stops().await;
        assert_eq!(stage.marks().await.len(), 3, "its successor reflects, and so does node-1");
        stage.cordon("node-1", false).await;
        stage.cordon("node-3", true).await;
        let settled = async || {
            let status = stage.status("main").await;
            let conditions = status["conditions"].as_array()?;
            let converged =
                conditions.iter().any(|c| c["type"] == "Converged" && c["status"] == "True");
            let marks = stage.marks().await;
            (converged && marks.len() == 2).then_some(marks)
        };
        let marks = stage.wait("two reflectors", settled).await;
        assert_eq!(first.arrives().await, 409);
        first.wakes().await;
        assert_eq!(stage.marks().await, marks);
        stage.routes_were_kept();
        assert_eq!(second.terminate().await, Some(0));
    });
}

/// A list is applied whatever is there, because it is a function of the pods: a late one lives
/// until the leader sees it.
#[test]
fn a_list_of_agents_that_arrives_after_its_writer_was_stopped_is_replaced() {
    run(async |bench| {
        let first = Late::start(&bench).await;
        bench.node("node-1").await;
        let prober: Value = serde_yaml::from_str(PROBER).expect("YAML");
        bench.prober("np", prober["spec"].clone()).await;
        bench.intercepted("default").await;
        bench.running_pod("a", "10.1.0.1").await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
        let second = follower(&bench).await;
        let way = Duration::from_secs(30);
        let rule = Rule::new(Fault::Delay(way)).verbs(&["patch"]).resource("configmaps");
        first.proxy.set([rule.times(1)]);
        bench.running_pod("b", "10.1.0.2").await;
        first.stops().await;
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        bench.pods("default").delete("b", &now).await.expect("delete");
        until_holder(&bench, "second").await;
        assert_eq!(first.arrives().await, 200);
        first.wakes().await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
        // It stays.
        tokio::time::sleep(Duration::from_secs(3)).await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
        assert_eq!(second.terminate().await, Some(0));
    });
}
