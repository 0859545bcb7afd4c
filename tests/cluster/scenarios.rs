//! Promises to users, verified on the cluster.
use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::LocalBoxFuture;
use k8s_openapi::jiff::Timestamp;

use crate::{
    agents::{
        a_peer_that_does_not_answer_costs_the_others_nothing, a_prober_at_rest_writes_nothing,
        agents_open_no_more_files_however_long_they_probe, series_of_a_dead_peer_vanish,
    },
    broken::n02_a_broken_network_stays_visible_until_the_alert_has_fired,
    insight::{
        backtest_agrees_with_what_the_operator_did,
        pods_leave_a_node_that_stays_unfit_and_budgets_hold,
        why_a_node_is_unfit_is_answered_by_one_command,
    },
    kubelets::a_kubelet_keeps_foreign_resources_and_admits_pods_against_them_again,
    monitoring::{
        every_panel_of_the_dashboard_has_data, judged_after,
        the_shipped_alerts_and_scrapes_are_taken_by_prometheus,
    },
    newcomers::{
        a_newcomer_follows_the_readme, a_newcomer_installs_with_helm_judges_nodes_and_uninstalls,
    },
    probing::{
        a_job_completes_beside_its_agent,
        a_namespace_that_does_not_consent_gets_no_agents_and_its_pods_run,
        a_pending_pod_blocks_no_other, deleting_a_prober_cleans_up_and_its_agents_harm_nobody,
        match_expressions_are_honored, the_original_prober_s_sample_runs_verbatim,
        without_the_operator_pods_are_created_as_ever,
    },
    reserving::{
        a_link_at_rest_and_a_wobble_below_a_step_cost_no_write,
        ten_pods_at_once_promise_no_link_twice,
        undeclared_traffic_counts_and_a_pod_waits_with_the_scheduler_s_reason,
        what_is_published_outlives_kubelets_nodes_and_the_api_server,
    },
    stage::Stage,
    swarming::{
        no_stream_of_a_swarm_runs_twice_while_a_node_is_cut_off,
        the_original_swarm_s_layout_runs_verbatim,
        w18_streams_of_a_node_that_is_deleted_in_mid_handover_run_once,
    },
    upgrading::an_upgrade_and_the_way_back_flap_no_label_and_restart_no_pod,
};

/// One scenario.
pub struct Scenario {
    /// `part::function`: a run can leave parts out.
    pub name: &'static str,
    play: fn(&Stage) -> LocalBoxFuture<'_, Result<()>>,
}

impl Scenario {
    pub async fn play(&self, stage: &Stage) -> Result<()> {
        (self.play)(stage).await
    }
}

macro_rules! scenarios {
    ($($part:ident: [$($name:ident),* $(,)?],)*) => {
        /// All scenarios, in the order of execution.
        pub const ALL: &[Scenario] = &[$($(Scenario {
            name: concat!(stringify!($part), "::", stringify!($name)),
            play: |stage| Box::pin($name(stage)),
        }),*),*];
    };
}

