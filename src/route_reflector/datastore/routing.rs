//! Who programs the routes between nodes: BIRD, which learns them by BGP, or Felix, which needs no
//! session. Pure.
use serde::Deserialize;

use crate::route_reflector::names::few;

/// The first release in which Felix programs the routes of IPIP by default.
const FELIX_PROGRAMS_IPIP: (u32, u32) = (3, 33);

/// An `IPPool`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// `spec.vxlanMode`.
    #[serde(default)]
    pub vxlan_mode: Option<String>,
    /// `spec.ipipMode`.
    #[serde(default)]
    pub ipip_mode: Option<String>,
    /// `spec.allowedUses`; without any, workloads use it.
    #[serde(default)]
    pub allowed_uses: Option<Vec<String>>,
}

/// The classes of pools that differ in who programs their routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encapsulation {
    Vxlan,
    Ipip,
    None,
}

impl Pool {
    fn encapsulation(&self) -> Encapsulation {
        let on = |mode: &Option<String>| {
            mode.as_deref().is_some_and(|mode| !mode.is_empty() && mode != "Never")
        };
        match (on(&self.vxlan_mode), on(&self.ipip_mode)) {
            (true, _) => Encapsulation::Vxlan,
            (false, true) => Encapsulation::Ipip,
            (false, false) => Encapsulation::None,
        }
    }

    /// Reports whether pods have addresses of it, and not services only.
    fn is_of_pods(&self) -> bool {
        let uses = self.allowed_uses.as_deref().unwrap_or_default();
        uses.is_empty() || uses.iter().any(|of| of != "LoadBalancer")
    }
}

/// The part of `FelixConfiguration` `default` that is read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FelixSpec {
    #[serde(default)]
    pub program_cluster_routes: Option<String>,
}

/// The part of the Tigera operator's Installation that is read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstallationSpec {
    #[serde(default)]
    pub calico_network: Option<CalicoNetwork>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CalicoNetwork {
    #[serde(default)]
    pub bgp: Option<String>,
    #[serde(default)]
    pub cluster_routing_mode: Option<String>,
}

/// What decides who programs the routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The `IPPool`s.
    pub pools: Vec<Pool>,
    /// `programClusterRoutes` of BGPConfiguration `default`.
    pub bird: Option<String>,
    /// `programClusterRoutes` of `FelixConfiguration` `default`.
    pub felix: Option<String>,
    /// `bgp` of the Installation.
    pub bgp: Option<String>,
    /// `clusterRoutingMode` of the Installation, which the Tigera operator writes into the two
    /// configurations.
    pub mode: Option<String>,
    /// The release of Calico.
    pub release: Option<(u32, u32)>,
    /// Why some of it is not known.
    pub unknown: Option<String>,
}

/// Nothing is there to reflect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// The reason of the condition.
    pub reason: &'static str,
    /// The cause, in words.
    pub text: String,
}

impl std::fmt::Display for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, so there is nothing to reflect; nothing is written; with spec.mesh: Retire, the \
             operator removes the reflectors and switches the mesh off",
            self.text
        )
    }
}

/// Why reflectors and mesh stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Routes depend on BGP.
    Known(String),
    /// Whether they do is not known.
    Unknown(String),
}

/// The classes that one of the two programs, by a value of `programClusterRoutes`; `None` for a
/// value that Calico does not know either: it takes its default then.
fn classes(value: &str) -> Option<&'static [Encapsulation]> {
    match value {
        "Enabled" => Some(&[Encapsulation::Ipip, Encapsulation::None]),
        "EnabledIPIPOnly" => Some(&[Encapsulation::Ipip]),
        "EnabledNoEncapOnly" => Some(&[Encapsulation::None]),
        "Disabled" => Some(&[]),
        _ => None,
    }
}

