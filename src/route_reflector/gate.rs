//! Verifies the sessions that a step depends on.
//!
//! They are counted by name, not asked whether one is down: a BIRD that is dead has no series at
//! all. Nodes have thousands of neighbors, and most of them the same: the expected sessions are
//! stored as a few sets of names ([`Wanted`]), and the query counts, for each node, the established
//! sessions of each set.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    bgp_model::{Kind, Protocol},
    datastore::{Report, Unreadable},
    names::few,
};
use crate::{
    controller::disruptions::Busy,
    nodes::{Identity, Resolution, ShortNames},
    placement::hash,
    prometheus::{
        Exporters, QueryError, decode,
        exporters::{MEASURE, job_of, note_job, other_jobs, untrusted},
    },
};

/// The expected sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The node-to-node mesh is on.
    pub mesh: bool,
    sets: Vec<Set>,
    nodes: BTreeMap<Arc<str>, Entry>,
}

/// Neighbors with which the same nodes should have sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// Distinguishes it from every other set of names.
    pub tag: Box<str>,
    /// The node at the other end, by session.
    pub names: BTreeMap<Protocol, Arc<str>>,
    /// Number of these that each node has: a node in the set has none with itself.
    members: BTreeMap<Arc<str>, usize>,
}

/// The expected sessions of one node.
#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    sets: Vec<usize>,
    part: Part,
}

/// The role of a node in a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The gate depends on its sessions.
    pub gated: bool,
    /// It reflects routes.
    pub reflector: bool,
}

impl Wanted {
    /// None yet.
    #[must_use]
    pub fn new(mesh: bool) -> Self {
        Self { mesh, ..Self::default() }
    }

    /// Adds a node.
    pub fn node(&mut self, name: &Arc<str>, part: Part) {
        self.nodes.entry(Arc::clone(name)).or_default().part = part;
    }

    /// Adds sessions with these neighbors, each with its name, of all nodes in `by` that have been
    /// added.
    pub fn sessions<'n>(
        &mut self,
        names: BTreeMap<Protocol, Arc<str>>,
        by: impl Iterator<Item = &'n Arc<str>>,
    ) {
        if names.is_empty() {
            return;
        }
        let all: Vec<String> = names.keys().map(ToString::to_string).collect();
        let tag = format!("{:016x}", hash::of(&all.join("|"))).into();
        let place = self.sets.len();
        for node in by {
            if let Some(entry) = self.nodes.get_mut(node) {
                entry.sets.push(place);
            }
        }
        let mut members = BTreeMap::new();
        for member in names.values() {
            *members.entry(Arc::clone(member)).or_default() += 1;
        }
        self.sets.push(Set { tag, names, members });
    }

    /// All sets.
    #[must_use]
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// The sets with which a node should have sessions.
    pub fn of(&self, node: &str) -> impl Iterator<Item = &Set> {
        let sets = self.nodes.get(node).map(|entry| entry.sets.as_slice());
        sets.unwrap_or_default().iter().map(|&place| &self.sets[place])
    }

    /// Returns the number of expected sessions of a node, without those with `silent` nodes.
    #[must_use]
    pub fn count(&self, node: &str, silent: &BTreeSet<Arc<str>>) -> u32 {
        let count = |set: &Set| {
            let of = |other: &str| set.members.get(other).copied().unwrap_or_default();
            let silent = silent.iter().filter(|other| &***other != node);
            let without = of(node) + silent.map(|other| of(other)).sum::<usize>();
            u32::try_from(set.names.len().saturating_sub(without)).unwrap_or(u32::MAX)
        };
        self.of(node).map(count).sum()
    }

    /// The nodes with sessions on which the gate depends.
    pub fn gated(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().filter(|(_, entry)| entry.part.gated).map(|(name, _)| name)
    }

    /// The nodes that reflect routes.
    pub fn reflectors(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().filter(|(_, entry)| entry.part.reflector).map(|(name, _)| name)
    }

    /// The nodes that reflect none.
    pub fn clients(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().filter(|(_, entry)| !entry.part.reflector).map(|(name, _)| name)
    }

    /// Reports whether the gate depends on no session at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let nobody = BTreeSet::new();
        self.gated().all(|node| self.count(node, &nobody) == 0)
    }
}