scenarios![
    judging: [
        the_original_sample_becomes_ready_with_client_side_apply,
        percent_is_what_was_sent_and_pods_stay_off_the_loaded_node,
        an_affinity_of_the_authors_own_never_reaches_an_unfit_node,
        prometheus_away_holds_the_labels_and_judging_resumes_by_itself,
        a_silent_exporter_makes_its_node_unknown_and_only_that,
        killing_and_rolling_the_operator_changes_no_label,
        pods_leave_a_node_that_stays_unfit_and_budgets_hold,
        why_a_node_is_unfit_is_answered_by_one_command,
        backtest_agrees_with_what_the_operator_did,
    ],
    reserving: [
        a_kubelet_keeps_foreign_resources_and_admits_pods_against_them_again,
        ten_pods_at_once_promise_no_link_twice,
        undeclared_traffic_counts_and_a_pod_waits_with_the_scheduler_s_reason,
        a_link_at_rest_and_a_wobble_below_a_step_cost_no_write,
        what_is_published_outlives_kubelets_nodes_and_the_api_server,
    ],
    probing: [
        the_original_prober_s_sample_runs_verbatim,
        a_pending_pod_blocks_no_other,
        without_the_operator_pods_are_created_as_ever,
        a_namespace_that_does_not_consent_gets_no_agents_and_its_pods_run,
        match_expressions_are_honored,
        a_job_completes_beside_its_agent,
        deleting_a_prober_cleans_up_and_its_agents_harm_nobody,
        a_peer_that_does_not_answer_costs_the_others_nothing,
        series_of_a_dead_peer_vanish,
        a_prober_at_rest_writes_nothing,
        agents_open_no_more_files_however_long_they_probe,
        n02_a_broken_network_stays_visible_until_the_alert_has_fired,
    ],
    swarming: [
        the_original_swarm_s_layout_runs_verbatim,
        no_stream_of_a_swarm_runs_twice_while_a_node_is_cut_off,
        w18_streams_of_a_node_that_is_deleted_in_mid_handover_run_once,
    ],
    // The last of them remove the operator.
    installing: [
        every_panel_of_the_dashboard_has_data,
        the_shipped_alerts_and_scrapes_are_taken_by_prometheus,
        an_upgrade_and_the_way_back_flap_no_label_and_restart_no_pod,
        undeploy_leaves_no_label_behind,
        a_newcomer_follows_the_readme,
        a_newcomer_installs_with_helm_judges_nodes_and_uninstalls,
    ],
];

pub fn deployment(app: &str, affinity: &str) -> String {
    format!(
        "deployment:
  replicas: 4
  selector: {{matchLabels: {{app: {app}}}}}
  template:
    metadata: {{labels: {{app: {app}}}}}
    spec:
      terminationGracePeriodSeconds: 0
      {affinity}
      containers: [{{name: c, image: 'busybox:1.35', command: [busybox, sleep, infinity]}}]"
    )
}

async fn the_original_sample_becomes_ready_with_client_side_apply(stage: &Stage) -> Result<()> {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/samples/trafficwatch.yaml");
    let sample = sample.to_str().context("path")?;
    stage.cluster.kubectl(&["apply", "-f", sample])?;
    let said = stage.cluster.kubectl(&["apply", "-f", sample])?;
    ensure!(said.contains("unchanged"), "{said}");
    stage.cluster.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "trafficwatch/trafficwatch-sample",
        "--timeout=90s",
    ])?;
    let status = stage.status("trafficwatch-sample")?;
    for node in stage.cluster.node_names() {
        let fields = &status["nodes"][node.as_str()];
        ensure!(fields["currentBandwidthPercent"].is_string(), "{fields}");
        ensure!(fields["currentTransmitTotal"].is_i64(), "{fields}");
        ensure!(fields["time"].is_i64() && fields["unfit"].is_boolean(), "{fields}");
    }
    stage
        .until("the sample's pods", async || {
            let nodes = stage.nodes_of("app.kubernetes.io/name=trafficwatch-sample")?;
            Ok(nodes.len() == 2 && !nodes.contains(&"(not scheduled)".into()))
        })
        .await?;
    stage.delete("trafficwatch-sample")
}