impl Routing {
    /// The values for BIRD and for Felix, with Calico's defaults.
    fn values(&self) -> [&str; 2] {
        let [bird, felix] = match self.mode.as_deref() {
            Some("Felix") => ["Disabled", "Enabled"],
            Some("FelixIPIPOnly") => ["EnabledNoEncapOnly", "EnabledIPIPOnly"],
            None if self.release >= Some(FELIX_PROGRAMS_IPIP) => {
                ["EnabledNoEncapOnly", "EnabledIPIPOnly"]
            }
            _ => ["Enabled", "Disabled"],
        };
        let known = |value: &'_ Option<String>| {
            value.as_deref().is_some_and(|value| classes(value).is_some())
        };
        [
            self.bird.as_deref().filter(|_| known(&self.bird)).unwrap_or(bird),
            self.felix.as_deref().filter(|_| known(&self.felix)).unwrap_or(felix),
        ]
    }

    /// Names the pools of pods with routes that BIRD, or Felix, programs.
    fn programmed(&self) -> impl Iterator<Item = (&str, bool, bool)> {
        let [bird, felix] = self.values().map(|value| classes(value).unwrap_or_default());
        self.pools.iter().filter(|pool| pool.is_of_pods()).map(move |pool| {
            let class = pool.encapsulation();
            let by_felix = class == Encapsulation::Vxlan || felix.contains(&class);
            (pool.name.as_str(), bird.contains(&class), by_felix)
        })
    }

    /// Returns why no session of BGP carries a route to pods, if it is so.
    #[must_use]
    pub fn idle(&self) -> Option<Idle> {
        if self.bgp.as_deref() == Some("Disabled") {
            let text = "Calico's BGP is disabled (Installation default: spec.calicoNetwork.bgp is \
                        Disabled)";
            return Some(Idle { reason: "BGPDisabled", text: text.into() });
        }
        let all: Vec<_> = self.programmed().collect();
        if all.is_empty() || all.iter().any(|(_, by_bird, _)| *by_bird) {
            return None;
        }
        let names = few(all.iter().map(|(name, ..)| *name));
        let [bird, _] = self.values();
        let text = format!(
            "Felix and not BIRD programs the routes of every IPPool ({names}; Felix always does for VXLAN, and \
             BIRD's programClusterRoutes is {bird})"
        );
        Some(Idle { reason: "RoutesByFelix", text })
    }

    /// Returns why no route depends on BGP. What is not known is no such reason.
    ///
    /// # Errors
    /// The pools of which the routes do, or may.
    pub fn retires(&self) -> Result<Idle, Needed> {
        if let Some(why) = &self.unknown {
            let text = format!("whether BIRD programs the routes is not known: {why}");
            return Err(Needed::Unknown(text));
        }
        let all: Vec<_> = self.programmed().collect();
        let named = |which: fn(bool, bool) -> bool| {
            let found = all.iter().filter(|(_, bird, felix)| which(*bird, *felix));
            let found: Vec<_> = found.map(|(name, ..)| name).collect();
            (!found.is_empty()).then(|| few(found.iter()))
        };
        match self.idle() {
            Some(idle) if idle.reason == "BGPDisabled" => Ok(idle),
            Some(idle) => named(|_, felix| !felix).map_or(Ok(idle), |names| {
                let text = "neither Felix nor BIRD programs the routes of these IPPools";
                Err(Needed::Unknown(format!("{text}: {names}")))
            }),
            None => Err(named(|bird, _| bird).map_or_else(
                || Needed::Unknown("Calico has no IPPool that pods use".into()),
                |names| {
                    Needed::Known(format!("BIRD programs the routes of these IPPools: {names}"))
                },
            )),
        }
    }

    /// Returns remarks for people about pools whose routes are not BIRD's alone.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let named = |bird: bool, felix: bool| {
            let found = self.programmed().filter(move |(_, b, f)| (*b, *f) == (bird, felix));
            let found: Vec<_> = found.map(|(name, ..)| name).collect();
            (!found.is_empty()).then(|| few(found.iter()))
        };
        let hint = "make programClusterRoutes of FelixConfiguration and BGPConfiguration agree";
        let by_felix = named(false, true).map(|names| {
            format!("Felix programs the routes of these IPPools, and BGP does not: {names}")
        });
        let by_both = named(true, true).map(|names| {
            format!("Felix and BIRD both program the routes of these IPPools ({hint}): {names}")
        });
        let by_none = named(false, false).map(|names| {
            format!("neither Felix nor BIRD programs the routes of these IPPools ({hint}): {names}")
        });
        let unknown = self.unknown.as_ref();
        let unknown =
            unknown.map(|why| format!("whether BIRD programs the routes is not known: {why}"));
        [by_felix, by_both, by_none, unknown].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pools(specs: &Value) -> Vec<Pool> {
        let specs = specs.as_array().unwrap().iter().enumerate();
        let pool = |(i, spec): (usize, &Value)| {
            let read: Pool = serde_json::from_value(spec.clone()).unwrap();
            Pool { name: format!("p{i}"), ..read }
        };
        specs.map(pool).collect()
    }

    /// The table of Calico's documentation, and its defaults by release.
    #[test]
    fn there_is_something_to_reflect_where_bird_programs_the_routes_of_a_pool() {
        let vxlan = json!([{"vxlanMode": "Always", "ipipMode": "Never"}]);
        let subnet = json!([{"vxlanMode": "CrossSubnet"}]);
        let ipip = json!([{"ipipMode": "Always", "vxlanMode": "Never"}]);
        let plain = json!([{"ipipMode": "Never", "vxlanMode": ""}]);
        let both = json!([{"vxlanMode": "Always"}, {}]);
        let services = json!([{"vxlanMode": "Always"}, {"allowedUses": ["LoadBalancer"]}]);
        let before = Some((3, 32));
        let after = Some((3, 33));
        for (specs, bird, mode, release, idle) in [
            (&vxlan, None, None, before, true),
            (&subnet, Some("Enabled"), Some("BIRD"), before, true),
            (&ipip, None, None, before, false),
            (&ipip, None, None, None, false),
            (&ipip, None, None, after, true),
            (&ipip, Some("Enabled"), None, after, false),
            (&ipip, Some("EnabledIPIPOnly"), None, after, false),
            (&ipip, Some("EnabledNoEncapOnly"), None, before, true),
            (&ipip, None, Some("BIRD"), after, false),
            (&ipip, None, Some("FelixIPIPOnly"), before, true),
            (&ipip, Some("New"), None, after, true),
            (&plain, None, None, after, false),
            (&plain, Some("Disabled"), None, before, true),
            (&plain, None, Some("Felix"), before, true),
            (&plain, Some("EnabledIPIPOnly"), None, before, true),
            (&both, None, None, after, false),
            (&services, None, None, before, true),
            // Another IPAM has no pools.
            (&json!([]), Some("Disabled"), None, after, false),
        ] {
            let (bird, mode) = (bird.map(str::to_owned), mode.map(str::to_owned));
            let routing =
                Routing { pools: pools(specs), bird, mode, release, ..Routing::default() };
            let found = routing.idle();
            assert_eq!(found.is_some(), idle, "{routing:?}");
            assert!(found.is_none_or(|found| found.reason == "RoutesByFelix"));
        }
        let disabled = Routing { bgp: Some("Disabled".into()), ..Routing::default() };
        assert_eq!(disabled.idle().map(|idle| idle.reason), Some("BGPDisabled"));
        assert_eq!(Routing { bgp: Some("Enabled".into()), ..Routing::default() }.idle(), None);
    }

    #[test]
    fn reflectors_and_mesh_retire_only_where_felix_is_known_to_program_every_route() {
        let vxlan = json!({"vxlanMode": "Always"});
        let ipip = json!({"ipipMode": "Always"});
        for (specs, bird, felix, bgp, unknown, expected) in [
            (json!([vxlan]), None, None, None, None, Ok("RoutesByFelix")),
            (json!([vxlan, ipip]), None, None, None, None, Err((true, "IPPools: p1"))),
            (json!([ipip]), Some("Disabled"), Some("Enabled"), None, None, Ok("RoutesByFelix")),
            // Both do, or nobody does.
            (json!([ipip]), None, Some("Enabled"), None, None, Err((true, "IPPools: p0"))),
            (json!([vxlan, ipip]), Some("Disabled"), None, None, None, Err((false, "IPPools: p1"))),
            (json!([]), None, None, None, None, Err((false, "no IPPool"))),
            (json!([ipip]), None, None, Some("Disabled"), None, Ok("BGPDisabled")),
            (json!([vxlan]), None, None, None, Some("list IPPools: no"), Err((false, "no"))),
        ] {
            let [bird, felix, bgp, unknown] =
                [bird, felix, bgp, unknown].map(|text: Option<&str>| text.map(str::to_owned));
            let routing =
                Routing { pools: pools(&specs), bird, felix, bgp, unknown, ..Routing::default() };
            let found = routing.retires();
            match (&found, expected) {
                (Ok(idle), Ok(reason)) => assert_eq!(idle.reason, reason),
                (Err(Needed::Known(text)), Err((true, end)))
                | (Err(Needed::Unknown(text)), Err((false, end))) => {
                    assert!(text.contains(end), "{text}");
                }
                _ => panic!("{routing:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn pools_that_are_not_birds_alone_are_named() {
        let all = json!([{"vxlanMode": "Always"}, {"ipipMode": "Always"}, {}]);
        let remarks = |bird: &str, felix: &str| {
            let (bird, felix) = (Some(bird.to_owned()), Some(felix.to_owned()));
            let routing = Routing { pools: pools(&all), bird, felix, ..Routing::default() };
            routing.remarks()
        };
        let found = remarks("Enabled", "Disabled");
        assert!(found.len() == 1 && found[0].ends_with("BGP does not: p0"), "{found:?}");
        let found = remarks("Enabled", "EnabledIPIPOnly");
        assert!(found.len() == 2 && found[1].starts_with("Felix and BIRD both"), "{found:?}");
        assert!(found[1].ends_with(": p1"), "{found:?}");
        let found = remarks("EnabledNoEncapOnly", "Disabled");
        assert!(found[1].starts_with("neither ") && found[1].ends_with(": p1"), "{found:?}");
        let unknown = Routing { unknown: Some("no".into()), ..Routing::default() };
        assert_eq!(unknown.remarks(), ["whether BIRD programs the routes is not known: no"]);
    }
}
