//! Checks whether a namespace would refuse a pod because of its agent.
//!
//! Pods that a `LimitRange` or a `ResourceQuota` refuses do not exist, so they cannot be counted.
//! Pods that would be refused because of their agent are created without one. Pure, but for
//! [`reading`].
use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LimitRange, ResourceQuota, ScopedResourceSelectorRequirement},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::ResourceExt;

use crate::{
    api::parse_quantity,
    pods::{Compute, Needs, PodObject, Qos},
    webhook::injection::{self, Recipe, Resources},
};

pub(crate) mod reading;
#[cfg(test)]
mod tests;

/// Maximum number of each in a namespace: the API server evaluates all of them for each pod, and no
/// real namespace has as many.
const MOST: usize = 100;

/// Tolerance of a sum above a limit, because of rounding.
const ROUNDING: f64 = 1e-9;

/// The requirements of a namespace on pods and their containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    ranges: Vec<Range>,
    /// The largest ratios of a pod's limits to its requests, with the name of the `LimitRange`.
    ratios: Vec<(String, Amounts)>,
    quotas: Vec<Quota>,
}

type Amounts = BTreeMap<String, f64>;

/// The requirements of a `LimitRange` on each container.
#[derive(Clone, Debug, Default, PartialEq)]
struct Range {
    name: String,
    min: Amounts,
    max: Amounts,
    ratio: Amounts,
    default: Amounts,
    default_request: Amounts,
}

/// A `ResourceQuota` with its used amount; or the amounts that a `LimitRange` allows one pod.
#[derive(Clone, Debug, Default, PartialEq)]
struct Quota {
    object: String,
    /// What pods it concerns: those that meet all of these.
    scopes: Vec<Scope>,
    hard: Amounts,
    used: Amounts,
}

/// A property of the pods that a quota concerns.
#[derive(Clone, Debug, PartialEq)]
enum Scope {
    Terminating(bool),
    BestEffort(bool),
    /// A priority class, or one of these; or not one of these.
    Class {
        any: bool,
        names: Vec<String>,
        not: bool,
    },
}

impl Scope {
    fn of(term: &ScopedResourceSelectorRequirement) -> Option<Self> {
        Some(match &*term.scope_name {
            "Terminating" => Self::Terminating(true),
            "NotTerminating" => Self::Terminating(false),
            "BestEffort" => Self::BestEffort(true),
            "NotBestEffort" => Self::BestEffort(false),
            "PriorityClass" => {
                let names = term.values.clone().unwrap_or_default();
                let (any, not) = match &*term.operator {
                    "In" => (false, false),
                    "NotIn" => (false, true),
                    "Exists" => (true, false),
                    "DoesNotExist" => (true, true),
                    _ => return None,
                };
                Self::Class { any, names, not }
            }
            _ => return None,
        })
    }

    /// Reports whether a pod has it; without a pod, whether ordinary ones do.
    fn includes(&self, pod: Option<&PodObject>) -> bool {
        match (self, pod) {
            (Self::Terminating(wanted) | Self::BestEffort(wanted), None) => !wanted,
            (Self::Class { .. }, None) => false,
            (Self::Terminating(wanted), Some(pod)) => pod.has_deadline() == *wanted,
            (Self::BestEffort(wanted), Some(pod)) => (pod.qos() == Qos::BestEffort) == *wanted,
            (Self::Class { any, names, not }, Some(pod)) => {
                let class = pod.priority_class();
                let is = if *any { !class.is_empty() } else { names.iter().any(|n| n == class) };
                is != *not
            }
        }
    }
}

/// The constraints of each namespace that has any.
pub type ByNamespace = BTreeMap<String, Constraints>;

fn amounts(map: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let read = |(name, amount): (&String, &Quantity)| {
        Some((name.clone(), parse_quantity(&amount.0).ok()?))
    };
    map.into_iter().flatten().filter_map(read).collect()
}