async fn percent_is_what_was_sent_and_pods_stay_off_the_loaded_node(stage: &Stage) -> Result<()> {
    stage.watch("load", &deployment("load", "")).await?;
    stage.until_ready("load").await?;
    let traffic = stage.cluster.traffic("node-2", 400_000_000, Duration::from_mins(5))?;
    stage.until_label("node-2", "load", Some("true")).await?;
    let value = r#"traffic_operator_trafficwatch_node_value{name="load",node="node-2"}"#;
    // prometheus-operator and the kubelet take some time until our pods are scraped.
    stage
        .until("decision metrics in Prometheus", async || {
            Ok(!stage.cluster.query(value).await?.is_empty())
        })
        .await?;
    // The rate over the window settles with even traffic, which a busy machine does not send at
    // once.
    let mut seen = Vec::new();
    let agrees = loop {
        tokio::time::sleep(Duration::from_secs(12)).await;
        let before = stage.cluster.counters("node-2")?;
        let began = std::time::Instant::now();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let sent = stage.cluster.counters("node-2")?.tx_bytes - before.tx_bytes;
        #[expect(clippy::cast_precision_loss, reason = "a few hundred megabytes")]
        let really = sent as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9 * 100.0;
        let samples = stage.cluster.query(value).await?;
        let shown = samples.first().context("no decision metric in Prometheus")?.1;
        seen.push(format!("shown {shown} %, really {really} %"));
        let agrees = (shown - really).abs() <= really * 0.1;
        if agrees || seen.len() == 4 {
            break agrees;
        }
    };
    ensure!(agrees, "{seen:?}");
    let receiver = stage.label("node-1", "load")?;
    ensure!(receiver.as_deref() == Some("false"), "node-1 is {receiver:?}");
    // Pods that are created now go elsewhere; running ones stay.
    stage.cluster.kubectl(&["delete", "pods", "-l", "app=load", "--wait=false"])?;
    stage
        .until("the pods off the loaded node", async || {
            let nodes = stage.nodes_of("app=load")?;
            Ok(nodes.len() == 4 && nodes.iter().all(|n| n == "node-1" || n == "node-3"))
        })
        .await?;
    traffic.stop().await?;
    stage.until_label("node-2", "load", Some("false")).await?;
    stage.delete("load")
}

/// Original 1.4 #8, measured: with an affinity of their own, 2 of 2 pods ran on the unfit node.
async fn an_affinity_of_the_authors_own_never_reaches_an_unfit_node(stage: &Stage) -> Result<()> {
    let affinity = "affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-2]}]
            - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-3]}]";
    let traffic = stage.cluster.traffic("node-2", 500_000_000, Duration::from_mins(3))?;
    stage.watch("affine", "placement: Required").await?;
    stage.until_label("node-2", "affine", Some("true")).await?;
    stage.watch("affine", &deployment("affine", affinity)).await?;
    stage
        .until("four pods on node-3", async || {
            Ok(stage.nodes_of("app=affine")? == ["node-3"; 4].map(String::from))
        })
        .await?;
    traffic.stop().await?;
    stage.delete("affine")
}

