//! A DNS server is slow, and a Service has no endpoints: each is found in its phase, from every node, beside targets that
//! are well.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;

use super::{PROBER, SAMPLE, apply};
use crate::stage::{PATIENCE, Stage};
use lab::checks::Check;

const TARGETS: &str = r#"{"spec":{"targets":[{"name":"slow","dns":"www.slow.test."},{"name":"empty","service":{"name":"empty","port":80}},{"name":"names","dns":"kubernetes.default"},{"name":"api","apiServer":true}]}}"#;
/// The pods of the tour, whose agents listen.
const SELECTOR: &str = r#"{"spec":{"selector":{"app":"net-prober"}}}"#;
/// The time that the server of the slow name takes, in seconds.
const DELAY: f64 = 1.5;
/// The limit of the alert.
const BAD: f64 = 0.2;
/// Three probes in 90 s; a scrape and the rule come on top, and a margin for a busy machine.
const FOUND: f64 = 150.0;

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    apply(stage, "empty.yaml").await?;
    stage.kubectl(&["patch", "networkprober", SAMPLE, "--type=merge", "-p", TARGETS])?;
    let began = Instant::now();
    let nodes = stage.cluster.node_names();
    let of = |targets: &[&str]| -> Vec<String> {
        let pairs = targets.iter().flat_map(|target| nodes.iter().map(move |node| (target, node)));
        pairs.map(|(target, node)| format!("{target} -> {node}")).collect()
    };
    let expected = of(&["slow -> dns", "empty -> connect"]);
    let measured = of(&["names -> dns", "api -> first_byte"]);
    let bad = |shares: &BTreeMap<String, f64>| -> Vec<String> {
        let bad = shares.iter().filter(|(_, share)| **share > BAD);
        bad.map(|(place, _)| place.clone()).collect()
    };
    let shares = stage
        .until("each target measured from each node", PATIENCE, async || {
            let shares = shares(stage).await?;
            let found = bad(&shares);
            let all = expected.iter().all(|place| found.contains(place))
                && measured.iter().all(|place| shares.contains_key(place));
            Ok(all.then_some(shares))
        })
        .await?;
    let took = began.elapsed().as_secs_f64();
    let found = bad(&shares);
    stage.say(&format!("==> {} after {took:.1} s", found.join(", ")));
    stage.check(Check::within("targets: the slow and the empty one are found", took, FOUND));
    let others: Vec<_> = found.into_iter().filter(|place| !expected.contains(place)).collect();
    stage.check(Check::new(
        "targets: no other phase is bad, TLS and first byte of the API server among them",
        others.is_empty(),
        others.join(", "),
    ));
    let reasons = format!(
        r#"sum by (target, phase, reason) (netprober_target_failures_total{{job="{PROBER}"}})"#
    );
    let reasons = stage.by(&["target", "phase", "reason"], &reasons).await?;
    stage.check(Check::new(
        "targets: a Service without endpoints refuses connections, and nothing else fails",
        reasons.keys().eq(["empty -> connect -> refused"]),
        format!("{reasons:?}"),
    ));
    let mean = |part: &str| {
        format!(
            r#"sum by (phase) (netprober_target_phase_seconds_{part}{{job="{PROBER}",target="slow"}})"#
        )
    };
    let means = stage.by(&["phase"], &format!("{} / {}", mean("sum"), mean("count"))).await?;
    stage.check(Check::new(
        "targets: the phase of the name takes as long as its server",
        means.get("dns").is_some_and(|mean| (DELAY..DELAY * 2.0).contains(mean)),
        format!("{means:?}"),
    ));

    stage.kubectl(&["patch", "service", "empty", "--type=merge", "-p", SELECTOR])?;
    let began = Instant::now();
    let successes = format!(
        r#"netprober_target_probes_total{{job="{PROBER}",target="empty",result="success"}} > 0"#
    );
    let reached = async || Ok(stage.by(&["src_node"], &successes).await?.len() == nodes.len());
    stage.wait("the Service with endpoints, reached from each node", reached).await?;
    stage.say(&format!("==> reached after {:.1} s", began.elapsed().as_secs_f64()));
    Ok(())
}

/// The share of bad attempts, by target, phase and node.
async fn shares(stage: &Stage<'_>) -> Result<BTreeMap<String, f64>> {
    let query = format!(r#"netprober:target_bad:ratio5m{{prober="{PROBER}"}}"#);
    stage.by(&["target", "phase", "src_node"], &query).await
}