/// Minimum time between a step and a sample that counts for the time after it: the watch that
/// informs Calico's confd, its rendering, and BIRD's reload. Sessions that a reload resets are down
/// then.
pub const SETTLE_SECONDS: f64 = 5.0;

/// The sessions of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Number of established sessions, by a custom query.
    pub established: Option<u32>,
    /// The time of that observation, in seconds since 1970 by our clock, if it is known.
    pub sampled: Option<f64>,
}

/// The measurements, by node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The nodes with evidence.
    pub nodes: BTreeMap<Arc<str>, Counted>,
    /// The queried sessions; `None` if each node has its own number or names.
    pub asked: Option<Arc<Wanted>>,
    /// Number of established sessions of each set, by its index in `asked`, at a node. Without any
    /// it is absent.
    pub sets: BTreeMap<(Arc<str>, usize), u32>,
    /// The sessions that are established, where a report has them: it has no ports.
    pub reported: BTreeMap<Arc<str>, BTreeSet<(Kind, IpAddr)>>,
    /// The addresses that some node has an established session with.
    pub seen: BTreeSet<IpAddr>,
    /// The time at which each report was written, by its node's clock.
    written: BTreeMap<Arc<str>, Timestamp>,
    /// The time at which reports were last read, by our clock.
    looked: Option<f64>,
    /// Number of series that do not count as evidence: not finite, negative, of no node, two for
    /// one node.
    pub rejected: usize,
    /// Jobs that have the series, if none of them is accepted.
    pub other_jobs: Vec<String>,
}

impl Measured {
    /// Takes the contents of reports, read now, in seconds since 1970. Each counts as old as the
    /// last check before it appeared, because the clocks of nodes are not trusted. A report that
    /// existed at the first check may be of any age.
    pub fn hear(&mut self, reports: BTreeMap<String, Report>, now: f64) {
        for (node, report) in reports {
            let node: Arc<str> = node.into();
            if self.written.insert(Arc::clone(&node), report.updated) != Some(report.updated) {
                let sampled = Some(self.looked.unwrap_or(0.0));
                self.nodes.insert(Arc::clone(&node), Counted { sampled, established: None });
                self.reported.insert(node, report.established);
            }
        }
        self.looked = Some(now);
    }

    /// Returns the number of a node's expected sessions that are established; `None` if that was
    /// not queried.
    #[must_use]
    pub fn established(&self, wanted: &Wanted, node: &Arc<str>) -> Option<u32> {
        if let Some(reported) = self.reported.get(node) {
            let there = |name: &&Protocol| reported.contains(&(name.kind, name.address));
            let among = |set: &Set| set.names.keys().filter(there).count();
            return u32::try_from(wanted.of(node).map(among).sum::<usize>()).ok();
        }
        let Some(asked) = &self.asked else {
            return Some(self.nodes.get(node)?.established.unwrap_or(0));
        };
        let among = |set: &Set| {
            let place = asked.sets().iter().position(|known| known.tag == set.tag)?;
            Some(self.sets.get(&(Arc::clone(node), place)).copied().unwrap_or(0))
        };
        wanted.of(node).map(among).sum()
    }

