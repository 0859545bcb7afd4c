//! One node's link becomes slow and lossy, is found and named, and recovers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::figures::{Links, agrees, round_trips_lost};
use super::{PROBER, apply};
use crate::objects::text;
use crate::stage::{PATIENCE, Stage};
use lab::checks::Check;
use lab::cluster::Impairment;

/// The node whose link is impaired.
const SLOW: &str = "node-3";
/// Delay added to each round trip. An HTTP probe takes two round trips: more than the criterion,
/// less than its timeout of 1 s.
const DELAY: Duration = Duration::from_millis(300);
/// Share of packets lost in each direction: 19 % of the round trips.
const LOSS: f64 = 0.1;
/// The time for which the agents' counts are compared with the link's: some 700 round trips.
const COMPARED: Duration = Duration::from_mins(2);
/// Both criteria of the demo's `TrafficWatch`. On a machine with two cores and a load of 19,
/// healthy links were seen with a p99 of 0.38 s: an agent that must wait for a core measures that
/// too.
const MOST_LOSS: f64 = 0.05;
const MOST_P99: f64 = 0.5;
/// A minute of probes is weighed; scrape, rule and two judgments come on top, and a margin for a
/// busy machine.
const FOUND: f64 = 120.0;
const RECOVERED: f64 = 180.0;
/// Time between two lines of output.
const LINE: Duration = Duration::from_secs(5);

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let cluster = stage.cluster;
    let nodes = cluster.node_names();
    stage.say("a link becomes slow and lossy: unfit above 5 % loss or 500 ms p99");
    apply(stage, "watch.yaml").await?;
    let before = stage
        .until("loss and p99 of every node, and every node fit", PATIENCE, async || {
            let links = links(stage).await?;
            let fit = labels(stage)?.values().filter(|value| *value == "false").count();
            Ok((links.complete(&nodes) && fit == nodes.len()).then_some(links))
        })
        .await?;
    stage.say(&format!("    {}", before.line()));

    stage.say(&format!(
        "lab impair {SLOW} --delay {}ms --loss {:.0}%: {}",
        DELAY.as_millis(),
        LOSS * 100.0,
        Impairment::mechanism()
    ));
    let impairment = Impairment { delay: DELAY, loss: LOSS, longest: None };
    let impaired = cluster.impair(SLOW, impairment, PATIENCE * 2).await?;
    let found = watch(stage, "true").await?;
    stage.say(&format!("==> {SLOW} is unfit after {found:.1} s"));
    stage.check(Check::within("impaired link: its node is unfit", found, FOUND));
    // The agents' counters and the link's are compared over the same period, which contains nothing
    // from before.
    let before = impaired.counts()?;
    let after = settle(stage, COMPARED).await?;
    let counts = impaired.counts()?;
    let dropped = round_trips_lost(before, counts);
    let measured = measured(stage).await?;
    stage.say(&format!(
        "    packets of the pods on {SLOW}: {} held, {} lost",
        counts.held, counts.lost
    ));
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "?".to_owned(), |share| format!("{:.1} %", share * 100.0))
    };
    stage.check(Check::new(
        "impaired link: measured loss is what the link dropped (± 5 %)",
        agrees(measured, dropped),
        format!("measured {}, dropped {} of the round trips", percent(measured), percent(dropped)),
    ));
    let (loss, p99) = (after.loss.get(SLOW).copied(), after.p99.get(SLOW).copied());
    let (other_loss, other_p99) = after.worst_but(SLOW);
    let (loss, p99) = (loss.unwrap_or(f64::NAN), p99.unwrap_or(f64::NAN));
    stage.check(Check::new(
        "impaired link: loss and p99 rise for its node",
        loss > MOST_LOSS && p99 > MOST_P99,
        format!("{SLOW}: loss {:.1} %, p99 {:.1} ms", loss * 100.0, p99 * 1e3),
    ));
    stage.check(Check::new(
        "impaired link: not for the others",
        other_loss < MOST_LOSS && other_p99 < MOST_P99,
        format!("at most loss {:.1} %, p99 {:.1} ms", other_loss * 100.0, other_p99 * 1e3),
    ));
    let labels = labels(stage)?;
    let unfit: Vec<&str> = labels
        .iter()
        .filter(|(_, value)| *value == "true")
        .map(|(node, _)| node.as_str())
        .collect();
    stage.check(Check::new(
        "TrafficWatch marks exactly that node",
        unfit == [SLOW],
        unfit.join(", "),
    ));

    stage.say("the impairment is lifted");
    impaired.lift().await?;
    let recovered = watch(stage, "false").await?;
    stage.say(&format!("==> {SLOW} is fit again after {recovered:.1} s"));
    stage.check(Check::within("link mended: its node is fit again", recovered, RECOVERED));
    Ok(())
}

/// Shows the links until the node's label has a value; returns the seconds that took.
async fn watch(stage: &Stage<'_>, value: &str) -> Result<f64> {
    let began = Instant::now();
    let mut shown = None::<Instant>;
    stage
        .until(&format!("{SLOW} labeled {value:?}"), PATIENCE, async || {
            let there = labels(stage)?.get(SLOW).is_some_and(|found| found == value);
            if there || shown.is_none_or(|last| last.elapsed() >= LINE) {
                shown = Some(Instant::now());
                stage.say(&format!("    {}", links(stage).await?.line()));
            }
            Ok(there.then(|| began.elapsed().as_secs_f64()))
        })
        .await
}

/// Shows the links for a while; returns the last reading.
async fn settle(stage: &Stage<'_>, time: Duration) -> Result<Links> {
    let end = Instant::now() + time;
    loop {
        tokio::time::sleep(LINE.min(end.saturating_duration_since(Instant::now()))).await;
        let links = links(stage).await?;
        stage.say(&format!("    {}", links.line()));
        if Instant::now() >= end {
            return Ok(links);
        }
    }
}

/// The share of UDP probes to and from the node that failed in that time: each is one packet there
/// and one back, and none is resent. Probes within the node do not cross the link.
async fn measured(stage: &Stage<'_>) -> Result<Option<f64>> {
    let seconds = COMPARED.as_secs();
    let probes = |more: &str| {
        let of = |end: &str, other: &str| {
            format!(
                r#"sum(increase(netprober_probes_total{{job="{PROBER}",protocol="udp",{end}="{SLOW}",{other}!="{SLOW}"{more}}}[{seconds}s]))"#
            )
        };
        format!("({} + {})", of("src_node", "dst_node"), of("dst_node", "src_node"))
    };
    let query = format!("{} / {}", probes(r#",result="failure""#), probes(""));
    Ok(stage.by(&[], &query).await?.into_values().next())
}

async fn links(stage: &Stage<'_>) -> Result<Links> {
    let of = |rule: &str| format!(r#"{rule}{{prober="{PROBER}"}}"#);
    Ok(Links {
        loss: stage.by(&["node"], &of("netprober:node_loss:ratio1m")).await?,
        p99: stage.by(&["node"], &of("netprober:node_rtt_seconds:p99_1m")).await?,
    })
}

/// The label of the demo's `TrafficWatch`, by node.
fn labels(stage: &Stage<'_>) -> Result<BTreeMap<String, String>> {
    let nodes = stage.list(&["nodes"])?;
    let labeled = nodes.iter().map(|node| {
        let metadata = &node["metadata"];
        (text(&metadata["name"]), text(&metadata["labels"]["links.traffic.example.com/unfit"]))
    });
    Ok(labeled.collect())
}
