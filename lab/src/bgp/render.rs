//! The text of a node's configuration: Calico's templates, in the language of BIRD 2. No IO.
//!
//! From `confd/templates/bird.cfg.template`, `bird_ipam.cfg.template` and `bird_aggr.cfg.template`
//! of Calico master of 2026-08, and their twins for IPv6, for one IP pool of each address family
//! without encapsulation. Left out: communities, BGP filters, Services, passwords.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use super::family::Family;
use super::network::pool;
use super::sessions::{Session, Sessions};
use super::world::{Node, Speaker, World};

/// Calico turns local preferences into metrics of kernel routes by subtracting from this.
const GREATEST: u32 = 2_147_483_647;
/// The metric of ordinary routes.
const METRIC: u32 = 1024;

/// The text of each BIRD of a node.
pub type Texts = BTreeMap<Family, String>;

/// Returns the texts of every node.
pub fn texts(world: &World, sessions: &Sessions) -> BTreeMap<String, Texts> {
    let empty = BTreeMap::new();
    let texts = |(name, node): (&String, &Node)| {
        let ends = sessions.get(name).unwrap_or(&empty);
        let text = |family: &Family| (*family, text(world.as_number, name, node, *family, ends));
        (name.clone(), node.speakers.keys().map(text).collect())
    };
    world.nodes.iter().map(texts).collect()
}

fn text(
    number: u32,
    name: &str,
    node: &Node,
    family: Family,
    ends: &BTreeMap<String, Session>,
) -> String {
    let speaker = &node.speakers[&family];
    let mut text = head(number, name, &router_id(node), family, speaker);
    for (protocol, session) in ends.iter().filter(|(_, session)| session.family() == family) {
        text += &peer(number, speaker, protocol, session);
    }
    text
}

/// A node's IPv4 address, or where it has none, another number of its own.
fn router_id(node: &Node) -> String {
    let speaker = node.speakers.values().next();
    match speaker.map(|speaker| speaker.address) {
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [.., a, b, c, d] = address.octets();
            Ipv4Addr::new(a, b, c, d).to_string()
        }
        None => String::new(),
    }
}

/// The name of the channel that carries the routes of a family.
fn channel(family: Family) -> &'static str {
    family.pick("ipv4", "ipv6")
}

fn head(number: u32, name: &str, router_id: &str, family: Family, speaker: &Speaker) -> String {
    let (Speaker { pods, .. }, pool, channel) = (speaker, pool(family), channel(family));
    format!(
        r#"# {name}
log stderr all;
timeformat log iso long ms;

# This node's block, and nothing beneath it.
function calico_aggr ()
{{
  if ( net = {pods} ) then {{ accept; }}
  if ( net ~ {pods} && krt_metric < {METRIC} ) then {{ accept; }}
  if ( net ~ {pods} ) then {{ reject; }}
}}
function calico_export_to_bgp_peers(bool internal_peer)
{{
  if (internal_peer) then {{
    if (defined(ifname)) then {{ if ((ifname ~ "*.cali") || (ifname ~ "*.calico")) then {{ reject; }} }}
  }}
  calico_aggr();
  if (net ~ {pool}) then {{ accept; }}
}}
filter calico_kernel_programming
{{
  # BIRD 1.6 has `device routes` off.
  if (source = RTS_DEVICE) then {{ reject; }}
  if (defined(source) && (source = RTS_BGP) && !defined(krt_metric)) then {{
    krt_metric = {METRIC};
    if (defined(bgp_local_pref)) then {{ krt_metric = {GREATEST} - bgp_local_pref; }}
    if (krt_metric < {METRIC}) then {{ preference = 200; }}
  }}
  accept;
}}

router id {router_id};
protocol kernel {{
  learn;
  persist;
  scan time 2;
  graceful restart;
  merge paths on;
  # BIRD 2: else krt_metric is ignored.
  metric 0;
  {channel} {{
    import all;
    export filter calico_kernel_programming;
  }};
}}
protocol device {{ scan time 2; }}
protocol direct {{
  {channel};
  interface -"cali*", -"kube-ipvs*", "*";
}}
protocol static {{
  {channel};
  route {pods} blackhole;
}}
template bgp bgp_template {{
  # Calico has routes and filters here too.
  debug {{ states, events }};
  description "Connection to BGP peer";
  local as {number};
  graceful restart;
  connect delay time 2;
  connect retry time 5;
  error wait time 5,30;
}}
"#
    )
}

fn peer(number: u32, speaker: &Speaker, protocol: &str, session: &Session) -> String {
    let (low, channel) = (GREATEST - METRIC, channel(session.family()));
    let mut text = format!(
        r"protocol bgp {protocol} from bgp_template {{
  neighbor {} as {number};
  source address {};
  ttl security off;
  multihop;
  {channel} {{
    gateway recursive;
    add paths on;
    import filter {{
      if (defined(bgp_local_pref)&&(bgp_local_pref > {low})) then preference = 200;
      accept;
    }};
    export filter {{
      if (defined(source) && source = RTS_BGP && defined(bgp_local_pref)) then {{
        krt_metric = {GREATEST} - bgp_local_pref;
      }} else {{
        if (!defined(krt_metric)) then {{ krt_metric = {METRIC}; }}
        bgp_local_pref = {GREATEST} - krt_metric;
      }}
      calico_export_to_bgp_peers(true);
      reject;
    }};
  }};
",
        session.address, speaker.address
    );
    if session.passive {
        text += "  passive on;\n";
    }
    if let Some(restart) = session.restart {
        let _ = writeln!(text, "  graceful restart time {};", restart.as_secs());
    }
    if let Some(id) = session.reflects {
        let _ = writeln!(text, "  rr client;\n  rr cluster id {id};");
    }
    text + "}\n"
}
