//! The pods with an agent that are probed. The kubelet's last report that the agent runs decides:
//! an application that is not ready because the network is bad, and a node that died, are exactly
//! what should be measured.
use std::{collections::HashMap, net::IpAddr};

use crate::{
    nodes::Readiness,
    pods::{PodObject, address::is_probeable},
};

/// The time for which a pod that is being deleted stays on a node that is not Ready, in seconds.
/// Loss over five minutes and an alert `for: 5m` take ten; the rest is for the intervals of scrapes
/// and rules. A node that stays dead for longer has had its alert, and its pods, which cannot be
/// deleted, are no longer measured.
pub const EVIDENCE_SECONDS: i64 = 15 * 60;

/// The presence of a pod for probing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is gone, or is about to be.
    Gone,
    /// It officially still exists: it cannot be deleted on a node that does not answer.
    Stranded,
    /// It exists.
    There,
}

/// Determines the presence of a pod; `node` is the state of its node, if that exists, `now` seconds
/// since 1970.
///
/// A pod that is being deleted leaves at once, so that a rollout costs no packet. On a node that is
/// not Ready it has not ended: evictions begin five minutes after the node fell silent, which is
/// before the alert on its loss.
#[must_use]
pub fn presence(pod: &PodObject, node: Option<Readiness>, now: i64) -> Presence {
    if pod.is_finished() {
        return Presence::Gone;
    }
    if !pod.is_terminating() {
        return Presence::There;
    }
    match node {
        // A clock that is behind ours by a little must not matter, nor one that is ahead.
        Some(Readiness::NotReady(Some(since))) if now.saturating_sub(since) < EVIDENCE_SECONDS => {
            Presence::Stranded
        }
        // A node that never reported has no running pods.
        _ => Presence::Gone,
    }
}

/// The owner of each address.
///
/// The network reuses an address once the kubelet has released it, or considers it released: the
/// pod on a dead node still claims it, and its successor would be measured under the name of the
/// dead one. So an address belongs to the newest pod, with or without an agent.
pub struct Addresses<'a>(HashMap<IpAddr, Claim<'a>>);

/// The creation time of a pod; among those of one second, whether it should stay, and its UID.
type Claim<'a> = (i64, bool, &'a str);

impl<'a> Addresses<'a> {
    /// Returns the owners of addresses among these pods; those that have ended have released
    /// theirs.
    #[must_use]
    pub fn of(pods: impl Iterator<Item = &'a PodObject>) -> Self {
        let mut newest = HashMap::new();
        // A node's address is that of all its pods on the host network.
        for pod in pods.filter(|pod| !pod.is_finished() && !pod.is_host_network()) {
            for ip in pod.ips() {
                let held = newest.entry(*ip).or_insert_with(|| claim(pod));
                *held = claim(pod).max(*held);
            }
        }
        Self(newest)
    }

    /// Returns the addresses of a pod that no other pod has, and that agents may be sent to.
    #[must_use]
    pub fn own(&self, pod: &PodObject) -> Vec<IpAddr> {
        let ips = pod.ips().iter().copied().filter(is_probeable);
        ips.filter(|ip| self.0.get(ip).is_none_or(|held| *held == claim(pod))).collect()
    }
}

fn claim(pod: &PodObject) -> Claim<'_> {
    let created = pod.metadata.creation_timestamp.as_ref();
    (created.map_or(0, |time| time.0.as_second()), !pod.is_terminating(), pod.uid())
}
