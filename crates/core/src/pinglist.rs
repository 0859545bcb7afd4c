//! The list of peers that an agent probes, as the operator serves it and the agent keeps it.
use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::budget;

/// The shortest period: the minimum of `spec.pollingPeriod`, so that no list makes an agent flood
/// its peers.
pub const LEAST_PERIOD: Duration = Duration::from_millis(100);

/// The longest period: less than one probe a day measures nothing, and times within a day can be
/// added without overflow.
pub const LONGEST_PERIOD: Duration = Duration::from_hours(24);

/// The period of a list that names none: that of the original.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(10);

/// The timeout of a list that names none, if the period is not shorter: after a second an answer is
/// useless to its client, and TCP has retransmitted a lost SYN.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// The protocol of a probe.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Protocol {
    /// A request on a new connection, up to the headers of the response.
    #[serde(rename = "HTTP")]
    Http,
    /// A connection.
    #[serde(rename = "TCP")]
    Tcp,
    /// A packet and its echo.
    #[serde(rename = "UDP")]
    Udp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Http, Self::Tcp, Self::Udp];

    /// The value of the label `protocol`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// The peers of one agent, and the settings of its probes. JSON; durations are text such as `10s`
/// or `500ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pinglist {
    /// The `NetworkProber` it is of, as `<namespace>/<name>`.
    pub prober: String,
    /// The pod that the list is for.
    #[serde(rename = "self")]
    pub own: PinglistSelf,
    /// Each protocol probes each peer once in this time.
    #[serde(with = "duration_text")]
    pub period: Duration,
    /// A probe without an answer within this time has failed.
    #[serde(with = "duration_text")]
    pub timeout: Duration,
    /// The protocols of the probes.
    pub probes: Vec<Protocol>,
    /// True if the original's metric is exported too.
    #[serde(default = "yes")]
    pub original_metrics: bool,
    /// Pods that this agent probes.
    pub peers: Vec<Peer>,
    /// What it probes besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Destination>,
}

/// A target of `spec.targets`. Its fields decide how far a probe of it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Destination {
    /// Its name in the spec, the label `target`.
    pub name: String,
    /// The name to resolve, or an address.
    pub host: String,
    /// The port to connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// True for a TLS handshake after that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// The path to get then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Destination {
    /// Longest name of a target: that of a label of DNS.
    pub const LONGEST_NAME: usize = 63;

    /// Longest host: that of a name of DNS.
    pub const LONGEST_HOST: usize = 253;

    /// Longest path.
    pub const LONGEST_PATH: usize = 512;

    /// Reports whether an agent can probe it.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        let within = |text: &str, most: usize| !text.is_empty() && text.len() <= most;
        within(&self.name, Self::LONGEST_NAME)
            && within(&self.host, Self::LONGEST_HOST)
            && self.port != Some(0)
            && self
                .path
                .as_ref()
                .is_none_or(|path| path.starts_with('/') && path.len() <= Self::LONGEST_PATH)
    }
}

/// The pod that probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinglistSelf {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// The node it runs on; "" if unknown.
    pub node: String,
    /// The zone of that node; "" if unknown.
    pub zone: String,
}

/// A pod that is probed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// The pod's label in the original metric: its name, prefixed with its namespace (`ns/name`) if
    /// that is not the `NetworkProber`'s.
    pub key: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Its addresses: at most one of each family is probed, the first.
    pub ips: Vec<IpAddr>,
    /// The port on which it answers pings: TCP for HTTP, and UDP for the echo.
    pub port: u16,
    /// The node it runs on; "" if unknown.
    pub node: String,
    /// The zone of that node; "" if unknown.
    pub zone: String,
}

impl Pinglist {
    /// Returns the list with valid values: a period or timeout of zero becomes the default, the
    /// period has a minimum and a maximum, the timeout is at most the period, no protocol means
    /// HTTP as in the original, nothing occurs twice, and there are no more peers and targets than an
    /// agent may probe, so that a longer list takes no memory.
    #[must_use]
    pub fn sane(mut self) -> Self {
        if self.period.is_zero() {
            self.period = DEFAULT_PERIOD;
        }
        self.period = self.period.clamp(LEAST_PERIOD, LONGEST_PERIOD);
        if self.timeout.is_zero() {
            self.timeout = DEFAULT_TIMEOUT;
        }
        self.timeout = self.timeout.min(self.period);
        if self.probes.is_empty() {
            self.probes.push(Protocol::Http);
        }
        self.probes.sort_unstable();
        self.probes.dedup();
        self.targets.retain(Destination::is_sane);
        self.targets.sort_unstable();
        self.targets.dedup_by(|one, before| one.name == before.name);
        self.targets.truncate(budget::TARGETS);
        self.targets.shrink_to_fit();
        self.peers.sort_unstable();
        self.peers.dedup();
        let most = self.most_peers(&self.peers);
        self.peers.truncate(most);
        // Returns the memory of a longer list.
        self.peers.shrink_to_fit();
        self
    }

