//! The quota that a pod takes in its namespace.
use super::{
    qos::{Amounts, Resources},
    resource::PodObject,
};

/// The resources that determine a pod's quality-of-service class and its quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute {
    /// Processor time.
    Cpu,
    /// Main memory.
    Memory,
}

impl Compute {
    /// Returns its name in requests and limits.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// Requests and limits of a pod together, as the API server adds them up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Needs {
    requests: Pair,
    limits: Pair,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pair {
    cpu: f64,
    memory: f64,
}

impl Pair {
    fn of(amounts: Amounts) -> Self {
        Self { cpu: amounts.cpu.value(), memory: amounts.memory.value() }
    }

    fn each(self, other: Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self { cpu: join(self.cpu, other.cpu), memory: join(self.memory, other.memory) }
    }

    fn get(self, what: Compute) -> f64 {
        match what {
            Compute::Cpu => self.cpu,
            Compute::Memory => self.memory,
        }
    }
}

impl Needs {
    fn of(resources: Resources) -> Self {
        let Resources { requests, limits } = resources.defaulted();
        Self { requests: Pair::of(requests), limits: Pair::of(limits) }
    }

    fn each(self, other: Self, join: impl Fn(f64, f64) -> f64) -> Self {
        let Self { requests, limits } = self;
        Self {
            requests: requests.each(other.requests, &join),
            limits: limits.each(other.limits, &join),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    /// Returns the request of a resource, or its limit; 0 if there is none.
    #[must_use]
    pub fn get(&self, what: Compute, limit: bool) -> f64 {
        if limit { self.limits.get(what) } else { self.requests.get(what) }
    }
}

impl PodObject {
    /// Returns the resources that it takes while most of its containers run: init containers run
    /// one after the other, in addition to the earlier ones that always restart.
    #[must_use]
    pub fn needs(&self) -> Needs {
        if let Some(pod) = self.spec.resources.filter(|pod| !pod.is_empty()) {
            return Needs::of(pod);
        }
        let (mut sidecars, mut most) = (Needs::default(), Needs::default());
        for container in self.init_containers().unwrap_or_default() {
            let one = Needs::of(container.resources);
            most = most.each(sidecars.plus(one), f64::max);
            if container.restarts_always {
                sidecars = sidecars.plus(one);
            }
        }
        let containers = self.containers().unwrap_or_default().iter();
        let all = containers.fold(sidecars, |sum, c| sum.plus(Needs::of(c.resources)));
        most.each(all, f64::max)
    }

    /// Reports whether each of its containers has a request, or a limit, as a quota on it requires.
    #[must_use]
    pub fn all_state(&self, what: Compute, limit: bool) -> bool {
        let mut containers = self.all_containers();
        containers.all(|container| Needs::of(container.resources).get(what, limit) > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_takes_what_its_containers_take_at_a_time() {
        let pod = |spec| serde_json::from_value::<PodObject>(json!({"spec": spec})).unwrap();
        let cpu = |amount: &str| json!({"resources": {"limits": {"cpu": amount}}});
        let mut sidecar = cpu("50m");
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "initContainers": [cpu("300m"), sidecar, cpu("250m")],
            "containers": [cpu("100m"), cpu("100m")],
        });
        let needs = |spec, expected: f64| {
            (pod(spec).needs().get(Compute::Cpu, true) - expected).abs() < 1e-9
        };
        assert!(needs(spec, 0.3), "the last init container beside the sidecar");
        let spec = json!({"initContainers": [sidecar], "containers": [cpu("100m"), cpu("200m")]});
        assert!(needs(spec.clone(), 0.35));
        // A resource with only a limit has it as its request as well.
        assert!((pod(spec.clone()).needs().get(Compute::Cpu, false) - 0.35).abs() < 1e-9);
        assert!(pod(spec.clone()).all_state(Compute::Cpu, true));
        assert!(!pod(spec).all_state(Compute::Memory, false));
        let whole = json!({"resources": {"requests": {"cpu": "1"}}, "containers": [cpu("5")]});
        assert!((pod(whole).needs().get(Compute::Cpu, false) - 1.0).abs() < 1e-9);
    }
}
