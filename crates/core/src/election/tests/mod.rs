//! Tests, by the bug of the original operator that each covers (in its planner; bugs in its
//! executor, datastores and startup have their tests next to that code):
//!
//! | mistake | test |
//! |---|---|
//! | 4: a ratio in 32-bit floating point: one too many at exact multiples | `counts::bug_04_…` |
//! | 9: what a zone lacked was added to every later zone | `spreading::bug_09_…` |
//! | 10: rounded up in each zone: more than the maximum | `spreading::bug_10_…` |
//! | 11: the oldest reflectors were dropped first | `choosing::bug_11_…` |
//! | 13: a value of the label broke the selectors | `peering::bug_13_…` |
//! | 14: a reflector for peers and none for the count | `adopting::bug_14_…` |
//! | 15: with zones, still every client with every reflector | `peering::bug_15_…` |
//! | 16: the second reflector always from the first other zone | `multi::bug_16_…` |
//! | 17: peers by host name, one or three for each node | `peering::bug_17_…` |
//! | 18: random among nodes created in the same second | `properties::bug_18_…` |
use super::*;

mod adopting;
mod choosing;
mod counts;
mod ids;
mod layouts;
mod multi;
mod originals;
mod peering;
mod properties;
mod refusals;
mod replacing;
mod scale;
mod sizes;
mod speed;
mod spreading;

const MINUTE: Duration = Duration::from_mins(1);

/// Nodes, rules, and the status.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub rules: Rules,
    pub members: Vec<Member>,
    pub previous: Previous,
}

/// Returns the defaults of a spec, with short keys.
pub(super) fn rules() -> Rules {
    Rules {
        topology: Topology::Auto,
        count: Count {
            scope: Scope::Cluster,
            ratio: "0.005".parse().unwrap(),
            min: 3,
            max: 25,
            rounding: Rounding::Ceil,
            steps: Vec::new(),
        },
        peers_per_client: 3,
        ids: Ids { pool: Pool::parse("224.0.0.0/16").unwrap(), per: None },
        key: "rr".into(),
        zone_label: "zone".into(),
        demote_after: 10 * MINUTE,
        replace_after: 3 * MINUTE,
    }
}

impl Cluster {
    /// Ready nodes in zones: `a:2 b:1` are a00, a01 and b00, in the order of their creation; `:1`
    /// is n00, without a zone.
    pub fn new(zones: &str) -> Self {
        let mut cluster =
            Self { rules: rules(), members: Vec::new(), previous: Previous::default() };
        cluster.add(zones);
        cluster
    }

    pub fn add(&mut self, zones: &str) {
        for word in zones.split_whitespace() {
            let (zone, count) = word.split_once(':').unwrap();
            let zone = Some(zone).filter(|zone| !zone.is_empty());
            let known = self.members.iter().filter(|m| m.zone.as_deref() == zone).count();
            for number in known..known + count.parse::<usize>().unwrap() {
                let created = i64::try_from(self.members.len()).unwrap();
                self.members.push(Member {
                    name: format!("{}{number:02}", zone.unwrap_or("n")).into(),
                    zone: zone.map(Into::into),
                    created,
                    ready: true,
                    suitable: true,
                    ..Member::default()
                });
            }
        }
    }

    pub fn topology(mut self, topology: Topology) -> Self {
        self.rules.topology = topology;
        self
    }

    /// Sets the exact number of reflectors.
    pub fn count(mut self, count: usize) -> Self {
        (self.rules.count.min, self.rules.count.max) = (count, count);
        self
    }

    pub fn node(&mut self, name: &str) -> &mut Member {
        self.members.iter_mut().find(|member| &*member.name == name).unwrap()
    }

    pub fn remove(&mut self, name: &str) {
        self.members.retain(|member| &*member.name != name);
    }

    /// Makes a node not ready for a long time.
    pub fn dead(&mut self, name: &str) {
        let member = self.node(name);
        (member.ready, member.not_ready_for) = (false, Some(3 * MINUTE));
    }

    pub fn target(&self) -> Target {
        target(&self.rules, &self.members, &self.previous).unwrap()
    }

    pub fn refused(&self) -> String {
        target(&self.rules, &self.members, &self.previous).unwrap_err().to_string()
    }

    /// Establishes the target at once, and remembers it.
    pub fn settle(&mut self) -> Target {
        let target = self.target();
        let slots: BTreeMap<_, _> = target.slots.iter().map(|slot| (&slot.node, slot)).collect();
        if target.freeze.is_none() {
            for member in &mut self.members {
                let slot = slots.get(&member.name);
                member.slot = slot.map(|slot| slot.id);
                member.cluster_id = slot.map(|slot| slot.cluster_id);
                member.labeled = slot.is_some();
                member.group = target.groups.get(&member.name).cloned();
            }
        }
        self.remember(&target);
        target
    }

    /// Writes the status only.
    pub fn remember(&mut self, target: &Target) {
        let slot = |slot: &Slot| PreviousSlot {
            id: slot.id,
            node: slot.node.clone(),
            zone: slot.zone.clone(),
            cluster_id: Some(slot.cluster_id),
        };
        self.previous = Previous {
            topology: Some(target.topology),
            slots: target.slots.iter().map(slot).collect(),
            groups: target.group_slots.clone(),
        };
    }

    /// Writes only the promotions: the state between promotion and demotion.
    pub fn promote(&mut self) -> Target {
        let target = self.target();
        for slot in &target.slots {
            let member = self.node(&slot.node);
            (member.slot, member.labeled) = (Some(slot.id), true);
            member.cluster_id = Some(slot.cluster_id);
            member.group = None;
        }
        target
    }
}

impl Target {
    /// Lists slots and nodes: `0=a00 1=b00`; with `!` where it should be another node.
    pub(super) fn shown(&self) -> String {
        let show = |slot: &Slot| {
            format!("{}={}{}", slot.id, slot.node, if slot.trouble.is_some() { "!" } else { "" })
        };
        self.slots.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    /// Lists the reflectors that leave, with slot and reason: `a00 0 Surplus`.
    pub(super) fn left(&self) -> String {
        let show = |l: &Leaving| format!("{} {} {}", l.node, l.slot, l.reason.as_str());
        self.leaving.iter().map(show).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn ids(&self) -> String {
        let show = |slot: &Slot| slot.cluster_id.to_string();
        self.slots.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn zones(&self) -> String {
        let show = |(zone, count): (&Arc<str>, &usize)| format!("{zone}:{count}");
        self.by_zone.iter().map(show).collect::<Vec<_>>().join(" ")
    }
}
