//! One node's link carries no large packets: every small probe goes through, and what sends more
//! stalls. The paths are named, by their direction.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::PROBER;
use crate::stage::{PATIENCE, Stage};
use lab::checks::Check;
use lab::cluster::Impairment;

/// The node whose link is impaired.
const SMALL: &str = "node-3";
/// The longest packet that arrives: of a tunnel in a network of 1,500 bytes.
const LONGEST: usize = 1410;
/// Each node routes the packets of its pods.
const ROUTERS: f64 = 2.0;
/// Of six rounds in a minute all are lost.
const ALL: f64 = 0.9;
/// A minute of rounds is weighed; a scrape and the rule come on top, and a margin for a busy machine.
const FOUND: f64 = 120.0;
/// Time between two lines of output.
const LINE: Duration = Duration::from_secs(15);

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let nodes = stage.cluster.node_names();
    stage.say(&format!("lab impair {SMALL} --longest {LONGEST}"));
    let paths = nodes.len() * (nodes.len() - 1);
    let arrive = async || {
        let lost = lost(stage).await?;
        Ok(lost.len() == paths && lost.values().all(|share| *share < ALL))
    };
    stage.wait("large packets on every path between two nodes", arrive).await?;
    let bytes = format!(r#"netprober_udp_packet_bytes{{job="{PROBER}"}}"#);
    let sizes = stage.by(&["src_node", "dst_node"], &bytes).await?;
    stage.check(Check::new(
        "large packets arrive that are as large as the interface allows",
        sizes.len() >= paths && sizes.values().all(|size| (*size - 1500.0).abs() < 0.5),
        format!("{sizes:?}"),
    ));
    let hops = format!(r#"netprober_udp_hops{{job="{PROBER}"}}"#);
    let hops = stage.by(&["src_node", "dst_node"], &hops).await?;
    stage.check(Check::new(
        "replies pass two routers, their own node and that of the prober",
        hops.len() >= paths && hops.values().all(|hops| (*hops - ROUTERS).abs() < 0.5),
        format!("{hops:?}"),
    ));
    let impairment = Impairment { delay: Duration::ZERO, loss: 0.0, longest: Some(LONGEST) };
    let impaired = stage.cluster.impair(SMALL, impairment, PATIENCE * 2).await?;
    let began = Instant::now();
    // Its own agent can no longer be scraped: the page is larger than a packet.
    let others = nodes.iter().filter(|node| **node != SMALL);
    let expected: Vec<_> = others.map(|node| format!("{node} -> {SMALL}")).collect();
    let bad = |lost: &BTreeMap<String, f64>| -> Vec<String> {
        let bad = lost.iter().filter(|(_, share)| **share > ALL);
        bad.map(|(path, _)| path.clone()).collect()
    };
    let mut shown = Instant::now();
    let found = stage
        .until("the paths of its node lose all large packets", PATIENCE, async || {
            let lost = lost(stage).await?;
            if shown.elapsed() >= LINE {
                shown = Instant::now();
                let paths =
                    lost.iter().map(|(path, share)| format!("{path} {:.0} %", share * 100.0));
                stage.say(&format!("    {}", paths.collect::<Vec<_>>().join(" | ")));
            }
            let found = bad(&lost);
            Ok(expected.iter().all(|path| found.contains(path)).then_some(found))
        })
        .await?;
    let took = began.elapsed().as_secs_f64();
    stage.say(&format!("==> {} after {took:.1} s", found.join(", ")));
    stage.check(Check::within("large packets lost: the paths are named", took, FOUND));
    stage.check(Check::new(
        "large packets lost: no path between other nodes is named",
        found.iter().all(|path| path.contains(SMALL)),
        found.join(", "),
    ));
    let loss = format!(r#"netprober:node_loss:ratio1m{{prober="{PROBER}",node="{SMALL}"}}"#);
    let small = stage.by(&["node"], &loss).await?;
    stage.check(Check::new(
        "large packets lost: small probes see nothing of it",
        small.get(SMALL).is_some_and(|loss| *loss < 0.05),
        format!("{small:?}"),
    ));
    impaired.lift().await?;
    let none = async || Ok(bad(&lost(stage).await?).is_empty());
    stage.wait("no path that loses all large packets", none).await
}

/// The share of large packets that are lost, by path between two nodes.
async fn lost(stage: &Stage<'_>) -> Result<BTreeMap<String, f64>> {
    let query = format!(r#"netprober:pair_large_loss:ratio1m{{prober="{PROBER}"}}"#);
    let mut lost = stage.by(&["src_node", "dst_node"], &query).await?;
    lost.retain(|path, _| path.split_once(" -> ").is_some_and(|(from, to)| from != to));
    Ok(lost)
}