    /// Returns the clients without any session, by their own report and by everyone else's: they
    /// have nothing to lose, and no node can have a session with them. Returns none while too
    /// little is known.
    #[must_use]
    pub fn silent(&self, wanted: &Wanted) -> BTreeSet<Arc<str>> {
        if !self.reported.is_empty() {
            let silent =
                |node: &&Arc<str>| self.reported.get(*node).is_some_and(BTreeSet::is_empty);
            return wanted.clients().filter(silent).cloned().collect();
        }
        let names = wanted.sets().iter().flat_map(|set| &set.names);
        let met: BTreeSet<&Arc<str>> = names
            .filter(|(name, _)| self.seen.contains(&name.address))
            .map(|(_, node)| node)
            .collect();
        let own: BTreeSet<&Arc<str>> = self.sets.keys().map(|(node, _)| node).collect();
        let alive = |node: &Arc<str>| own.contains(node) || met.contains(node);
        // A client may be visible only to its reflector, which may have no report.
        let heard = |node: &Arc<str>| self.nodes.contains_key(node) || !alive(node);
        let silent: BTreeSet<_> = wanted.clients().filter(|node| !alive(node)).cloned().collect();
        // A broken measurement reports many nodes without a session.
        let clients = wanted.clients().count();
        let few = silent.len() * 2 <= clients;
        // Sessions of the mesh are between clients: reflectors know nothing of them.
        let scraped = wanted.clients().filter(|node| self.nodes.contains_key(*node)).count();
        let enough = !wanted.mesh || scraped * 2 >= clients;
        if self.asked.is_some() && few && enough && wanted.reflectors().all(heard) {
            silent
        } else {
            BTreeSet::new()
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; checked")]
fn whole(value: f64) -> u32 {
    value as u32
}

/// The measure of how long ago a node was scraped, in seconds by the clock of Prometheus itself.
const AGE: &str = "age";

/// The measure of names that some node has an established session under.
const NAME: &str = "name";

/// Prefix of the measure of established sessions of a set; its tag follows.
const SET: &str = "set_";

/// Counts the established sessions of each set by the series of `bird_exporter`, each name once;
/// also queries when they were scraped, and with which nodes any node has a session.
#[must_use]
pub fn query(exporters: &Exporters, wanted: &Wanted) -> String {
    let by = by(&exporters.node_labels);
    let (metric, believed, bgp) = ("bird_protocol_up", &exporters.bird_exporter, r#"proto="BGP""#);
    let established = format!(r#"{bgp},state="Established""#);
    let (up, all) = (believed.select(metric, &established), believed.select(metric, bgp));
    let tagged = |text: &str, measure: &str| {
        format!(r#"label_replace({text}, "{MEASURE}", "{measure}", "", "")"#)
    };
    let mut parts = Vec::new();
    for set in wanted.sets() {
        // Names of letters, digits and _ alone: Prometheus looks each up, and runs no regular
        // expression.
        let names: Vec<_> = set.names.keys().map(ToString::to_string).collect();
        let names = format!(r#"{established},name=~"{}""#, names.join("|"));
        let up = believed.select(metric, &names);
        let distinct = format!("count by ({by}) (group by ({by}, name) ({up} == 1))");
        parts.push(tagged(&distinct, &format!("{SET}{}", set.tag)));
    }
    // An age needs one clock; a time would need ours and theirs to agree.
    parts.push(tagged(&format!("time() - min by ({by}) (timestamp({all}))"), AGE));
    parts.push(tagged(&format!("group by (name) ({up})"), NAME));
    parts.extend(other_jobs(metric, bgp, believed));
    parts.join(" or ")
}

fn by(node_labels: &[String]) -> String {
    let mut labels = vec!["instance"];
    labels.extend(node_labels.iter().map(String::as_str).filter(|label| *label != "instance"));
    labels.join(", ")
}

/// The query.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The sessions; `None` with a query of an author's.
    pub wanted: Option<Arc<Wanted>>,
    /// The time of the query, in seconds since 1970 by our clock.
    pub at: f64,
}

/// The content of one element.
#[derive(Clone, Copy)]
enum Said {
    /// A number of sessions, of a query of an author's.
    Number(f64),
    /// A number of sessions of this set.
    Set(usize, f64),
    Age(f64),
}

impl Measured {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is not a vector, or may be partial.
    pub fn read(
        (status, content_type, body): (u16, &str, &[u8]),
        identity: &Identity,
        node_labels: &[String],
        asked: &Asked,
    ) -> Result<Self, QueryError> {
        let mut measured = Self { asked: asked.wanted.clone(), ..Self::default() };
        let (mut names, mut undecided, mut twice) = (ShortNames::default(), vec![], vec![]);
        let sets = asked.wanted.iter().flat_map(|wanted| wanted.sets()).enumerate();
        let sets: BTreeMap<&str, usize> = sets.map(|(place, set)| (&*set.tag, place)).collect();
        let said = |measure: Option<&str>, value: f64| {
            let number = Some(value).filter(|value| *value >= 0.0);
            match measure {
                _ if asked.wanted.is_none() => number.map(Said::Number),
                Some(AGE) => Some(Said::Age(value.max(0.0))),
                Some(measure) => {
                    let place = *sets.get(measure.strip_prefix(SET)?)?;
                    number.map(|number| Said::Set(place, number))
                }
                None => None,
            }
        };
        let warnings = decode::vector(status, content_type, body, |element| {
            if let Some(job) = job_of(&element.labels) {
                note_job(&mut measured.other_jobs, job);
                return Ok(());
            }
            let measure = element.labels.get(MEASURE);
            if measure == Some(NAME) && asked.wanted.is_some() {
                let name = element.labels.get("name").and_then(|name| name.parse().ok());
                measured.seen.extend(name.map(|name: Protocol| name.address));
                return Ok(());
            }
            let found = identity.resolve(node_labels, |label| element.labels.get(label));
            let value = element.value.filter(|value| value.is_finite());
            names.meet(found);
            match (found, value.and_then(|value| said(measure, value))) {
                (Resolution::Node(place), Some(said)) => {
                    measured.take(&identity.names()[place], said, asked.at, &mut twice);
                }
                (Resolution::Short(place, host), Some(said)) => {
                    undecided.push((place, Box::<str>::from(host), said));
                }
                _ => measured.rejected += 1,
            }
            Ok(())
        })?;
        // A node that is missing may have all of its sessions, and the next step waits for them.
        decode::whole(&warnings)?;
        for (place, host, said) in undecided {
            match names.settle(Resolution::Short(place, &host)) {
                Resolution::Node(place) => {
                    measured.take(&identity.names()[place], said, asked.at, &mut twice);
                }
                _ => measured.rejected += 1,
            }
        }
        for name in twice {
            measured.rejected += 1;
            measured.nodes.remove(&name);
            measured.sets.retain(|(node, _), _| *node != name);
        }
        Ok(measured)
    }

    fn take(&mut self, node: &Arc<str>, said: Said, at: f64, twice: &mut Vec<Arc<str>>) {
        let counted = self.nodes.entry(Arc::clone(node)).or_default();
        let again = match said {
            Said::Age(age) => {
                // If there are two exporters, the older one counts.
                let sampled = at - age;
                counted.sampled = Some(counted.sampled.map_or(sampled, |known| known.min(sampled)));
                false
            }
            Said::Number(number) => counted.established.replace(whole(number)).is_some(),
            Said::Set(place, number) => {
                self.sets.insert((Arc::clone(node), place), whole(number)).is_some()
            }
        };
        if again {
            twice.push(Arc::clone(node));
        }
    }
}

/// Why the gate is shut.
#[derive(Clone, Debug, PartialEq)]
pub enum GateClosed {
    /// The time after the last step is not over: seconds that are left.
    Waiting(u64),
    /// No query could be sent, or all of them failed.
    Unavailable(String),
    /// Nodes with fewer sessions than expected: node, established, expected.
    Missing(Vec<(Arc<str>, u32, u32)>),
    /// No series is accepted, although these jobs have some.
    Untrusted(Vec<String>),
    /// Nodes without measurements.
    NoEvidence(Vec<Arc<str>>),
    /// Nodes that were not measured since the last step.
    Stale(Vec<Arc<str>>),
    /// The datastore that the step writes to does not answer.
    Datastore(String),
    /// An object of another owner cannot be read, and Calico may apply it: the routes that a step
    /// takes away are unknown.
    Unreadable(Unreadable),
    /// The API server refuses the write, or would.
    Refused(String),
    /// Another client undoes the step again and again.
    Contested,
    /// Another object disrupts a zone of the nodes that the step changes.
    Busy(Busy),
    /// It is not certain that no route depends on BGP.
    Routes(String),
}

impl GateClosed {
    /// A word for the condition.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Waiting(_) | Self::Stale(_) => "WaitingForSamples",
            Self::Unavailable(_) | Self::Untrusted(_) | Self::NoEvidence(_) => "GateUnavailable",
            Self::Missing(_) => "WaitingForSessions",
            Self::Datastore(_) => "DatastoreUnreachable",
            Self::Unreadable(_) => "CalicoUnreadable",
            Self::Refused(_) => "Refused",
            Self::Contested => "Contested",
            Self::Busy(_) => "WaitingForZone",
            Self::Routes(_) => "WaitingForRoutes",
        }
    }

    /// Reports whether there are no measurements at all, rather than missing sessions.
    #[must_use]
    pub fn is_blind(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Untrusted(_) | Self::NoEvidence(_))
    }
}

/// No figures that change at every pass: each new text is a write.
impl fmt::Display for GateClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(_) => f.write_str("the waiting time after the last step has not passed"),
            Self::Unavailable(text) => write!(f, "sessions cannot be counted: {text}"),
            Self::Missing(nodes) => {
                let nodes = nodes.iter().map(|(node, established, expected)| {
                    format!("{node} has {established} of {expected}")
                });
                write!(f, "sessions are not established: {}", few(nodes))
            }
            Self::Datastore(text) | Self::Refused(text) | Self::Routes(text) => f.write_str(text),
            Self::Unreadable(object) => {
                write!(f, "the routes of an object that cannot be read are unknown: {object}")
            }
            Self::Contested => f.write_str(
                "another client undoes this step again and again; it is taken ever less often, at least every 5 \
                 minutes; --show-managed-fields shows who writes the object",
            ),
            Self::Busy(busy) => write!(f, "{busy}"),
            Self::Untrusted(jobs) => {
                let why = untrusted("bird_exporter", "--bird-exporter-selector", jobs);
                write!(f, "sessions cannot be counted: {why}")
            }
            Self::NoEvidence(nodes) => {
                write!(f, "no sessions are measured on {}", few(nodes.iter()))
            }
            Self::Stale(nodes) => {
                write!(f, "not measured since the last step: {}", few(nodes.iter()))
            }
        }
    }
}

