//! Whether a step keeps every route.
use std::fmt;

use super::{Change, Fabric, Goal, Rule, Step, Why};
use crate::route_reflector::{
    actual::Ground,
    fabric::{Missing, Paths},
};

/// Why a step is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Routes would be lost while it is done.
    Lost {
        /// By the letter of RFC 4456, or only as BIRD has it.
        rule: &'static str,
        /// How many ordered pairs of nodes.
        pairs: u64,
        /// Who would miss whose routes.
        example: (String, String),
    },
    /// Afterwards one reflector's loss would cost routes that it does not cost now.
    Fragile {
        /// The reflector.
        reflector: String,
        /// How many ordered pairs of nodes.
        pairs: u64,
        /// Who would miss whose routes.
        example: (String, String),
    },
    /// Tables would hold too many paths.
    Paths {
        /// Of one prefix at one node.
        per_prefix: u64,
        /// Of the largest table.
        table: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { rule, pairs, example: (who, whose) } => {
                write!(f, "{who} would lose the routes of {whose} ({pairs} such pairs, by {rule})")
            }
            Self::Fragile { reflector, pairs, example: (who, whose) } => write!(
                f,
                "{who} would lose the routes of {whose} if {reflector} failed ({pairs} such pairs)"
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
    /// Whether it can be taken.
    ///
    /// # Errors
    /// What it would cost.
    pub fn admit(&self, before: &Fabric, after: &Fabric) -> Result<(), Refused> {
        let changed = self.changed();
        let change = Change::new(before, after, &changed);
        for (rule, word) in [(Rule::Rfc, "RFC 4456"), (Rule::Bird, "BIRD's rule")] {
            let lost = change.lost(rule);
            if lost.pairs > 0 {
                let (pairs, example) = (lost.pairs, example(&lost));
                return Err(Refused::Lost { rule: word, pairs, example });
            }
        }
        // Nor afterwards, when all sessions are up: what a changed node lost for a moment comes back.
        for (rule, word) in [(Rule::Rfc, "RFC 4456"), (Rule::Bird, "BIRD's rule")] {
            let missing = after.missing(rule);
            if missing.pairs > before.missing(rule).pairs {
                let (pairs, example) = (missing.pairs, example(&missing));
                return Err(Refused::Lost { rule: word, pairs, example });
            }
        }
        if self.takes_away() {
            for rule in [Rule::Rfc, Rule::Bird] {
                if let Some((reflector, missing)) = change.fragile(rule)
                    && missing.pairs > 0
                {
                    return Err(Refused::Fragile {
                        reflector: reflector.to_string(),
                        pairs: missing.pairs,
                        example: example(&missing),
                    });
                }
            }
        }
        if self.adds() {
            too_many(&after.paths(Rule::Bird), || before.paths(Rule::Bird))?;
        }
        Ok(())
    }

    /// Whether sessions may go.
    fn takes_away(&self) -> bool {
        match self {
            Self::DeletePeer { .. } | Self::Demote { .. } | Self::Mesh(false) => true,
            Self::WritePeer { widens, .. } => !widens,
            Self::Mark { why, .. } => *why == Why::Renumber,
            Self::LabelClients { .. } | Self::Mesh(true) => false,
        }
    }

    /// Whether routes may get more paths.
    fn adds(&self) -> bool {
        match self {
            Self::WritePeer { .. } => true,
            Self::Mark { why, .. } => *why != Why::Adopt,
            _ => false,
        }
    }
}

/// Whether the network that is aimed at carries every route, also without any one reflector: whoever cannot
/// get there is not to set out.
///
/// # Errors
/// What it would not carry that is carried now.
pub fn sound(ground: &Ground, goal: &Goal) -> Result<(), Refused> {
    let (before, after) = (&ground.fabric, goal.fabric(ground));
    for (rule, word) in [(Rule::Rfc, "RFC 4456"), (Rule::Bird, "BIRD's rule")] {
        let missing = after.missing(rule);
        if missing.pairs > before.missing(rule).pairs {
            let (pairs, example) = (missing.pairs, example(&missing));
            return Err(Refused::Lost { rule: word, pairs, example });
        }
        let worst = |fabric: &Fabric| {
            let worst = fabric.worst_without_one(rule);
            worst.map(|(reflector, missing)| (missing.pairs, reflector, example(&missing)))
        };
        if let Some((pairs, reflector, example)) = worst(&after)
            && pairs > worst(before).map_or(before.missing(rule).pairs, |(pairs, ..)| pairs)
        {
            return Err(Refused::Fragile { reflector: reflector.to_string(), pairs, example });
        }
    }
    too_many(&after.paths(Rule::Bird), || before.paths(Rule::Bird))
}

/// # Errors
/// More paths than can be borne, and more than before: what is there already is not made better by standing
/// still.
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
