//! The measured changes. The expected figures are those of real BIRD 2.0.12 with 18 nodes in three
//! zones.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;

use super::stage::{Outcome, Stage, figure};
use super::states::{
    Ids, demote, grouped, mesh, one, per_zone, promote, reflectors, simple, unique, zonal, zone,
};
use crate::bgp::propagation::{self, Rule};
use crate::bgp::world::World;

/// Sessions come up again at once, or after a second or two if both ends connect at the same
/// moment.
const PATIENCE: Duration = Duration::from_mins(1);
/// A node's routes are gone for about two seconds when it changes its role. More is the machine, or
/// a collision.
const BLIP: Duration = Duration::from_secs(10);

/// Plays the scenarios whose name contains one of `wanted`; all, if nothing is wanted.
pub(super) async fn play(stage: &mut Stage, wanted: &[String]) -> Result<()> {
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    if is_wanted("static") {
        topologies(stage).await?;
    }
    if is_wanted("order") {
        wrong_order(stage).await?;
        right_order(stage).await?;
    }
    if is_wanted("change") {
        change(stage).await?;
    }
    if is_wanted("kill") {
        kill(stage).await?;
    }
    Ok(())
}

/// Measures the routes that each topology carries, and the cost of the loss of one reflector.
async fn topologies(stage: &mut Stage) -> Result<()> {
    let plain = mesh(stage.nodes);
    stage.start("full mesh", plain.clone()).await?;
    let two = |ids: Ids| reflectors(&plain, ids, 2);
    for (name, world, worst) in [
        ("simple, one id", simple(two(one)), true),
        ("zonal, ONE id: routes must be missing", zonal(two(one)), true),
        ("zonal, an id for each zone", zonal(two(per_zone)), true),
        ("zonal, an id for each reflector", zonal(two(unique)), false),
        ("3 for each client, one id", grouped(two(one), 3), true),
        ("3 for each client, an id for each zone", grouped(two(per_zone), 3), false),
    ] {
        stage.start(name, world).await?;
        paths(stage, name).await;
        if worst {
            worst_without_one(stage, name).await?;
        }
    }
    Ok(())
}

/// Compares the number of paths in the tables with the prediction.
async fn paths(stage: &mut Stage, name: &str) {
    let expected = propagation::paths(&stage.confd.last().sessions);
    let counted = || -> Vec<(String, Option<usize>)> {
        let machines = stage.ground.machines();
        machines.iter().map(|machine| (machine.name.clone(), machine.paths())).collect()
    };
    let agrees = |counted: &[(String, Option<usize>)]| {
        counted.iter().all(|(name, count)| *count == expected.get(name).copied())
    };
    let mut last = counted();
    for _ in 0..100 {
        if agrees(&last) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        last = counted();
    }
    let most = last.iter().filter_map(|(_, count)| *count).max().unwrap_or_default();
    let wanted = expected.values().max().copied().unwrap_or_default();
    let figure = format!("{most} in the fullest table, {wanted} expected");
    stage.check(&format!("{name}: paths"), agrees(&last), figure);
}

/// Each reflector down in turn, in order.
async fn worst_without_one(stage: &mut Stage, name: &str) -> Result<()> {
    let version = stage.confd.last();
    let reflectors: Vec<String> = version
        .world
        .nodes
        .iter()
        .filter(|(_, node)| node.cluster_id.is_some())
        .map(|(name, _)| name.clone())
        .collect();
    let expected = |rule| propagation::worst_without_one(&version.sessions, rule);
    let usual = propagation::missing(&version.sessions, &BTreeSet::new(), Rule::Bird).len();
    let mut worst = 0;
    for reflector in reflectors {
        let machine = stage.machine(&reflector)?;
        machine.ask("disable all")?;
        // Routes go away and come back by other paths; no event says that the last one has.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let missing = stage.measure.watch.missing();
        let others = missing.iter().filter(|(node, origin)| ![node, origin].contains(&&reflector));
        worst = worst.max(others.count());
        machine.ask("enable all")?;
        stage.ground.established(&version.sessions, &BTreeSet::new(), PATIENCE).await?;
        stage.measure.watch.complete(usual, PATIENCE).await?;
    }
    let (bird, rfc) = (expected(Rule::Bird), expected(Rule::Rfc));
    stage.check(
        &format!("{name}: any one reflector down"),
        worst == bird,
        format!("{worst} missing at worst (BIRD's rule {bird}, RFC 4456 {rfc})"),
    );
    Ok(())
}

/// The mesh goes before the reflectors are there: everything is lost, and the ground must see it.
async fn wrong_order(stage: &mut Stage) -> Result<()> {
    let plain = mesh(stage.nodes);
    let all = plain.nodes.len() * (plain.nodes.len() - 1);
    stage.start("mesh, before the wrong order", plain.clone()).await?;
    let off = stage.apply(World { mesh: false, ..plain.clone() }).await?;
    let lost = off.others.pairs().len();
    stage.check("wrong order: mesh off first loses all", lost == all, figure(&off));
    stage.start("mesh, before everything at once", plain.clone()).await?;
    let at_once = stage.apply(simple(reflectors(&plain, one, 2))).await?;
    let lost = at_once.all.pairs().len();
    stage.check("wrong order: everything at once loses all", lost == all, figure(&at_once));
    Ok(())
}

