//! Traffic that nobody declared, and pods that reserve, all at once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::figures;
use super::scene::{COUNTED, line, offered};
use super::stage::Stage;
use crate::stage::PATIENCE;
use lab::checks::Check;

/// The node whose link carries the traffic.
const LOADED: &str = "node-2";
/// Bits per second of it: below the threshold, so the node stays fit.
const UNDECLARED: u64 = 400_000_000;
/// Mbit/s that each pod reserves, and the number of pods: two fit on each of three links.
const EACH: u64 = 200;
const PODS: usize = 8;
const FIT: usize = 6;
/// A node to which a pod has just come offers nothing more until a measurement shows its load: for
/// the window and the age of a sample, here 110 s. So the second pod comes that much later.
const FREED: Duration = Duration::from_mins(4);

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    stage.say(&format!("{LOADED} sends 400 Mbit/s that nobody declared, and eight pods arrive"));
    let traffic = stage.cluster.traffic(LOADED, UNDECLARED, Duration::from_mins(10))?;
    let before = stage
        .until("the loaded node offers less than a pod wants", PATIENCE, async || {
            let offered = offered(stage)?;
            Ok(offered.filter(|offered| offered.get(LOADED).is_some_and(|amount| *amount < EACH)))
        })
        .await?;
    // The window holds nothing from before the traffic once it has been counted over its length.
    let sent = stage.rates(COUNTED).await?;
    let settled = offered(stage)?.unwrap_or(before);
    stage.say(&format!("==> {}", line(&settled)));
    let name = "TrafficWatch: undeclared traffic is no longer on offer, by the link's counter";
    stage.check(figures::free(name, &settled, &sent));

    let pods: Vec<String> = (1..=PODS).map(|number| format!("reserving-{number}")).collect();
    stage.say(&format!("    {PODS} pods request {EACH} Mbit/s each, at once"));
    stage.reserve(&pods, EACH, None).await?;
    let placed = stage
        .until("all pods that fit placed", PATIENCE, async || {
            let placed = stage.reserving()?;
            Ok((placed.len() >= FIT).then_some(placed))
        })
        .await?;
    let waiting = pods.iter().find(|pod| !placed.contains_key(*pod));
    let words = match waiting {
        Some(pod) => stage.reason(pod).await?,
        None => "no pod waits".to_owned(),
    };
    // The reason is of an attempt with everything placed that could be.
    let placed = stage.reserving()?;
    let promised = promised(&placed);
    stage.say(&format!("==> reserved: {promised:?}; the rest waits: {words}"));
    let over = promised.iter().find(|(node, sum)| settled.get(*node).is_none_or(|of| *sum > of));
    stage.check(Check::new(
        "reservation: no link is promised twice, by the pods' places",
        over.is_none() && placed.len() == FIT && !promised.contains_key(LOADED),
        format!("{promised:?} Mbit/s of {settled:?}"),
    ));
    stage.check(Check::new(
        "reservation: the others wait, with the scheduler's own reason",
        waiting.is_some() && words.contains(figures::RESOURCE),
        words,
    ));

    traffic.stop().await?;
    stage.say("    the traffic ends");
    let all = stage
        .until("the waiting pods placed", FREED, async || {
            let placed = stage.reserving()?;
            Ok((placed.len() == PODS).then_some(placed))
        })
        .await?;
    let late = all.iter().filter(|(pod, node)| !placed.contains_key(*pod) && *node == LOADED);
    let late = late.count();
    stage.check(Check::new(
        "reservation: they run there once the link is free",
        late == PODS - FIT,
        format!("{late} of {} on {LOADED}", PODS - FIT),
    ));
    stage.reserve_nothing()
}

/// Returns the Mbit/s that pods reserve on each node.
fn promised(placed: &BTreeMap<String, String>) -> BTreeMap<String, u64> {
    let mut promised = BTreeMap::new();
    for node in placed.values() {
        *promised.entry(node.clone()).or_default() += EACH;
    }
    promised
}
