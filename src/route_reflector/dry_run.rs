//! Simulates all steps, and the cost of each.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use super::{
    bgp_model::{Change, Fabric, Rule},
    datastore::{CalicoPeer, Snapshot},
    memory::Memory,
    overlap,
    plan::{self, Calico, Decision, Fitness, Observed},
    settings::Settings,
    steps::{self, Next, NodeWrite, Step, Write},
    topology::BgpTopology,
};
use crate::{
    api::{CLUSTER_ID_ANNOTATION, RouteReflectorSet},
    controller::Error,
    nodes::{Speaker, Texts},
};

/// More steps than any change needs: one for each slot, group and ten nodes of a large cluster.
const MOST_STEPS: usize = 5_000;

/// Nodes and Calico's objects, as they are or would be.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// The nodes, by name.
    pub speakers: Vec<Speaker>,
    /// Calico's objects.
    pub snapshot: Snapshot,
}

fn change(texts: &mut Texts, changes: &[(&str, Option<&str>)]) {
    let all = texts.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
    let mut all: BTreeMap<_, _> = all.collect();
    for (key, value) in changes {
        match value {
            Some(value) => drop(all.insert((*key).into(), (*value).into())),
            None => drop(all.remove(*key)),
        }
    }
    *texts = all.into_iter().collect();
}

impl Stage {
    /// Takes a step, after which the objects are as in the API server.
    pub fn take(&mut self, step: &Step, label: (&str, &str), set: &str) {
        let labeled = |node: &str| {
            let there = self.speakers.iter().find(|speaker| *speaker.name == *node);
            there.is_some_and(|s| s.labels.get(label.0).is_some())
        };
        for write in step.writes(label, labeled) {
            match write {
                Write::Node(NodeWrite { node, labels, cluster_id, .. }) => {
                    let labels: Vec<_> = labels.iter().map(|(k, v)| (&**k, v.as_deref())).collect();
                    self.edit(&node, |speaker| change(&mut speaker.labels, &labels));
                    if let Some(id) = cluster_id {
                        self.identify(&node, id.map(|id| id.to_string()).as_deref());
                    }
                }
                Write::Peer(peer) => {
                    let there = self.snapshot.peers.iter().position(|p| p.name == peer.name);
                    let there = there.map(|place| self.snapshot.peers.remove(place));
                    self.snapshot.peers.push(CalicoPeer {
                        session: there.map_or_else(Default::default, |there| there.session),
                        name: peer.name,
                        node_selector: Some(peer.node_selector),
                        peer_selector: Some(peer.peer_selector),
                        reverse: true,
                        ours: true,
                        set: Some(set.to_owned()),
                        ..CalicoPeer::default()
                    });
                }
                Write::DeletePeer { name, .. } => {
                    self.snapshot.peers.retain(|there| there.name != name);
                }
                Write::Mesh(on) => self.snapshot.mesh = on,
            }
        }
    }

    /// Changes one node.
    pub fn edit(&mut self, node: &str, edit: impl FnOnce(&mut Speaker)) {
        if let Some(speaker) = self.speakers.iter_mut().find(|speaker| *speaker.name == *node) {
            edit(speaker);
        }
    }

    fn identify(&mut self, node: &str, id: Option<&str>) {
        let known = self.snapshot.cluster_ids.remove(node);
        if self.snapshot.flavor == "etcd" || known.is_some() {
            if let Some(id) = id.and_then(|id| id.parse().ok()) {
                self.snapshot.cluster_ids.insert(node.into(), id);
            }
        } else {
            self.edit(node, |speaker| change(&mut speaker.calico, &[(CLUSTER_ID_ANNOTATION, id)]));
        }
    }

    /// Everything put together.
    #[must_use]
    pub fn bgp(&self, keys: (&str, &str), set: &str) -> BgpTopology {
        let sets = BTreeSet::from([set.to_owned()]);
        BgpTopology::new(&self.speakers, &self.snapshot, keys, set, &sets)
    }
}

/// The routes of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSummary {
    /// Sessions between nodes.
    pub sessions: u64,
    /// Ordered pairs of nodes without a route, by RFC 4456.
    pub missing: u64,
    /// The same, by BIRD's rule.
    pub missing_by_bird: u64,
    /// The same, by RFC 4456, with the one reflector down that costs most.
    pub missing_without_one: u64,
    /// Maximum number of paths of one node to one prefix.
    pub paths_per_prefix: u64,
    /// Paths in the largest table.
    pub paths: u64,
    /// BGPPeers.
    pub peers: usize,
    /// True if the mesh is on.
    pub mesh: bool,
}

