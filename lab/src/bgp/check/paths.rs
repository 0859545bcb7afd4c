//! The cost of numbers of paths: layouts in zones, each started afresh until its tables hold the
//! predicted paths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::states::in_zones;
use crate::bgp::confd::Confd;
use crate::bgp::family::Family;
use crate::bgp::ground::Ground;
use crate::bgp::propagation;
use crate::checks::{Check, table};

/// Enough for clients in every zone of every layout.
const NODES: u8 = 24;
/// Reflectors of each zone; whether all clients also peer with those of the first zone. Ordered by
/// what they cost.
const LAYOUTS: [(&[usize], bool); 8] = [
    (&[2, 2, 2, 2], false),
    (&[3, 2, 2, 2], false),
    (&[4, 4, 4], false),
    (&[3, 3, 2, 2], false),
    (&[3, 2, 2, 2], true),
    (&[5, 5, 5], false),
    (&[3, 3, 2, 2], true),
    (&[3, 3, 3, 3], false),
];
/// The last layout takes 20 s where two processors do nothing else.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time between two counts of the paths.
const LOOK: Duration = Duration::from_millis(500);
/// The time for which nothing may change any more.
const STILL: Duration = Duration::from_secs(3);

/// Measures all layouts; says PASS or FAIL.
pub async fn run() -> Result<bool> {
    let ground = Arc::new(Ground::start(NODES, &[Family::V4]).await?);
    let confd = Confd::new(Arc::clone(&ground));
    let mut checks = Vec::new();
    for (layout, bridged) in LAYOUTS {
        let check = measure(&ground, &confd, layout, bridged).await?;
        println!("{}: {}", check.name, check.figure);
        checks.push(check);
    }
    ground.stop()?;
    println!("\n{}", table(&checks));
    let pass = checks.iter().all(|check| check.pass);
    println!("{}", if pass { "PASS" } else { "FAIL" });
    Ok(pass)
}

async fn measure(ground: &Ground, confd: &Confd, layout: &[usize], bridged: bool) -> Result<Check> {
    let bridge = if bridged { ", bridged" } else { "" };
    let name = format!("{layout:?}{bridge}");
    let began = Instant::now();
    confd.restart(in_zones(NODES, layout, bridged))?;
    let sessions = confd.last().sessions;
    let expected = propagation::paths(&sessions);
    let (mut last, mut changed, mut spent) = (BTreeMap::new(), began, Duration::ZERO);
    // The first right table proves nothing: one that holds too much may follow.
    while began.elapsed() < PATIENCE && (last != expected || changed.elapsed() < STILL) {
        tokio::time::sleep(LOOK).await;
        let machines = ground.machines();
        let count = |machine: &Arc<crate::bgp::Machine>| (machine.name.clone(), machine.paths());
        let all = machines.iter().map(count);
        let now = all.filter_map(|(name, paths)| Some((name, paths?))).collect();
        if now != last {
            (last, changed) = (now, Instant::now());
            spent = machines.iter().filter_map(|machine| machine.spent()).sum();
        }
    }
    let down = ground.down_sessions(&sessions, &BTreeSet::new()).len();
    let most = |tables: &BTreeMap<String, usize>| tables.values().max().copied().unwrap_or(0);
    let figure = format!(
        "{} paths in the fullest table, {} expected; {:.1} s, {:.1} s of processor time; {down} session ends down",
        most(&last),
        most(&expected),
        (changed - began).as_secs_f64(),
        spent.as_secs_f64(),
    );
    Ok(Check::new(&name, last == expected && down == 0, figure))
}