    /// Returns the number of these peers that an agent may probe at a time by this list.
    #[must_use]
    pub fn most_peers(&self, of: &[Peer]) -> usize {
        // One of each family.
        let addresses = of.iter().map(|peer| peer.ips.len().min(2)).max().unwrap_or(1);
        let protocols = self.probes.len().max(1);
        budget::most_peers(protocols, addresses, self.original_metrics, self.targets.len())
    }
}

const fn yes() -> bool {
    true
}

mod duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*duration))
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_duration(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;
    use crate::placement::hash;

    const DOCUMENT: &str = r#"{"prober":"ns/mesh","self":{"namespace":"a","name":"pod-a","uid":"1","node":"n1","zone":"z1"},
        "period":"10s","timeout":"1s","probes":["HTTP","TCP","UDP"],"originalMetrics":true,
        "peers":[{"key":"pod-b","namespace":"a","name":"pod-b","uid":"2","ips":["10.0.0.2","fd00::2"],"port":9090,"node":"n2","zone":"z2"}],
        "targets":[{"name":"api","host":"kubernetes.default.svc","port":443,"tls":true,"path":"/readyz"},{"name":"dns","host":"example.com"}]}"#;

    #[test]
    fn the_document_is_read_and_written_back() {
        let list: Pinglist = serde_json::from_str(DOCUMENT).unwrap();
        assert_eq!(list.period, Duration::from_secs(10));
        assert_eq!(list.own.zone, "z1");
        assert_eq!(list.peers[0].ips.len(), 2);
        let text = serde_json::to_value(&list).unwrap();
        assert_eq!(text, serde_json::from_str::<serde_json::Value>(DOCUMENT).unwrap());
    }

    /// An agent may be older than its operator, or newer after a downgrade.
    #[test]
    fn a_list_of_another_version_is_read_without_what_is_unknown_or_missing() {
        let newer = DOCUMENT.replace(r#""zone":"#, r#""rack":{"row":[1]},"zone":"#);
        let newer = newer.replacen('{', r#"{"future":"1s","#, 1);
        assert!(newer.contains("rack") && newer.contains("future"));
        let list: Pinglist = serde_json::from_str(&newer).unwrap();
        let same: Pinglist = serde_json::from_str(DOCUMENT).unwrap();
        assert_eq!(list, same);
        let older =
            r#"{"prober":"a/b","self":{},"period":"10s","timeout":"1s","probes":[],"peers":[{}]}"#;
        let list: Pinglist = serde_json::from_str(older).unwrap();
        assert!(list.original_metrics && list.own.zone.is_empty());
        assert_eq!(list.peers, [Peer::default()]);
    }

    #[test]
    fn odd_figures_become_workable_ones() {
        let list: Pinglist = serde_json::from_str(DOCUMENT).unwrap();
        let ms = Duration::from_millis;
        for (period, timeout, expected_period, expected_timeout) in [
            (0, 0, 10_000, 1_000),
            (1, 0, 100, 100),
            (1_000, 5_000, 1_000, 1_000),
            (60_000, 30_000, 60_000, 30_000),
            (u64::MAX, u64::MAX, 86_400_000, 86_400_000),
        ] {
            let odd = Pinglist { period: ms(period), timeout: ms(timeout), ..list.clone() };
            let sane = odd.sane();
            assert_eq!((sane.period, sane.timeout), (ms(expected_period), ms(expected_timeout)));
        }
        let none = Pinglist { probes: vec![], ..list.clone() }.sane();
        assert_eq!(none.probes, [Protocol::Http]);
        let peers = vec![list.peers[0].clone(), list.peers[0].clone()];
        assert_eq!(Pinglist { peers, ..list }.sane().peers.len(), 1);
    }

    #[test]
    fn no_list_makes_an_agent_probe_more_than_it_may() {
        let list: Pinglist = serde_json::from_str(DOCUMENT).unwrap();
        let peer = |i: usize| Peer { key: format!("pod-{i}"), ..list.peers[0].clone() };
        let peers: Vec<_> = (0..5000).map(peer).collect();
        // Three protocols, two families, the original's metric: the smallest maximum.
        let list = Pinglist { targets: vec![], ..list };
        assert_eq!(Pinglist { peers: peers.clone(), ..list.clone() }.sane().peers.len(), 14);
        let target = |i: usize| Destination { name: format!("t{}", i / 2), ..target("x") };
        let targets = (0..100).map(target).collect();
        let full = Pinglist { peers: peers.clone(), targets, ..list.clone() }.sane();
        assert_eq!((full.peers.len(), full.targets.len()), (10, budget::TARGETS));
        let cheap =
            Pinglist { peers, probes: vec![Protocol::Tcp], original_metrics: false, ..list };
        assert_eq!(cheap.sane().peers.len(), 70);
    }

    fn target(name: &str) -> Destination {
        Destination { name: name.into(), host: "example.com".into(), ..Destination::default() }
    }

    #[test]
    fn targets_that_cannot_be_probed_are_left_out() {
        let list: Pinglist = serde_json::from_str(DOCUMENT).unwrap();
        let path = |path: &str| Destination { path: Some(path.into()), ..target("p") };
        for bad in [
            target(""),
            target(&"a".repeat(64)),
            Destination { host: String::new(), ..target("h") },
            Destination { host: "a".repeat(254), ..target("h") },
            Destination { port: Some(0), ..target("z") },
            path("x"),
            path(&format!("/{}", "a".repeat(512))),
        ] {
            let targets = vec![bad.clone(), target("good")];
            let sane = Pinglist { targets, ..list.clone() }.sane();
            assert_eq!(sane.targets, [target("good")], "{bad:?}");
        }
    }

    /// However many pods there are, a target has a bounded number of requests; and no pod that comes
    /// or goes changes more than one agent.
    #[test]
    fn a_bounded_number_of_agents_probes_targets() {
        let uids: Vec<_> = (0..1000).map(|i| format!("uid-{i}")).collect();
        let probing = |count: usize| -> Vec<&String> {
            let limit = budget::target_agents(uids[..count].iter().map(String::as_str));
            uids[..count].iter().filter(|uid| hash::of(uid) <= limit).collect()
        };
        assert_eq!(probing(300).len(), 300);
        assert_eq!(probing(301).len(), 300);
        let (before, after) = (probing(1000), probing(999));
        assert_eq!((before.len(), after.len()), (300, 300));
        assert!(after.iter().filter(|uid| !before.contains(uid)).count() <= 1);
    }

    proptest! {
        #[test]
        fn every_list_survives_the_wire(period in 0u64..1_000_000, timeout in 0u64..1_000_000, port: u16, ips: Vec<IpAddr>, key: String) {
            let list = Pinglist {
                prober: "a/b".into(),
                own: PinglistSelf::default(),
                period: Duration::from_millis(period),
                timeout: Duration::from_millis(timeout),
                probes: Protocol::ALL.to_vec(),
                original_metrics: false,
                peers: vec![Peer { key: key.clone(), ips, port, ..Peer::default() }],
                targets: vec![Destination { name: key, port: Some(port), ..target("x") }],
            };
            let text = serde_json::to_string(&list).unwrap();
            prop_assert_eq!(serde_json::from_str::<Pinglist>(&text).unwrap(), list);
        }

        /// Whatever a list says, an agent can work by it, and a second look changes nothing.
        #[test]
        fn every_list_becomes_one_to_work_by(
            period: Duration, timeout: Duration, original_metrics: bool,
            probes in collection::vec(prop::sample::select(Protocol::ALL.to_vec()), 0..6),
            peers in collection::vec((0..40_u16, 0..4_usize), 0..200),
        ) {
            let peer = |(port, ips): (u16, usize)| {
                let ips = (0..ips).map(|i| IpAddr::from([10, 0, 0, u8::try_from(i).unwrap_or(0)]));
                Peer { port, ips: ips.collect(), ..Peer::default() }
            };
            let list = Pinglist {
                prober: "a/b".into(),
                own: PinglistSelf::default(),
                period,
                timeout,
                probes,
                original_metrics,
                peers: peers.into_iter().map(peer).collect(),
                targets: vec![target("b"), target("a"), target("b")],
            };
            let sane = list.clone().sane();
            prop_assert!((LEAST_PERIOD..=LONGEST_PERIOD).contains(&sane.period));
            prop_assert!(!sane.timeout.is_zero() && sane.timeout <= sane.period);
            prop_assert!(!sane.probes.is_empty() && sane.probes.is_sorted_by(|a, b| a < b));
            prop_assert!(sane.peers.is_sorted_by(|a, b| a < b));
            prop_assert!(sane.peers.iter().all(|peer| list.peers.contains(peer)));
            prop_assert!(sane.peers.len() <= sane.most_peers(&sane.peers));
            prop_assert_eq!(sane.clone().sane(), sane);
        }

        /// A list that breaks off is no shorter list.
        #[test]
        fn no_beginning_of_a_list_is_a_list(cut in 0..DOCUMENT.len()) {
            let begun = &DOCUMENT[..DOCUMENT.floor_char_boundary(cut)];
            prop_assert!(serde_json::from_str::<Pinglist>(begun).is_err());
        }

        #[test]
        fn an_edited_list_is_read_as_it_stands_or_refused_with_the_place(
            cut in 0..DOCUMENT.len(), gone in 0..3_usize,
            written in "([\"{}:,0-9smh]|\\[|\\]|null|\\PC){0,3}",
            bytes: Vec<u8>,
        ) {
            let end = (cut + gone).min(DOCUMENT.len());
            let edited = format!("{}{written}{}", &DOCUMENT[..cut], &DOCUMENT[end..]);
            for text in [edited.as_bytes(), &bytes[..]] {
                match serde_json::from_slice::<Pinglist>(text) {
                    Ok(list) => {
                        let again = serde_json::to_string(&list).unwrap();
                        prop_assert_eq!(&serde_json::from_str::<Pinglist>(&again).unwrap(), &list);
                        let _ = list.sane();
                    }
                    Err(error) => prop_assert!(error.line() > 0 || text.is_empty(), "{error}"),
                }
            }
        }
    }
}