impl NetworkSummary {
    fn of(fabric: &Fabric) -> Self {
        let paths = fabric.paths(Rule::Bird);
        let worst = fabric.worst_without_one(Rule::Rfc);
        Self {
            sessions: fabric.sessions().total(),
            missing: fabric.missing(Rule::Rfc).pairs,
            missing_by_bird: fabric.missing(Rule::Bird).pairs,
            missing_without_one: worst.map_or(0, |(_, missing)| missing.pairs),
            paths_per_prefix: paths.reflector.per_prefix.max(paths.client.per_prefix),
            paths: paths.reflector.table.max(paths.client.table),
            peers: fabric.peers().len(),
            mesh: fabric.mesh(),
        }
    }
}

/// One step of the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryStep {
    /// The kind of write.
    pub step: &'static str,
    /// In words.
    pub text: String,
    /// Nodes whose own routes are interrupted for some seconds.
    pub interrupted: Vec<String>,
    /// Ordered pairs of other nodes that lose a route meanwhile, by RFC 4456.
    pub lost: u64,
    /// True if it waits until sessions are established.
    pub gated: bool,
}

/// One reflector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reflector {
    /// Number of the slot.
    pub slot: u32,
    /// Name of the reflector's node.
    pub node: String,
    /// The node's zone.
    pub zone: String,
    /// Cluster id of the reflector.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
}

/// The whole way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// The set.
    pub name: String,
    /// The kind of Calico's datastore.
    pub datastore: &'static str,
    /// The final topology.
    pub topology: &'static str,
    /// Number of nodes in the cluster.
    pub nodes: usize,
    /// Desired number of reflectors.
    pub desired: usize,
    /// The final reflectors.
    pub reflectors: Vec<Reflector>,
    /// All steps, in order.
    pub steps: Vec<DryStep>,
    /// Why the way ends before its end, if it does.
    pub refused: Option<String>,
    /// The reason why there is nothing to reflect, if it is so: every number is meaningless then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<&'static str>,
    /// Objects of Calico's that cannot be read: the numbers are without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// The current routes.
    pub before: NetworkSummary,
    /// The final routes.
    pub after: NetworkSummary,
}

/// Takes all steps; in the end `stage` has the final state.
///
/// # Errors
/// The error of the spec, or of its demands on these nodes.
pub fn simulate(
    set: &RouteReflectorSet,
    stage: &mut Stage,
    fitness: Option<Fitness>,
    workloads: Arc<BTreeMap<Arc<str>, u32>>,
    now: Timestamp,
) -> Result<DryRun, Error> {
    let settings = Settings::of(set)?;
    let name = set.name_any();
    let label = (&*settings.label.0, &*settings.label.1);
    let mut set = set.clone();
    let mut observed = Observed {
        now,
        held: None,
        settings: Ok(settings.clone()),
        misconfigured: None,
        speakers: vec![],
        bgp: Err(Calico { reason: "Unknown", text: String::new() }),
        fitness,
        measured: None,
        busy: BTreeMap::new(),
        memory: Memory {
            workloads: Some((std::time::Instant::now(), workloads)),
            ..Memory::default()
        },
    };
    let before = NetworkSummary::of(&stage.bgp(settings.keys(), &name).fabric);
    let mut steps = vec![];
    let idle = stage.snapshot.routing.idle();
    let mut refused = idle.as_ref().filter(|_| !settings.retire).map(ToString::to_string);
    loop {
        let bgp = stage.bgp(settings.keys(), &name);
        observed.speakers.clone_from(&stage.speakers);
        let decision = plan::decide(&set, &observed, &settings, &bgp).map_err(Error::Invalid)?;
        let session = overlap::settings(&stage.snapshot, &bgp, &decision.goal);
        let contested = session.as_ref().err();
        refused = refused.or_else(|| stops(&settings, &decision, &bgp, contested));
        if refused.is_none() && steps.len() >= MOST_STEPS {
            refused = Some(format!("no end after {MOST_STEPS} steps"));
        }
        let next = if refused.is_some() {
            Next::Done
        } else {
            let unsound = decision.unsound.as_ref();
            steps::choose(&bgp, &decision.goal, &decision.left, unsound, |step| {
                bgp.known()?;
                steps::allowed(&stage.snapshot, step)
            })
        };
        let Next::Take(step) = next else {
            match next {
                Next::Refuse(step, why) => refused = Some(steps::refusal(step.as_ref(), &why)),
                Next::Wait(step, shut) => refused = Some(format!("{step}: {shut}")),
                Next::Take(_) | Next::Done => {}
            }
            let target = decision.target;
            return Ok(DryRun {
                name,
                datastore: stage.snapshot.flavor,
                topology: target.topology.as_str(),
                nodes: bgp.nodes.len(),
                desired: target.desired,
                reflectors: target
                    .slots
                    .iter()
                    .map(|slot| Reflector {
                        slot: slot.id,
                        node: slot.node.to_string(),
                        zone: slot.zone.as_deref().unwrap_or_default().into(),
                        cluster_id: slot.cluster_id.to_string(),
                    })
                    .collect(),
                steps,
                refused,
                idle: idle.map(|idle| idle.reason),
                unreadable: bgp.unreadable.iter().map(ToString::to_string).collect(),
                before,
                after: NetworkSummary::of(&bgp.fabric),
            });
        };
        let session = session.unwrap_or_default();
        let after = step.after(&bgp.fabric, label.0, label.1);
        let changed = step.changed();
        let retires = decision.retires.is_some();
        let lost = || Change::new(&bgp.fabric, &after, &changed).lost(Rule::Rfc).pairs;
        steps.push(DryStep {
            step: step.word(),
            text: step.to_string(),
            interrupted: changed.iter().map(ToString::to_string).collect(),
            lost: if retires { 0 } else { lost() },
            gated: !retires && step.needs_gate(),
        });
        set.status = Some(plan::remembered(&set, &decision, &bgp, now));
        stage.take(&step, label, &name);
        for peer in stage.snapshot.peers.iter_mut().filter(|peer| peer.ours) {
            if !bgp.ours.contains_key(&peer.name) {
                peer.session.clone_from(&session);
            }
        }
    }
}

