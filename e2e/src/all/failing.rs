//! The link of one node becomes slow, and everything leaves it, gracefully.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::figures;
use super::scene::{MOST_P99, REFLECTORS, STREAMS, p99};
use super::stage::{STEPS, Stage, WORKERS};
use crate::judge::operator_writes;
use crate::objects;
use crate::stage::PATIENCE;
use lab::AuditEvent;
use lab::checks::Check;
use lab::cluster::Impairment;
use lab::streams::{Stretch, now};

/// The zone in which two nodes may reflect.
const ZONE: &str = "zone-b";
/// Delay added to each round trip. An HTTP probe takes two of them: more than the criterion, less
/// than its timeout of 1 s.
const DELAY: Duration = Duration::from_millis(300);
/// A minute of probes is weighed; scrape, rule and two judgments come on top.
const FOUND: f64 = 120.0;
/// A handover of a few streams between workers that read their file again.
const LEFT: f64 = 120.0;
/// The waiting time between two steps of reflectors, less the time that a write may take.
const APART: f64 = 58.0;
/// The time for which an eviction holds its zone, less the time that a write may take.
const ALONE: f64 = 9.0;

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let victim = victim(stage)?;
    stage.wait("every node fit", async || Ok(stage.unfit()?.is_empty())).await?;
    let reflectors = stage.reflectors()?;
    let workers = lives(stage)?;
    stage.say(&format!(
        "the link of {victim}, which reflects and has a worker, becomes slow: {} ms more",
        DELAY.as_millis()
    ));
    let (began, since) = (Instant::now(), Timestamp::now());
    let impairment = Impairment { delay: DELAY, loss: 0.0, longest: None };
    let impaired = stage.cluster.impair(&victim, impairment, STEPS * 2).await?;
    let unfit = stage
        .until("the node unfit", PATIENCE, async || {
            let unfit = stage.unfit()?;
            Ok((!unfit.is_empty()).then_some(unfit))
        })
        .await?;
    let found = began.elapsed().as_secs_f64();
    stage.say(&format!("==> {unfit:?} is unfit after {found:.1} s"));
    stage.check(Check::within("TrafficWatch: the node with the slow link is unfit", found, FOUND));
    stage.check(seen(stage, &victim).await?);
    // Both leave at the same time, and both are followed from the beginning.
    let streams = async {
        left(stage, &victim).await?;
        offers_nothing(stage, &victim).await
    };
    let (streams, moved) = tokio::join!(streams, moved(stage, &victim, since));
    streams?;
    stage.check(alone(stage, since, &moved?).await?);
    let only = stage.unfit()?;
    stage.check(Check::new(
        "TrafficWatch: no other node is unfit",
        only.len() == 1 && only.contains(&victim),
        format!("{only:?}"),
    ));
    let after = lives(stage)?;
    stage.check(Check::new(
        "Swarm: no worker was restarted for it",
        workers == after,
        format!("{} workers, the same pods and containers", after.len()),
    ));

    stage.say("    the link is mended");
    let mended = Instant::now();
    let counts = impaired.lift().await?;
    let whole = async || {
        let offered = stage.offered(&victim)?;
        Ok((stage.unfit()?.is_empty() && offered.is_some_and(|amount| amount > 0)).then_some(()))
    };
    stage.until("the node fit again, and offering bandwidth", PATIENCE, whole).await?;
    let took = mended.elapsed().as_secs_f64();
    stage.say(&format!(
        "==> {victim} is fit again after {took:.1} s; {} packets were held",
        counts.held
    ));
    stage.check(Check::within(
        "TrafficWatch: fit again once the link is mended",
        took,
        PATIENCE.as_secs_f64(),
    ));
    let stay = stage.reflectors()?;
    stage.check(Check::new(
        "RouteReflectorSet: a node that is fit again causes no further change",
        stay != reflectors && stay.len() == REFLECTORS && !stay.contains(&victim),
        format!("{reflectors:?} before, {stay:?} since"),
    ));
    Ok(())
}

/// Returns the reflector of the zone in which another node can take its slot. Prometheus runs in
/// the other one.
fn victim(stage: &Stage<'_>) -> Result<String> {
    let (nodes, reflectors) = (stage.nodes()?, stage.reflectors()?);
    let is_it = |node: &&serde_json::Value| {
        let labels = &node["metadata"]["labels"];
        labels["topology.kubernetes.io/zone"] == ZONE && reflectors.contains(&objects::name(node))
    };
    nodes.iter().find(is_it).map(objects::name).with_context(|| format!("no reflector in {ZONE}"))
}

/// Returns UIDs and restarts of the workers.
fn lives(stage: &Stage<'_>) -> Result<BTreeMap<String, (String, i64)>> {
    let pods = stage.list(&["pods", "-l", &format!("app={WORKERS}")])?;
    let life = |pod: &serde_json::Value| {
        let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        let restarts = containers.filter_map(|container| container["restartCount"].as_i64());
        let restarts: i64 = restarts.sum();
        (objects::name(pod), (objects::text(&pod["metadata"]["uid"]), restarts))
    };
    Ok(pods.iter().map(life).collect())
}

/// Compares the p99 of the nodes, as Prometheus has it.
async fn seen(stage: &Stage<'_>, victim: &str) -> Result<Check> {
    let found = p99(stage).await?;
    let slow = found.get(victim).copied().unwrap_or(f64::NAN);
    let others = found.iter().filter(|(node, _)| *node != victim).map(|(_, value)| *value);
    let worst = others.fold(0.0, f64::max);
    Ok(Check::new(
        "NetworkProber: Prometheus shows that node slow, and no other",
        slow > MOST_P99 && worst < MOST_P99,
        format!("{victim} p99 {:.0} ms, others at most {:.0} ms", slow * 1e3, worst * 1e3),
    ))
}