async fn prometheus_away_holds_the_labels_and_judging_resumes_by_itself(
    stage: &Stage,
) -> Result<()> {
    let traffic = stage.cluster.traffic("node-2", 500_000_000, Duration::from_mins(4))?;
    stage.watch("away", "mode: Enforce").await?;
    stage.until_label("node-2", "away", Some("true")).await?;
    stage.until_ready("away").await?;
    let since = Timestamp::now();
    let replicas = |count: u8| {
        let patch = format!(r#"{{"spec":{{"replicas":{count}}}}}"#);
        stage.cluster.kubectl(&[
            "-n",
            "monitoring",
            "patch",
            "prometheus",
            "k8s",
            "--type=merge",
            "-p",
            &patch,
        ])
    };
    replicas(0)?;
    stage.cluster.kubectl(&[
        "-n",
        "monitoring",
        "delete",
        "pod",
        "prometheus-k8s-0",
        "--force",
        "--grace-period=0",
        "--ignore-not-found",
    ])?;
    stage
        .until("MetricsAvailable=False", async || {
            Ok(stage.condition("away", "MetricsAvailable")?.0 == "False")
        })
        .await?;
    ensure!(stage.label("node-2", "away")?.as_deref() == Some("true"));
    ensure!(stage.status("away")?["summary"]["unknown"] == 3);
    replicas(1)?;
    stage
        .until("MetricsAvailable=True", async || {
            Ok(stage.condition("away", "MetricsAvailable")?.0 == "True")
        })
        .await?;
    stage
        .until("node-2 judged again", async || {
            Ok(stage.status("away")?["nodes"]["node-2"]["state"] == "Unfit")
        })
        .await?;
    let writes = stage.node_writes(since).await?;
    ensure!(writes.is_empty(), "labels flapped: {writes:?}");
    traffic.stop().await?;
    stage.until_label("node-2", "away", Some("false")).await?;
    stage.delete("away")
}

async fn a_silent_exporter_makes_its_node_unknown_and_only_that(stage: &Stage) -> Result<()> {
    stage.watch("silent", "maxSampleAge: 10s").await?;
    stage.until_ready("silent").await?;
    let since = Timestamp::now();
    // It accepts connections and does not answer: this hung the original for 251 s.
    stage.cluster.in_node("node-3", "pkill", &["-STOP", "-x", "node_exporter"])?;
    let outcome = stage
        .until("node-3 Unknown", async || {
            let nodes = &stage.status("silent")?["nodes"];
            Ok(nodes["node-3"]["state"] == "Unknown" && nodes["node-3"]["reason"] == "NoSample")
        })
        .await;
    let others = stage.status("silent")?;
    let label = stage.label("node-3", "silent")?;
    stage.cluster.in_node("node-3", "pkill", &["-CONT", "-x", "node_exporter"])?;
    outcome?;
    ensure!(label.as_deref() == Some("false"), "{label:?}");
    ensure!(others["nodes"]["node-1"]["state"] == "Fit", "{others}");
    ensure!(stage.condition("silent", "MetricsAvailable")?.0 == "True");
    stage
        .until("node-3 judged again", async || {
            Ok(stage.status("silent")?["nodes"]["node-3"]["state"] == "Fit")
        })
        .await?;
    let writes = stage.node_writes(since).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    stage.delete("silent")
}

async fn killing_and_rolling_the_operator_changes_no_label(stage: &Stage) -> Result<()> {
    let traffic = stage.cluster.traffic("node-1", 500_000_000, Duration::from_mins(4))?;
    stage.watch("restart", "consecutive: {unfit: 2, fit: 2}").await?;
    stage.until_label("node-1", "restart", Some("true")).await?;
    stage.until_ready("restart").await?;
    let since = Timestamp::now();
    let nodes = stage.cluster.node_names();
    // It exits 1 where no replica runs; the kernel keeps 15 characters of a process' name.
    let kill = |node: &&String| {
        stage.cluster.in_node(node, "pkill", &["-KILL", "-x", "traffic-operato"]).is_ok()
    };
    let killed = nodes.iter().filter(kill).count();
    ensure!(killed > 0, "no replica was found to be killed");
    judged_after(stage, "restart", Timestamp::now()).await?;
    stage.cluster.kubectl(&[
        "-n",
        "traffic-operator-system",
        "rollout",
        "restart",
        "deployment/traffic-operator",
    ])?;
    stage.cluster.operator_ready().await?;
    judged_after(stage, "restart", Timestamp::now()).await?;
    let writes = stage.node_writes(since).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    ensure!(stage.label("node-1", "restart")?.as_deref() == Some("true"));
    traffic.stop().await?;
    stage.until_label("node-1", "restart", Some("false")).await?;
    stage.delete("restart")
}

async fn undeploy_leaves_no_label_behind(stage: &Stage) -> Result<()> {
    stage.watch("last", "direction: Busiest").await?;
    stage.until_ready("last").await?;
    stage.until_label("node-1", "last", Some("false")).await?;
    let root = env!("CARGO_MANIFEST_DIR");
    let kubectl = lab::tools::ensure("kubectl")?;
    let bin = kubectl.parent().context("directory")?;
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new(format!("{root}/hack/undeploy"))
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .env("PATH", path)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}{complained}");
    ensure!(said.contains("No node label is left."), "{said}{complained}");
    ensure!(stage.label("node-1", "last")?.is_none());
    Ok(())
}
