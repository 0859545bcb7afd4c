//! The text of a node's configuration: Calico's templates, in the language of BIRD 2. No IO.
//!
//! From `confd/templates/bird.cfg.template`, `bird_ipam.cfg.template` and `bird_aggr.cfg.template`
//! of Calico master of 2026-08, for one IP pool without encapsulation. Left out: communities, BGP
//! filters, IPv6, Services, passwords.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::network::POOL;
use super::sessions::{Session, Sessions};
use super::world::{Node, World};

/// Calico turns local preferences into metrics of kernel routes by subtracting from this.
const GREATEST: u32 = 2_147_483_647;
/// The metric of ordinary routes.
const METRIC: u32 = 1024;

/// Returns the text of every node.
#[must_use]
pub fn texts(world: &World, sessions: &Sessions) -> BTreeMap<String, String> {
    let empty = BTreeMap::new();
    let text = |(name, node): (&String, &Node)| {
        let ends = sessions.get(name).unwrap_or(&empty);
        (name.clone(), text(world.as_number, name, node, ends))
    };
    world.nodes.iter().map(text).collect()
}

fn text(number: u32, name: &str, node: &Node, ends: &BTreeMap<String, Session>) -> String {
    let mut text = head(number, name, node);
    for (protocol, session) in ends {
        text += &peer(number, node, protocol, session);
    }
    text
}

fn head(number: u32, name: &str, node: &Node) -> String {
    let Node { address, pods, .. } = node;
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
  if (net ~ {POOL}) then {{ accept; }}
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

router id {address};
protocol kernel {{
  learn;
  persist;
  scan time 2;
  graceful restart;
  merge paths on;
  # BIRD 2: else krt_metric is ignored.
  metric 0;
  ipv4 {{
    import all;
    export filter calico_kernel_programming;
  }};
}}
protocol device {{ scan time 2; }}
protocol direct {{
  ipv4;
  interface -"cali*", -"kube-ipvs*", "*";
}}
protocol static {{
  ipv4;
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

fn peer(number: u32, node: &Node, protocol: &str, session: &Session) -> String {
    let low = GREATEST - METRIC;
    let mut text = format!(
        r"protocol bgp {protocol} from bgp_template {{
  neighbor {} as {number};
  source address {};
  ttl security off;
  multihop;
  ipv4 {{
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
        session.address, node.address
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
