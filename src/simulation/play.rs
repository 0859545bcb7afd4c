//! Plays the script of one seed, and judges its end.
use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use super::{
    dice::{Dice, number},
    faults::Fault,
    loads::Exporter,
    model,
    operator::Replica,
    script::{self, NAMES, Script, Step},
    store::{Edit, Key},
    weakened::Weakened,
    world::{State, Tally, World},
};

/// The time after the last fault within which labels are as the last loads demand. A failed write
/// rests for five minutes at most, and one is retried each 15 s; the driver waits 30 s at most.
const SETTLE: Duration = Duration::from_mins(8);

/// Maximum number of characters in a line of the record: those of a status are long.
const LINE: usize = 400;

/// The result of one seed.
pub struct Played {
    pub seed: u64,
    pub tally: Tally,
    pub violations: Vec<(Duration, String)>,
    pub log: Vec<(Duration, String)>,
    pub writes: Vec<String>,
}

impl Played {
    /// Describes what is wrong, with the command that plays it again.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for (at, line) in &self.log {
            let line: String = line.chars().take(LINE).collect();
            let _ = writeln!(text, "{:>10.3} {line}", at.as_secs_f64());
        }
        for (at, wrong) in &self.violations {
            let _ = writeln!(text, "{:>10.3} WRONG: {wrong}", at.as_secs_f64());
        }
        let seed = self.seed;
        let _ = writeln!(text, "replay: SEED={seed} cargo test --lib simulation -- --nocapture");
        text
    }
}

/// Plays one seed on a clock of its own; at the end, nothing happens for `idle`.
pub fn play(seed: u64, weakened: Weakened, idle: Duration) -> Played {
    play_script(&Script::of(seed), seed, weakened, idle)
}

/// Plays a script, in which the seed decides only what the script leaves open.
pub fn play_script(script: &Script, seed: u64, weakened: Weakened, idle: Duration) -> Played {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let played = runtime.block_on(run(script, seed, weakened, idle));
    crate::prometheus::simulated::end();
    crate::clock::simulated::end();
    played
}

async fn run(script: &Script, seed: u64, weakened: Weakened, idle: Duration) -> Played {
    let world = World::new(seed, weakened);
    let prometheus = world.clone();
    crate::prometheus::simulated::serve(move |promql| prometheus.answer(promql));
    let mut dice = Dice::of(&[seed, number(b"nodes")]);
    world.change(&format!("the beginning: {:?}", script.specs), |state, now| {
        for node in &script.nodes {
            add_node(state, node, now, &mut dice);
        }
        for (name, _) in &script.specs {
            create(state, script, name, now);
        }
    });
    let mut replicas: Vec<_> =
        (0..script.replicas).map(|place| Replica::start(&world, &format!("op-{place}"))).collect();
    for (at, step) in &script.steps {
        tokio::time::sleep(at.saturating_sub(world.now())).await;
        if let Step::Kill(place, pause) = step {
            world.change(&format!("kill op-{place}"), |_, _| ());
            replicas[*place].kill(Duration::from_millis(*pause));
            continue;
        }
        world.change(&format!("{step:?}"), |state, now| {
            happen(state, script, step, now, &mut dice);
        });
    }
    heal(&world, script);
    tokio::time::sleep(SETTLE).await;
    let now = world.now();
    model::settled(&mut world.state(), now);
    // A follower only reads the lease twice a second.
    replicas.drain(1..).for_each(drop);
    if script.replicas > 1 {
        tokio::time::sleep(SETTLE).await;
    }
    let writes = world.state().writes.len();
    tokio::time::sleep(idle).await;
    let now = world.now();
    model::silent(&mut world.state(), writes, idle, now);
    model::settled(&mut world.state(), now);
    drop(replicas);
    let mut state = world.state();
    Played {
        seed,
        tally: state.tally,
        violations: std::mem::take(&mut state.oracle.violations),
        log: std::mem::take(&mut state.log),
        writes: std::mem::take(&mut state.writes),
    }
}

fn node_key(name: &str) -> Key {
    Key::new("nodes", "", name)
}

fn watch_key(name: &str) -> Key {
    Key::new("trafficwatches", name, name)
}

fn add_node(state: &mut State, name: &str, now: Duration, dice: &mut Dice) {
    let node = script::node(name, dice);
    if state.store.create(&node_key(name), node, now, crate::clock::timestamp()).is_ok() {
        state.loads.set(name, now, 20.0);
    }
}

fn create(state: &mut State, script: &Script, name: &str, now: Duration) {
    let spec = script.specs.iter().find(|(other, _)| *other == name).unwrap().1.clone();
    let object = json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {}, "spec": spec,
    });
    let _ = state.store.create(&watch_key(name), object, now, crate::clock::timestamp());
}

fn merge(state: &mut State, key: &Key, status: bool, patch: &Value, now: Duration) {
    let _ = state.store.edit(key, status, Edit::Merge, patch, now);
}

fn happen(state: &mut State, script: &Script, step: &Step, now: Duration, dice: &mut Dice) {
    let time = crate::clock::timestamp();
    match step {
        Step::Load(node, load) => state.loads.set(node, now, *load),
        Step::LoadOfAll(load) => {
            script.nodes.iter().for_each(|node| state.loads.set(node, now, *load));
        }
        Step::Exporter(node, exporter) => state.loads.exporter(node, *exporter),
        Step::AddNode(node) => add_node(state, node, now, dice),
        Step::RemoveNode(node) => drop(state.store.delete(&node_key(node), now, time)),
        Step::ReplaceNode(node) => {
            let _ = state.store.delete(&node_key(node), now, time);
            add_node(state, node, now, dice);
        }
        Step::Node(node, patch) => merge(state, &node_key(node), false, patch, now),
        Step::NodeStatus(node, patch) => merge(state, &node_key(node), true, patch, now),
        Step::Watch(name, patch) => merge(state, &watch_key(name), false, patch, now),
        Step::CreateWatch(name) => create(state, script, name, now),
        Step::DeleteWatch(name) => drop(state.store.delete(&watch_key(name), now, time)),
        Step::Label(node, prefix, value) => {
            let key = format!("{prefix}.traffic.example.com/unfit");
            state.oracle.edited(node, &key);
            let patch = json!({"metadata": {"labels": {key: value}}});
            merge(state, &node_key(node), false, &patch, now);
        }
        Step::Fault(window) => state.windows.push(*window),
        Step::Compact => state.store.compact(),
        Step::Kill(..) => {}
    }
}

/// Ends all faults, and sets the last loads.
fn heal(world: &World, script: &Script) {
    world.change("the end of all faults", |state, now| {
        for window in &mut state.windows {
            window.until = window.until.min(now);
        }
        let nodes: Vec<_> = state.store.all("nodes").map(|(key, _)| key.name.clone()).collect();
        for (node, load) in nodes.iter().zip(script.last.iter().cycle()) {
            state.loads.exporter(node, Exporter::Up);
            state.loads.set(node, now, *load);
        }
        debug_assert!(!state.faults(now).contains(&Fault::Away));
    });
    // One after the other: the operator may see the world between them, so that the judge does.
    for name in NAMES {
        world.change(&format!("{name} enforces"), |state, now| {
            let spec = json!({"spec": {"paused": false, "mode": "Enforce"}});
            merge(state, &watch_key(name), false, &spec, now);
        });
    }
}
