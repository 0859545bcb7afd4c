//! Decides whether a step keeps every route, and which of those that are left is next. Pure.
use std::fmt;

use super::{Change, Fabric, Goal, Rule, Step, Why};
use crate::route_reflector::{
    bgp_model::{Missing, Paths},
    datastore::Snapshot,
    gate::GateClosed,
    topology::BgpTopology,
};

/// Why a step is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Routes would be lost while it is done.
    Lost {
        /// Number of ordered pairs of nodes.
        pairs: u64,
        /// A pair: a node, and the node to which it would have no route.
        example: (String, String),
    },
    /// Afterwards one reflector's loss would cost routes that it does not cost now.
    Fragile {
        /// The reflector, the loss of which would cost the routes.
        reflector: String,
        /// Number of ordered pairs of nodes.
        pairs: u64,
        /// A pair: a node, and the node to which it would have no route.
        example: (String, String),
    },
    /// One reflector alone would carry every route.
    Alone,
    /// Tables would hold too many paths.
    Paths {
        /// The number of paths of one prefix at one node.
        per_prefix: u64,
        /// The number of paths in the largest table.
        table: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { pairs, example: (who, whose) } => {
                write!(f, "{who} would lose the routes to {whose} ({pairs} such pairs)")
            }
            Self::Fragile { reflector, pairs, example: (who, whose) } => write!(
                f,
                "{who} would lose the routes to {whose} if {reflector} failed ({pairs} such pairs)"
            ),
            Self::Alone => f.write_str(
                "spec.count.min: without the mesh one reflector alone is no redundancy; set count.min to 2, \
                 and count.max as well, or mesh to Leave",
            ),
            Self::Paths { per_prefix, table } => write!(
                f,
                "a node would hold {per_prefix} paths to one prefix, {table} in all: use fewer cluster ids or fewer \
                 reflectors"
            ),
        }
    }
}

fn example(missing: &Missing) -> (String, String) {
    let first = missing.examples.first();
    first.map(|(who, whose)| (who.to_string(), whose.to_string())).unwrap_or_default()
}

impl Step {
    /// Succeeds if the step can be taken. BIRD's rule decides: by the letter of RFC 4456 some
    /// transitions would be forbidden on which BIRD loses nothing.
    ///
    /// # Errors
    /// The cost of the step.
    pub fn admit(&self, before: &Fabric, after: &Fabric) -> Result<(), Refused> {
        // The mesh only adds sessions, and a replacement of a dead reflector removes nothing.
        if matches!(self, Self::Mesh(true)) || self.repairs() {
            return Ok(());
        }
        let changed = self.changed();
        let change = Change::new(before, after, &changed);
        let lost = change.lost(Rule::Bird);
        if lost.pairs > 0 {
            return Err(Refused::Lost { pairs: lost.pairs, example: example(&lost) });
        }
        // Nor afterwards, when all sessions are up: what a changed node lost for a moment comes
        // back.
        let missing = after.missing(Rule::Bird);
        if missing.pairs > before.missing(Rule::Bird).pairs {
            return Err(Refused::Lost { pairs: missing.pairs, example: example(&missing) });
        }
        if self.takes_away()
            && let Some((reflector, missing)) = change.fragile(Rule::Bird)
        {
            return Err(Refused::Fragile {
                reflector: reflector.to_string(),
                pairs: missing.pairs,
                example: example(&missing),
            });
        }
        if self.adds() {
            too_many(&after.paths(Rule::Bird), || before.paths(Rule::Bird))?;
        }
        Ok(())
    }

    /// Reports whether sessions may go.
    fn takes_away(&self) -> bool {
        match self {
            Self::Demote { .. } | Self::Mesh(false) => true,
            Self::Peers { widens, .. } => !widens,
            Self::Promote { why, .. } => *why == Why::Renumber,
            Self::LabelClients { .. } | Self::Mesh(true) => false,
        }
    }

    /// Reports whether routes may get more paths.
    fn adds(&self) -> bool {
        match self {
            Self::Peers { write, .. } => !write.is_empty(),
            Self::Promote { why, .. } => *why != Why::Adopt,
            _ => false,
        }
    }
}