impl Constraints {
    /// Reads the limits of containers, and of pods as a whole.
    pub fn add_range(&mut self, range: &LimitRange) {
        let items = || range.spec.iter().flat_map(|spec| &spec.limits);
        let pods = || items().filter(|item| item.type_ == "Pod");
        for max in pods().map(|item| amounts(item.max.as_ref())) {
            let both = max.into_iter().flat_map(|(name, max)| {
                [(format!("limits.{name}"), max), (format!("requests.{name}"), max)]
            });
            self.put(format!("LimitRange {}", range.name_any()), vec![], both, Amounts::new());
        }
        let ratios = pods().map(|item| amounts(item.max_limit_request_ratio.as_ref()));
        let ratios = ratios.filter(|ratios| !ratios.is_empty());
        let ratios = ratios.map(|ratios| (range.name_any(), ratios));
        self.ratios.extend(ratios.take(MOST.saturating_sub(self.ratios.len())));
        let items = items().filter(|item| item.type_ == "Container").map(|item| Range {
            name: range.name_any(),
            min: amounts(item.min.as_ref()),
            max: amounts(item.max.as_ref()),
            ratio: amounts(item.max_limit_request_ratio.as_ref()),
            default: amounts(item.default.as_ref()),
            default_request: amounts(item.default_request.as_ref()),
        });
        self.ranges.extend(items.take(MOST.saturating_sub(self.ranges.len())));
    }

    /// Reads the limits of CPU and memory of some pods, or of all.
    pub fn add_quota(&mut self, quota: &ResourceQuota) {
        let named = quota.spec.iter().flat_map(|spec| spec.scopes.iter().flatten());
        let named = named.map(|name| ScopedResourceSelectorRequirement {
            scope_name: name.clone(),
            operator: "Exists".into(),
            values: None,
        });
        let selected = quota.spec.iter().filter_map(|spec| spec.scope_selector.as_ref());
        let selected = selected.flat_map(|selector| selector.match_expressions.iter().flatten());
        // Which pods another scope concerns is not known here: what such a quota refuses stays
        // refused.
        let terms = named.chain(selected.cloned()).map(|term| Scope::of(&term));
        let Some(scopes) = terms.collect::<Option<Vec<_>>>() else { return };
        // Until it has a status, it refuses no pod.
        let Some(status) = quota.status.as_ref() else { return };
        let (hard, used) = (amounts(status.hard.as_ref()), amounts(status.used.as_ref()));
        self.put(format!("ResourceQuota {}", quota.name_any()), scopes, hard, used);
    }

    fn put(
        &mut self,
        object: String,
        scopes: Vec<Scope>,
        hard: impl IntoIterator<Item = (String, f64)>,
        mut used: Amounts,
    ) {
        let hard = hard.into_iter().filter(|(name, _)| counted(name).is_some());
        let hard: Amounts = hard.collect();
        used.retain(|name, _| hard.contains_key(name));
        if !hard.is_empty() && self.quotas.len() < MOST {
            self.quotas.push(Quota { object, scopes, hard, used });
        }
    }