/// Reflectors first, then the mesh, and back.
async fn right_order(stage: &mut Stage) -> Result<()> {
    let plain = mesh(stage.nodes);
    let last = grouped(reflectors(&plain, per_zone, 2), 3);
    stage.start("mesh, before the right order", plain.clone()).await?;
    let both = World { mesh: true, ..last.clone() };
    // 6 of 18 become reflectors: 306 pairs without the 132 between clients.
    let ends = pairs_with(plain.nodes.len(), 6);
    let on = stage.apply(both.clone()).await?;
    let pass = on.others.pairs().is_empty() && on.own().pairs().len() == ends;
    stage.check("right order 1: only reflectors blip", pass && short(&on), figure(&on));
    let off = stage.apply(last).await?;
    let pass = off.all.pairs().is_empty() && off.all.losses() == 0 && off.needless.is_empty();
    stage.check("right order 2: mesh off costs nothing", pass && off.resets == 132, figure(&off));
    let back = stage.apply(both).await?;
    let pass = back.all.pairs().is_empty() && back.all.losses() == 0 && back.resets == 0;
    stage.check("back 1: mesh on costs nothing", pass, figure(&back));
    let gone = stage.apply(plain).await?;
    let pass = gone.others.pairs().is_empty() && gone.own().pairs().len() == ends;
    stage.check("back 2: only reflectors blip", pass && short(&gone), figure(&gone));
    Ok(())
}

/// One node changes its role, with and without others to carry the routes.
async fn change(stage: &mut Stage) -> Result<()> {
    let plain = mesh(stage.nodes);
    let own = pairs_with(plain.nodes.len(), 1);
    let names = zone(&plain, "a");
    let (old, new) = (&names[0], &names[3]);
    let two = zonal(reflectors(&plain, per_zone, 2));
    stage.start("zonal, two in each zone", two.clone()).await?;
    let mut third = two.clone();
    promote(&mut third, new, "224.0.1.1");
    let promoted = stage.apply(third.clone()).await?;
    // All pairs of that node as a rule. A demoted one keeps its sessions to those that had its id
    // until they close them, one after the other: on a busy machine one direction may outlast that.
    let only = |outcome: &Outcome| {
        let pairs = outcome.own().pairs().len();
        outcome.others.pairs().is_empty()
            && (own / 2..=own).contains(&pairs)
            && outcome.needless.is_empty()
    };
    let pass = only(&promoted) && short(&promoted);
    stage.check("a third reflector: only that node blips", pass, figure(&promoted));
    demote(&mut third, old);
    let demoted = stage.apply(third).await?;
    let pass = only(&demoted) && short(&demoted);
    stage.check("the first one demoted: only that node blips", pass, figure(&demoted));

    let single = zonal(reflectors(&plain, per_zone, 1));
    stage.start("zonal, one in each zone", single.clone()).await?;
    let mut moved = single;
    demote(&mut moved, old);
    promote(&mut moved, new, "224.0.1.1");
    let at_once = stage.apply(moved).await?;
    // The four others of the zone, to and from everybody but each other's two that changed: seen
    // from outside.
    let lost = at_once.others.pairs().len();
    stage.check("the only one replaced in one write: the zone is lost", lost > 0, figure(&at_once));
    Ok(())
}

/// A reflector's BIRD is killed, and started again as Calico does.
async fn kill(stage: &mut Stage) -> Result<()> {
    let plain = mesh(stage.nodes);
    let victim = zone(&plain, "a")[0].clone();
    stage
        .start("zonal, one in each zone, before the kill", zonal(reflectors(&plain, per_zone, 1)))
        .await?;
    let again = stage
        .step(&[&victim], async |stage| {
            let machine = stage.machine(&victim)?;
            machine.kill()?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            machine.start(true)?;
            machine.started()
        })
        .await?;
    let pass = again.all.pairs().is_empty() && again.all.losses() == 0 && again.resets > 0;
    stage.check("SIGKILL, started again after 1 s: nothing is lost", pass, figure(&again));

    let mut short_restart = zonal(reflectors(&plain, per_zone, 2));
    for peer in short_restart.peers.values_mut() {
        peer.restart = Some(Duration::from_secs(5));
    }
    stage.start("zonal, two in each zone, before the kill", short_restart).await?;
    let dead = stage
        .step(&[&victim], async |stage| {
            stage.machine(&victim)?.kill()?;
            // Its neighbors keep its routes for the configured 5 s.
            tokio::time::sleep(Duration::from_secs(7)).await;
            Ok(())
        })
        .await?;
    let towards = dead.all.pairs().into_iter().all(|(_, origin)| *origin == victim);
    let pass = dead.others.pairs().is_empty()
        && towards
        && dead.all.pairs().len() == plain.nodes.len() - 1;
    stage.check("SIGKILL, one of two: only routes to it are lost", pass, figure(&dead));
    Ok(())
}

/// Ordered pairs of `nodes` with one among `some`.
fn pairs_with(nodes: usize, some: usize) -> usize {
    nodes * (nodes - 1) - (nodes - some) * (nodes - some - 1)
}

fn short(outcome: &Outcome) -> bool {
    outcome.all.longest() < BLIP
}
