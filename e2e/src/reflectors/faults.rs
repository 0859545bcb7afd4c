//! The faults: the operator, Prometheus or a BIRD dies, or someone removes labels.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::acts::{LOADS, REPLACED, reflector, served, served_without, topology};
use super::set::Set;
use super::stage::Stage;
use super::step::Step;
use super::{PER_ZONE, ZONES};
use lab::bgp::Start;

/// The time for which a BIRD is dead, and Prometheus silent: everybody has had the time to act on
/// it.
const OUTAGE: Duration = Duration::from_secs(12);
/// Calico's BIRD is started again by its supervisor about as fast; long enough for neighbors to
/// see it.
const DEAD: Duration = Duration::from_secs(3);
/// The reflectors of all zones but one get another cluster id with another topology.
const OTHER_IDS: usize = PER_ZONE * (ZONES.len() - 1);

/// From zones to one group and back: the operator is killed on one way, a reflector loses its
/// labels on the other.
pub(super) async fn topologies(stage: &mut Stage<'_>) -> Result<()> {
    let act = async |stage: &mut Stage<'_>| {
        topology(stage, "Simple").await?;
        stage.until("the operator at work", |set| set.current && !set.converged).await?;
        tokio::time::sleep(DEAD).await;
        stage.say("    the operator: kill -9");
        stage.operator.kill()?;
        tokio::time::sleep(DEAD).await;
        stage.operator.resume()
    };
    let step = Step::new("Zonal -> Simple, kill -9 the operator", OTHER_IDS);
    stage.step(step, act, |set| served(set, "Simple")).await?;

    let node = reflector(stage, "b").await?;
    let act = async |stage: &mut Stage<'_>| {
        topology(stage, "Zonal").await?;
        stage.until("the operator at work", |set| set.current && !set.converged).await?;
        stage.say(&format!("    {node} loses its labels"));
        let labels = json!({"calico-route-reflector": null, "route-reflectors.traffic.example.com/slot": null});
        stage.site.nodes.patch(&node, &json!({"metadata": {"labels": labels}})).await
    };
    // It may be one of those that keep their id.
    let step = Step::new("Simple -> Zonal, labels lost", OTHER_IDS + 1);
    stage.step(step.touching([&*node]), act, |set| served(set, "Zonal")).await
}

/// A reflector's BIRD is killed, and ends in order.
pub(super) async fn bird(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "c").await?;
    for (name, in_order) in
        [("a reflector's BIRD: kill -9", false), ("a reflector's BIRD stopped", true)]
    {
        let start = Start::now();
        stage.say(&format!("{name} …"));
        let step = Step::new(name, 1).touching([&*node]);
        let machine = stage.site.ground.machine(&node)?;
        if in_order {
            machine.stop()?;
        } else {
            machine.kill()?;
        }
        stage.dead.insert(node.clone());
        tokio::time::sleep(DEAD).await;
        let poor = without_reflector(stage, &stage.reported().await?);
        ensure!(poor.is_empty(), "{name}: no reflector is left to {}", poor.join(", "));
        machine.start(!in_order)?;
        stage.dead.clear();
        stage.settled(name, async |_: &Stage| Ok(None)).await?;
        stage.judge(if in_order { step } else { step.restarting(&node) }, start).await?;
    }
    Ok(())
}

/// Clients with no established session to a reflector.
fn without_reflector(stage: &Stage<'_>, set: &Set) -> Vec<String> {
    let machines = stage.site.ground.machines();
    let clients = machines.iter().filter(|machine| !set.holds(&machine.name));
    let poor = clients.filter(|machine| machine.established().is_empty());
    poor.map(|machine| machine.name.clone()).collect()
}

/// Without Prometheus nobody is demoted, whatever is wrong with him; with it, at once.
pub(super) async fn prometheus(stage: &mut Stage<'_>) -> Result<()> {
    let (loaded, cordoned) = (reflector(stage, "a").await?, reflector(stage, "b").await?);
    let start = Start::now();
    let name = "no Prometheus: one cordoned, one loaded";
    stage.say(&format!("{name} …"));
    stage.monitoring.stop()?;
    stage.monitoring.set_load(&loaded, LOADS[1]);
    stage.site.nodes.set_cordoned(&cordoned, true).await?;
    tokio::time::sleep(OUTAGE).await;
    stage.judge(Step::new(name, 0), start).await?;
    let row = stage.rows.last().cloned().unwrap_or_default();
    if row.writes.network() > 0 {
        stage.wrong.push(format!("{name}: {:?}", row.writes));
    }
    let act = async |stage: &mut Stage<'_>| stage.monitoring.resume().await;
    let wanted =
        |set: &Set| served_without(set, &loaded).or_else(|| served_without(set, &cordoned));
    stage.step(Step::new("Prometheus again", 2 * REPLACED), act, wanted).await?;
    stage.monitoring.set_load(&loaded, LOADS[0]);
    stage.site.nodes.set_cordoned(&cordoned, false).await
}