/// Nodes whose expected sessions were not observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unseen {
    /// Node, established, expected.
    pub missing: Vec<(Arc<str>, u32, u32)>,
    /// These have no measurements.
    pub unknown: Vec<Arc<str>>,
    /// These were not measured since the last step.
    pub stale: Vec<Arc<str>>,
}

/// Returns the nodes that the gate depends on and whose sessions were not observed after the last
/// step.
#[must_use]
pub fn unseen(wanted: &Wanted, measured: &Measured, last_step: Option<f64>) -> Unseen {
    let mut unseen = Unseen::default();
    let silent = measured.silent(wanted);
    for node in wanted.gated().filter(|node| !silent.contains(*node)) {
        let expected = wanted.count(node, &silent);
        if expected == 0 {
            continue;
        }
        let Some(counted) = measured.nodes.get(node) else {
            unseen.unknown.push(Arc::clone(node));
            continue;
        };
        let is_old = match (last_step, counted.sampled) {
            (Some(step), Some(sampled)) => sampled < step + SETTLE_SECONDS,
            _ => false,
        };
        match measured.established(wanted, node).filter(|_| !is_old) {
            None => unseen.stale.push(Arc::clone(node)),
            Some(established) if established < expected => {
                unseen.missing.push((Arc::clone(node), established, expected));
            }
            Some(_) => {}
        }
    }
    unseen
}

/// Decides whether every node that the gate depends on has its expected sessions, measured after
/// the last step.
///
/// # Errors
/// The reason why not: known missing sessions before unknown ones.
pub fn judge(
    wanted: &Wanted,
    measured: &Measured,
    last_step: Option<f64>,
) -> Result<(), GateClosed> {
    let Unseen { missing, unknown, stale } = unseen(wanted, measured, last_step);
    if !missing.is_empty() {
        return Err(GateClosed::Missing(missing));
    }
    if !unknown.is_empty() && measured.nodes.is_empty() && !measured.other_jobs.is_empty() {
        return Err(GateClosed::Untrusted(measured.other_jobs.clone()));
    }
    if !unknown.is_empty() {
        return Err(GateClosed::NoEvidence(unknown));
    }
    if !stale.is_empty() {
        return Err(GateClosed::Stale(stale));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