/// Returns why nothing more is done, if it is so.
fn stops(
    settings: &Settings,
    decision: &Decision,
    bgp: &BgpTopology,
    contested: Option<&String>,
) -> Option<String> {
    if let Some(witness) = &decision.retires {
        return witness.as_ref().err().cloned();
    }
    let kept = decision.refused.as_ref().filter(|_| settings.retire).cloned();
    let taken = || {
        let peer = decision.goal.peers.iter().find(|peer| bgp.taken.contains(&peer.name))?;
        Some(format!("BGPPeer {} exists and is not ours", peer.name))
    };
    let ineligible = || {
        let why = decision.obstacles.as_ref()?;
        Some(format!("no node is eligible as a reflector ({why})"))
    };
    kept.or_else(taken).or_else(|| contested.cloned()).or_else(ineligible)
}

/// For people.
#[must_use]
pub fn text(run: &DryRun) -> String {
    let mut text = String::new();
    let DryRun { name, datastore, topology, nodes, desired, .. } = run;
    if let (Some(reason), Some(text)) = (run.idle, &run.refused) {
        return format!(
            "RouteReflectorSet {name} on {nodes} nodes ({datastore}): {reason}\n\n{text}\n"
        );
    }
    let aim = match run.idle {
        Some(reason) => format!("{reason}, reflectors and mesh go"),
        None => format!("{desired} reflectors, topology {topology}"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "RouteReflectorSet {name} on {nodes} nodes ({datastore}): {aim}\n");
    if run.idle.is_none() {
        let _ =
            writeln!(text, "slot  node                            zone              cluster id");
    }
    for Reflector { slot, node, zone, cluster_id } in &run.reflectors {
        let _ = writeln!(text, "{slot:<4}  {node:<30}  {zone:<16}  {cluster_id}");
    }
    let _ = writeln!(text, "\n{} steps:", run.steps.len());
    for (i, step) in run.steps.iter().enumerate() {
        let gate = if step.gated { ", once all sessions are established" } else { "" };
        let lost = if step.lost > 0 {
            format!("; {} pairs of other nodes lose routes", step.lost)
        } else {
            String::new()
        };
        let _ = writeln!(text, "{:>4}  {}{gate}{lost}", i + 1, step.text);
    }
    if let Some(refused) = &run.refused {
        let _ = writeln!(text, "\nand no further: {refused}");
    }
    if let Some(reason) = run.idle {
        let _ = writeln!(
            text,
            "\n{reason}: no route to pods depends on the sessions that are counted here"
        );
    }
    for object in &run.unreadable {
        let _ = writeln!(text, "\nnot readable, and not part of these numbers: {object}");
    }
    let _ = writeln!(text, "\n                                       now      then");
    let (now, then) = (&run.before, &run.after);
    for (what, now, then) in [
        ("sessions", now.sessions, then.sessions),
        ("pairs without a route (RFC 4456)", now.missing, then.missing),
        ("pairs without a route (BIRD)", now.missing_by_bird, then.missing_by_bird),
        ("the same without one reflector", now.missing_without_one, then.missing_without_one),
        ("paths to one prefix, at most", now.paths_per_prefix, then.paths_per_prefix),
        ("paths in a table, at most", now.paths, then.paths),
        ("BGPPeers", now.peers as u64, then.peers as u64),
    ] {
        let _ = writeln!(text, "{what:<32}  {now:>8}  {then:>8}");
    }
    let word = |on: bool| if on { "on" } else { "off" };
    let _ = writeln!(text, "{:<32}  {:>8}  {:>8}", "mesh", word(now.mesh), word(then.mesh));
    text
}
