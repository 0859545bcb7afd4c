//! The quality-of-service class of a pod, as the API server computes it.
use serde::{Deserialize, Deserializer, de};

use crate::{api::parse_quantity, partial_resource::nullable};

/// The quality-of-service class of a pod, which decides whether the kubelet evicts it last, in the
/// middle or first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Every container has limits for CPU and memory, equal to its requests.
    Guaranteed,
    /// Anything in between.
    Burstable,
    /// No container has requests or limits for CPU or memory.
    BestEffort,
}

/// Requests and limits of a container, or of a pod as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Resources {
    #[serde(default, deserialize_with = "nullable")]
    pub requests: Amounts,
    #[serde(default, deserialize_with = "nullable")]
    pub limits: Amounts,
}

/// The two resources that decide the class; others never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Amounts {
    #[serde(default)]
    pub cpu: Amount,
    #[serde(default)]
    pub memory: Amount,
}

/// A quantity. Zero counts as none; so does a text that is not a quantity, which the API server
/// refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Amount(f64);

impl Amount {
    fn is_some(self) -> bool {
        self.0 > 0.0
    }

    fn or(self, other: Self) -> Self {
        if self.is_some() { self } else { other }
    }

    pub(super) fn value(self) -> f64 {
        self.0
    }

    /// `1100m` and `1.1` differ in their last bit when they are read as floating point.
    fn equals(self, other: Self) -> bool {
        // Some hundred roundings of 1.1e-16 each; one byte of 1 Ti is 9e-13.
        (self.0 - other.0).abs() <= 1e-13 * self.0.abs()
    }
}

impl Resources {
    /// Returns them as the API server completes them: a missing request equals the limit.
    pub(super) fn defaulted(self) -> Self {
        let (requests, limits) = (self.requests, self.limits);
        let requests =
            Amounts { cpu: requests.cpu.or(limits.cpu), memory: requests.memory.or(limits.memory) };
        Self { requests, limits }
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { requests, limits } = self;
        ![requests.cpu, requests.memory, limits.cpu, limits.memory].into_iter().any(Amount::is_some)
    }

    fn limits_both(&self) -> bool {
        self.limits.cpu.is_some() && self.limits.memory.is_some()
    }
}

impl Qos {
    /// Returns the class of a pod with these resources as a whole and these containers (init
    /// containers count).
    pub(super) fn of<'a>(
        pod: Option<&Resources>,
        containers: impl Iterator<Item = &'a Resources>,
    ) -> Self {
        // The pod's own resources replace those of its containers. A server that is too old for
        // them drops them; if they are empty, the injection adds nothing that would count either
        // way.
        let all: Vec<_> = match pod.filter(|pod| !pod.is_empty()) {
            Some(pod) => vec![pod.defaulted()],
            None => containers.map(|resources| resources.defaulted()).collect(),
        };
        if all.iter().all(Resources::is_empty) {
            return Self::BestEffort;
        }
        let same = |r: &Resources| {
            r.requests.cpu.equals(r.limits.cpu) && r.requests.memory.equals(r.limits.memory)
        };
        if all.iter().all(|r| r.limits_both() && same(r)) {
            Self::Guaranteed
        } else {
            Self::Burstable
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Amount;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount(parse_quantity(text).unwrap_or_default()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
                Ok(Amount(number))
            }
            fn visit_unit<E>(self) -> Result<Amount, E> {
                Ok(Amount::default())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::PodObject, *};

    fn class(spec: &Value) -> Qos {
        serde_json::from_value::<PodObject>(json!({"spec": spec})).unwrap().qos()
    }

    #[test]
    fn the_class_is_the_api_servers() {
        let both = json!({"cpu": "100m", "memory": "64Mi"});
        let of = |resources: Value| {
            class(&json!({"containers": [{"name": "a", "resources": resources}]}))
        };
        assert_eq!(of(json!({})), Qos::BestEffort);
        assert_eq!(of(json!({"limits": {"ephemeral-storage": "1G"}})), Qos::BestEffort);
        assert_eq!(of(json!({"requests": {"cpu": "0"}})), Qos::BestEffort);
        assert_eq!(of(json!({"requests": {"cpu": 1}})), Qos::Burstable);
        assert_eq!(of(json!({"requests": both})), Qos::Burstable);
        assert_eq!(of(json!({"limits": {"cpu": "1"}})), Qos::Burstable);
        // Missing requests equal the limits.
        assert_eq!(of(json!({"limits": both})), Qos::Guaranteed);
        assert_eq!(
            of(json!({"limits": both, "requests": {"cpu": "0.1", "memory": "67108864"}})),
            Qos::Guaranteed
        );
        assert_eq!(of(json!({"limits": both, "requests": {"cpu": "50m"}})), Qos::Burstable);
    }

    #[test]
    fn every_container_counts_the_init_ones_too() {
        let both = json!({"limits": {"cpu": "1100m", "memory": "1Gi"}, "requests": {"cpu": 1.1, "memory": "1Gi"}});
        let with = |init: Value| {
            class(
                &json!({"containers": [{"resources": both}], "initContainers": [{"resources": init}]}),
            )
        };
        assert_eq!(with(both.clone()), Qos::Guaranteed);
        assert_eq!(with(json!({})), Qos::Burstable);
    }

    #[test]
    fn resources_of_the_pod_take_the_place_of_its_containers() {
        let both = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let containers = json!([{"resources": {"requests": {"cpu": "1m"}}}]);
        assert_eq!(class(&json!({"resources": both, "containers": containers})), Qos::Guaranteed);
        assert_eq!(class(&json!({"resources": {}, "containers": containers})), Qos::Burstable);
    }
}