    /// Reports whether there is nothing to check.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.ratios.is_empty() && self.quotas.is_empty()
    }

    /// Returns the reason why a pod would be refused because of its agent; nothing if it would be
    /// refused without one as well.
    #[must_use]
    pub fn refusal(&self, pod: &PodObject, recipe: &Recipe) -> Option<String> {
        let (agent, needs) = (injection::resources(pod, recipe), pod.needs());
        self.refuses(&agent, &needs, Some(pod)).or_else(|| self.pulls_apart(&agent, &needs))
    }

    /// Returns the reason why an existing pod would be refused with an agent.
    #[must_use]
    pub fn refusal_of_existing(&self, pod: &PodObject, recipe: &Recipe) -> Option<String> {
        let agent = injection::resources(pod, recipe);
        // The quota has counted it.
        let refused = self.refuses(&agent, &Needs::default(), Some(pod));
        refused.or_else(|| self.pulls_apart(&agent, &pod.needs()))
    }

    /// Returns the reason why any pod would be refused with an agent as specified.
    #[must_use]
    pub fn refusal_of_all(&self, recipe: &Recipe) -> Option<String> {
        self.refuses(&recipe.resources, &Needs::default(), None)
    }

    fn refuses(&self, agent: &Resources, needs: &Needs, pod: Option<&PodObject>) -> Option<String> {
        let by_range = self.ranges.iter().find_map(|range| range.refuses(agent));
        let concerns = |quota: &&Quota| quota.scopes.iter().all(|scope| scope.includes(pod));
        let mut quotas = self.quotas.iter().filter(concerns);
        by_range.or_else(|| quotas.find_map(|quota| quota.refuses(agent, needs)))
    }

    /// Returns the reason why the sums of a pod and its agent are refused, though those of the pod
    /// are not.
    fn pulls_apart(&self, agent: &Resources, pod: &Needs) -> Option<String> {
        self.ratios.iter().find_map(|(range, ratios)| {
            let [cpu, memory] = [Compute::Cpu, Compute::Memory].map(|what| {
                let name = what.as_str();
                let ratio = *ratios.get(name)?;
                let (request, limit) = (pod.get(what, false), pod.get(what, true));
                // A pod without both is refused in any case.
                let fits = request > 0.0 && limit > 0.0 && !exceeds(limit, ratio * request);
                let request = request + requested(agent, name).unwrap_or_default();
                let limit = limit + of(&agent.limits, name).unwrap_or_default();
                (fits && exceeds(limit, ratio * request)).then_some(name)
            });
            let name = cpu.or(memory)?;
            let what = "with the agent, limits and requests of the pod are too far apart in";
            Some(format!("LimitRange {range}: {what} {name}"))
        })
    }
}

fn of(amounts: &BTreeMap<String, String>, name: &str) -> Option<f64> {
    amounts.get(name).and_then(|text| parse_quantity(text).ok())
}

/// Returns the request: a resource that only has a limit is requested as well.
fn requested(agent: &Resources, name: &str) -> Option<f64> {
    of(&agent.requests, name).or_else(|| of(&agent.limits, name))
}

fn exceeds(amount: f64, limit: f64) -> bool {
    amount > limit * (1.0 + ROUNDING)
}

impl Range {
    fn refuses(&self, agent: &Resources) -> Option<String> {
        let names = self.min.keys().chain(self.max.keys()).chain(self.ratio.keys());
        names.into_iter().find_map(|name| {
            let limit = of(&agent.limits, name).or_else(|| self.default.get(name).copied());
            let request =
                requested(agent, name).or_else(|| self.default_request.get(name).copied());
            let at = |bounds: &Amounts| bounds.get(name).copied();
            let says = |what: &str| Some(format!("LimitRange {}: {what} {name}", self.name));
            match (request, limit) {
                (Some(request), _) if at(&self.min).is_some_and(|min| exceeds(min, request)) => {
                    says("the agent requests less than the minimum of")
                }
                (_, Some(most)) | (Some(most), None)
                    if at(&self.max).is_some_and(|max| exceeds(most, max)) =>
                {
                    says("the agent has more than the maximum of")
                }
                (Some(request), Some(limit))
                    if at(&self.ratio).is_some_and(|ratio| exceeds(limit, ratio * request)) =>
                {
                    says("limit and request of the agent are too far apart in")
                }
                _ => None,
            }
        })
    }
}

/// Returns the compute resource of a quota on containers, and whether it is the limit.
fn counted(name: &str) -> Option<(Compute, bool)> {
    Some(match name {
        "cpu" | "requests.cpu" => (Compute::Cpu, false),
        "memory" | "requests.memory" => (Compute::Memory, false),
        "limits.cpu" => (Compute::Cpu, true),
        "limits.memory" => (Compute::Memory, true),
        _ => return None,
    })
}

impl Quota {
    fn refuses(&self, agent: &Resources, pod: &Needs) -> Option<String> {
        self.hard.iter().find_map(|(name, hard)| {
            let (what, is_limit) = counted(name)?;
            let needed = if is_limit {
                of(&agent.limits, what.as_str())
            } else {
                requested(agent, what.as_str())
            };
            let used = self.used.get(name).copied().unwrap_or_default();
            let without = used + pod.get(what, is_limit);
            let refused = !exceeds(without, *hard) && exceeds(without + needed?, *hard);
            refused.then(|| format!("{}: no room for the agent in {name}", self.object))
        })
    }
}
