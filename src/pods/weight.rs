//! The part of the memory budget that a pod takes.
use super::{Container, PodObject, Port};

/// Memory of a typical pod, including derived data (its place in lists, its entry in an index), as
/// measured by `make bench`.
const UNIT: usize = 4096;

/// Memory of a label in addition to its texts: two `String`s and its part of the map.
const ENTRY: usize = 64;

impl PodObject {
    /// Returns its weight, in units of 4 KiB: 1 for a typical pod, and more for one with a megabyte
    /// of labels or ports.
    #[must_use]
    pub fn weight(&self) -> usize {
        let Self { metadata, spec, status, .. } = self;
        let maps = [&metadata.labels, &metadata.annotations];
        let texts = maps.into_iter().flatten().flatten();
        let texts = texts.map(|(key, value)| ENTRY + key.len() + value.len()).sum::<usize>();
        let containers = self.all_containers().map(size).sum::<usize>();
        let volumes = spec.volumes.iter().flatten();
        let volumes = volumes.map(|name| size_of_val(name) + name.len()).sum::<usize>();
        let said = status.agent_waiting.as_ref().map_or(0, |text| text.len());
        let addresses = size_of_val(&*status.ips);
        let extra = texts + containers + volumes + said + addresses;
        // The unit includes what every pod has.
        1 + extra / UNIT
    }
}

fn size(container: &Container) -> usize {
    let ports = container.ports.iter();
    let ports =
        ports.map(|port| size_of::<Port>() + port.name.len() + port.protocol.len()).sum::<usize>();
    size_of::<Container>() + container.name.len() + container.image.len() + ports
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_large_pod_counts_as_several() {
        let weight = |value| serde_json::from_value::<PodObject>(value).unwrap().weight();
        let container =
            |name: usize| json!({"name": format!("c{name}"), "image": "registry/image:1"});
        let usual = json!({
            "metadata": {"name": "p", "labels": {"app": "a", "pod-template-hash": "7cfcd8d8f9"}},
            "spec": {"containers": [container(0), container(1)], "volumes": [{"name": "v"}]},
        });
        assert_eq!((weight(usual), weight(json!({}))), (1, 1));
        let labels: serde_json::Map<_, _> =
            (0..10_000).map(|i| (format!("key-{i}"), json!("x".repeat(60)))).collect();
        let large = weight(json!({"metadata": {"labels": labels}}));
        assert!((200..500).contains(&large), "{large}");
        let ports: Vec<_> = (0..10_000).map(|i| json!({"containerPort": i % 65_536})).collect();
        let large = weight(json!({"spec": {"containers": [{"name": "a", "ports": ports}]}}));
        assert!(large > 100, "{large}");
    }
}