/// Succeeds if the target network carries every route, also without any one reflector:
/// otherwise no step is taken.
///
/// # Errors
/// The current routes that it would not carry.
pub fn sound(bgp: &BgpTopology, goal: &Goal) -> Result<(), Refused> {
    let (before, after) = (&bgp.fabric, goal.fabric(bgp));
    let missing = after.missing(Rule::Bird);
    let missed = before.missing(Rule::Bird).pairs;
    if missing.pairs > missed {
        return Err(Refused::Lost { pairs: missing.pairs, example: example(&missing) });
    }
    if let Some((reflector, missing)) = after.worst_without_one(Rule::Bird) {
        let then = before.worst_without_one(Rule::Bird).map_or(missed, |(_, then)| then.pairs);
        if missing.pairs > then && goal.slots.len() == 1 {
            return Err(Refused::Alone);
        }
        if missing.pairs > then {
            return Err(Refused::Fragile {
                reflector: reflector.to_string(),
                pairs: missing.pairs,
                example: example(&missing),
            });
        }
    }
    too_many(&after.paths(Rule::Bird), || before.paths(Rule::Bird))
}

/// # Errors
/// More paths than a node can handle, and more than before: the existing ones are not reduced by
/// standing still.
fn too_many(after: &Paths, before: impl FnOnce() -> Paths) -> Result<(), Refused> {
    if after.bearable() {
        return Ok(());
    }
    let before = before();
    let [now, then] = [after, &before].map(|paths| paths.reflector.table.max(paths.client.table));
    if !before.bearable() && now <= then {
        return Ok(());
    }
    let per_prefix = after.reflector.per_prefix.max(after.client.per_prefix);
    Err(Refused::Paths { per_prefix, table: now })
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing is left to do.
    Done,
    /// This.
    Take(Step),
    /// This, once the gate opens.
    Wait(Step, GateClosed),
    /// No remaining step is possible without losing routes; the first step, or all, and the reason.
    Refuse(Option<Step>, Refused),
}

/// Tries the steps that are left, in their order.
///
/// `unsound` is why the whole plan is not gone for: then only what repairs is done. `gate` verifies
/// the sessions that a step depends on.
pub fn choose(
    bgp: &BgpTopology,
    goal: &Goal,
    left: &[Step],
    unsound: Option<&Refused>,
    gate: impl Fn(&Step) -> Result<(), GateClosed>,
) -> Next {
    let harmless = |step: &&Step| step.repairs() || **step == Step::Mesh(true);
    if let Some(why) = unsound {
        let repair = left.iter().find(harmless).cloned();
        return repair.map_or_else(|| Next::Refuse(None, why.clone()), Next::Take);
    }
    let mut refused = None;
    for step in left.iter().flat_map(Step::tries) {
        // Where the mesh is off, its order is the best that there is.
        if !goal.retires || bgp.fabric.mesh() {
            let after = step.after(&bgp.fabric, &goal.label.0, &goal.label.1);
            if let Err(why) = step.admit(&bgp.fabric, &after) {
                refused.get_or_insert((step, why));
                continue;
            }
        }
        if !goal.retires && !step.needs_gate() {
            return Next::Take(step);
        }
        return match gate(&step) {
            Ok(()) => Next::Take(step),
            Err(shut) => Next::Wait(step, shut),
        };
    }
    match refused {
        None => Next::Done,
        // No route depends on those that it costs.
        Some((step, _)) if goal.retires => match gate(&step) {
            Ok(()) => Next::Take(step),
            Err(shut) => Next::Wait(step, shut),
        },
        Some((step, why)) => Next::Refuse(Some(step), why),
    }
}

/// Succeeds if no known rule of Calico's refuses a step.
///
/// # Errors
/// The rule.
pub fn allowed(snapshot: &Snapshot, step: &Step) -> Result<(), GateClosed> {
    match snapshot.mesh_off_refused().filter(|_| *step == Step::Mesh(false)) {
        Some(error) => Err(GateClosed::Refused(error.to_string())),
        None => Ok(()),
    }
}

/// Describes a refusal and its reason in one line.
#[must_use]
pub fn refusal(step: Option<&Step>, why: &Refused) -> String {
    step.map_or_else(|| format!("the plan: {why}"), |step| format!("{step}: {why}"))
}