/// Waits until no stream runs on the node.
async fn left(stage: &Stage<'_>, victim: &str) -> Result<()> {
    let began = Instant::now();
    let spread = stage
        .until("all streams elsewhere", PATIENCE, async || {
            let workers = stage.workers()?;
            let running = figures::running(&stage.sink.ledger(), &workers, now());
            let elsewhere = running.values().all(|node| node != victim);
            Ok((running.len() == STREAMS && elsewhere).then_some(running))
        })
        .await?;
    let took = began.elapsed().as_secs_f64();
    stage.say(&format!("==> all {} streams run on other nodes", spread.len()));
    stage.check(Check::within("Swarm: the streams have left, by the workers' reports", took, LEFT));
    let ledger = stage.sink.ledger().clone();
    let (overlaps, back) = (ledger.overlaps(Stretch::ALWAYS), ledger.regressions());
    let figure = format!(
        "{} overlaps, {} old tokens, by {} reports",
        overlaps.len(),
        back.len(),
        ledger.reports()
    );
    let gracefully = overlaps.is_empty() && back.is_empty() && ledger.reports() > 0;
    stage.check(Check::new("Swarm: no stream ever ran on two workers", gracefully, figure));
    Ok(())
}

/// Waits until the node offers nothing more, and a pod that wants to go there waits.
async fn offers_nothing(stage: &Stage<'_>, victim: &str) -> Result<()> {
    let nothing = async || Ok(stage.offered(victim)?.unwrap_or(0) == 0);
    stage.wait("the unfit node offers nothing", nothing).await?;
    let pod = "reserving-there".to_owned();
    stage.reserve(std::slice::from_ref(&pod), 1, Some(victim)).await?;
    let words = stage.reason(&pod).await?;
    stage.check(Check::new(
        "reservation: nothing more is promised there, by the scheduler's own reason",
        !stage.reserving()?.contains_key(&pod),
        words,
    ));
    stage.reserve_nothing()
}

/// Waits until the node reflects no more, and judges the order by the nodes' labels, the times by
/// the audit log: kubectl looks late on a busy machine. Returns the times of both changes.
async fn moved(stage: &Stage<'_>, victim: &str, since: Timestamp) -> Result<Vec<Timestamp>> {
    stage.say("    waiting for the reflector: first another one, a minute later this one leaves");
    let before = stage.reflectors()?;
    let mut fewest = usize::MAX;
    let reflectors = stage
        .until("the reflector replaced", STEPS, async || {
            let reflectors = stage.reflectors()?;
            fewest = fewest.min(reflectors.len());
            Ok((!reflectors.contains(victim)).then_some(reflectors))
        })
        .await?;
    stage.say(&format!("==> reflectors: {reflectors:?}"));
    let newcomers: Vec<&String> = reflectors.difference(&before).collect();
    // The log is a moment behind the labels.
    let (joined, left) = stage
        .until("both changes in the audit log", PATIENCE, async || {
            let events = stage.cluster.audit_since(since)?;
            let written = |node: &str| {
                let is_one = |event: &&AuditEvent| {
                    event.resource == "nodes" && event.subresource.is_empty() && event.code < 300
                };
                let writes = operator_writes(&events).into_iter().filter(is_one);
                let times = writes.filter(|event| event.name == node).map(|event| event.time);
                times.collect::<Vec<Timestamp>>()
            };
            let joined = newcomers.iter().filter_map(|node| written(node).first().copied()).min();
            let times = joined.zip(written(victim).pop());
            Ok(times.filter(|(joined, left)| left > joined))
        })
        .await?;
    let apart = left.duration_since(joined).as_secs_f64();
    stage.check(Check::new(
        "RouteReflectorSet: make before break, by the nodes' labels",
        fewest == REFLECTORS && reflectors.len() == REFLECTORS && apart >= APART,
        format!("at least {fewest} at any time, {apart:.0} s of three (at least {APART:.0} s)"),
    ));
    Ok(vec![joined, left])
}

/// Waits for an eviction, which may come after the reflectors, and compares the times of both.
async fn alone(stage: &Stage<'_>, since: Timestamp, moved: &[Timestamp]) -> Result<Check> {
    let evicted = stage
        .until("a pod evicted from the node", PATIENCE, async || {
            let events = stage.cluster.audit_since(since)?;
            let writes = operator_writes(&events).into_iter();
            let evicted =
                writes.filter(|event| event.subresource == "eviction" && event.code < 300);
            let evicted: Vec<Timestamp> = evicted.map(|event| event.time).collect();
            Ok((!evicted.is_empty()).then_some(evicted))
        })
        .await?;
    let apart = |eviction: &Timestamp| {
        moved
            .iter()
            .map(|at| at.duration_since(*eviction).as_secs_f64().abs())
            .fold(f64::MAX, f64::min)
    };
    let closest = evicted.iter().map(apart).fold(f64::MAX, f64::min);
    Ok(Check::new(
        "one disruption at a time: evictions and the reflector's changes, by the audit log",
        moved.len() > 1 && closest >= ALONE,
        format!(
            "{} eviction(s), {} changes of reflectors, {closest:.0} s apart (at least {ALONE:.0} s)",
            evicted.len(),
            moved.len()
        ),
    ))
}
