//! The prober's agent in a pod, according to the Pod object.
use super::resource::{
    AGENT_CONTAINER, AGENT_VOLUME, Container, INJECTED_BY_ANNOTATION, METRICS_PORT, PING_PORT,
    PodObject, SCRAPED_ANNOTATION,
};

/// The agent in a pod.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, none follows from others"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentFacts<'a> {
    /// Image of the agent's container.
    pub image: &'a str,
    /// Port on which it answers probes.
    pub ping_port: u16,
    /// Port on which it serves metrics; `None` when no port has that name.
    pub prometheus_port: Option<u16>,
    /// True if it requests its list of peers; otherwise it reads the list from a file, as the
    /// original's.
    pub pulls: bool,
    /// True if it is a native sidecar: an init container that always restarts.
    pub native: bool,
    /// True if it is an init container that does *not* always restart: another webhook dropped the
    /// field, and the pod waits for it for ever.
    pub stripped: bool,
    /// The reason why it is waiting, e.g. `ImagePullBackOff`.
    pub waiting: Option<&'a str>,
    /// True if it runs.
    pub running: bool,
    /// The time since when it runs or waits, in seconds since 1970, if its kubelet reports it.
    pub since: Option<i64>,
    /// Number of crashes, if it did not run for long before the last one.
    pub crashes: u32,
}

impl PodObject {
    /// Returns the agent in this pod: a container with the agent's name and a port with the agent's
    /// port name. The original operator's agent counts; a container that only has the same name
    /// does not.
    #[must_use]
    pub fn agent(&self) -> Option<AgentFacts<'_>> {
        let find = |list: &'_ Option<Box<[Container]>>| -> Option<usize> {
            list.as_ref()?.iter().position(is_agent)
        };
        let (init, main) = (&self.spec.init_containers, &self.spec.containers);
        let (container, is_init) = match find(init) {
            Some(place) => (init.as_ref()?.get(place)?, true),
            None => (main.as_ref()?.get(find(main)?)?, false),
        };
        Some(AgentFacts {
            image: &container.image,
            ping_port: ping(container)?,
            prometheus_port: named(container, METRICS_PORT),
            pulls: container.pulls,
            native: is_init && container.restarts_always,
            stripped: is_init && !container.restarts_always,
            waiting: self.status.agent_waiting.as_deref(),
            running: self.status.agent_running,
            since: self.status.agent_since,
            crashes: self.status.agent_crashes,
        })
    }

    /// Returns the place among the init containers of an agent that does not always restart.
    #[must_use]
    pub fn stripped_agent(&self) -> Option<usize> {
        let all = self.init_containers()?;
        let place = all.iter().position(is_agent)?;
        (!all.get(place)?.restarts_always).then_some(place)
    }

    /// Reports whether a container other than the agent declares this port. TCP and UDP both count:
    /// the agent answers on both.
    #[must_use]
    pub fn takes_port(&self, port: u16) -> bool {
        let scraped = self.annotation(SCRAPED_ANNOTATION).and_then(|port| port.trim().parse().ok());
        let others = self.all_containers().filter(|c| &*c.name != AGENT_CONTAINER);
        scraped == Some(port)
            || others
                .flat_map(|c| &c.ports)
                .any(|p| p.container_port == port && &*p.protocol != "SCTP")
    }

    /// Reports whether a container or volume other than the agent's has a name that the injection
    /// needs.
    #[must_use]
    pub fn takes_names(&self) -> bool {
        let agent = self.agent().is_some();
        // If another webhook removed the container, the annotation shows that the volume is ours.
        let by_us = self.annotation(INJECTED_BY_ANNOTATION).is_some();
        let container = self.all_containers().any(|c| &*c.name == AGENT_CONTAINER);
        let volume = self.volumes().unwrap_or_default().iter().any(|name| &**name == AGENT_VOLUME);
        !agent && (container || (volume && !by_us))
    }
}

fn is_agent(container: &Container) -> bool {
    &*container.name == AGENT_CONTAINER && ping(container).is_some()
}

fn ping(container: &Container) -> Option<u16> {
    named(container, PING_PORT)
}

fn named(container: &Container, name: &str) -> Option<u16> {
    container.ports.iter().find(|port| &*port.name == name).map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value, status: &Value) -> PodObject {
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    fn container(restart: Option<&str>) -> Value {
        json!({"name": "net-prober", "image": "i", "restartPolicy": restart, "ports": [
            {"name": "np-ping", "containerPort": 8080}, {"name": "np-prometheus", "containerPort": 2112}]})
    }

    #[test]
    fn the_agent_is_found_wherever_it_was_injected() {
        let native = pod(
            &json!({"initContainers": [{"name": "x"}, container(Some("Always"))]}),
            &json!({"initContainerStatuses": [{"name": "net-prober", "state": {"running": {"startedAt": null}}}]}),
        );
        let facts = AgentFacts {
            image: "i",
            ping_port: 8080,
            prometheus_port: Some(2112),
            pulls: false,
            native: true,
            stripped: false,
            waiting: None,
            running: true,
            since: None,
            crashes: 0,
        };
        assert_eq!(native.agent(), Some(facts));
        let ordinary = pod(
            &json!({"containers": [container(None)]}),
            &json!({"containerStatuses": [{"name": "net-prober", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}),
        );
        let waiting = Some("ImagePullBackOff");
        let facts = AgentFacts { native: false, waiting, running: false, ..facts };
        assert_eq!(ordinary.agent(), Some(facts));
    }

    #[test]
    fn a_dropped_restart_policy_is_seen() {
        let all = |agent: Value| json!({"initContainers": [{"name": "x"}, agent]});
        let stripped = pod(&all(container(None)), &json!({}));
        let facts = stripped.agent().unwrap();
        assert!(facts.stripped && !facts.native);
        assert_eq!(stripped.stripped_agent(), Some(1));
        let whole = pod(&all(container(Some("Always"))), &json!({}));
        assert_eq!(whole.stripped_agent(), None);
        let ordinary = pod(&json!({"containers": [container(None)]}), &json!({}));
        assert_eq!(ordinary.stripped_agent(), None);
    }

    #[test]
    fn a_name_alone_is_no_agent() {
        let own =
            pod(&json!({"containers": [{"name": "net-prober", "image": "author"}]}), &json!({}));
        assert!(own.agent().is_none() && own.takes_names());
        let volume =
            pod(&json!({"containers": [], "volumes": [{"name": "net-prober-vol"}]}), &json!({}));
        assert!(volume.takes_names());
        let ours = pod(
            &json!({"containers": [container(None)], "volumes": [{"name": "net-prober-vol"}]}),
            &json!({}),
        );
        assert!(!ours.takes_names());
    }

    /// Most images that listen on 8080 do not declare it, but many have a probe there.
    #[test]
    fn a_port_that_the_kubelet_checks_is_taken() {
        for check in ["livenessProbe", "readinessProbe", "startupProbe"] {
            for how in ["httpGet", "tcpSocket", "grpc"] {
                let spec = json!({"containers": [{"name": "a", (check): {(how): {"port": 8080}}}]});
                assert!(pod(&spec, &json!({})).takes_port(8080), "{check} {how}");
            }
        }
        let named =
            json!({"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": "web"}}}]});
        assert!(!pod(&named, &json!({})).takes_port(8080));
    }

    #[test]
    fn a_port_that_the_pod_shows_otherwise_is_taken() {
        let takes = |metadata: serde_json::Value, container: serde_json::Value| {
            let pod =
                serde_json::json!({"metadata": metadata, "spec": {"containers": [container]}});
            let pod: PodObject = serde_json::from_value(pod).unwrap();
            (pod.takes_port(8080), pod.takes_port(8081))
        };
        let none = || serde_json::json!({});
        for container in [
            serde_json::json!({"lifecycle": {"preStop": {"httpGet": {"port": 8080, "path": "/drain"}}}}),
            serde_json::json!({"lifecycle": {"postStart": {"tcpSocket": {"port": 8080}}}}),
            serde_json::json!({"command": ["server", "--port=8080"]}),
            serde_json::json!({"args": ["--metrics-addr", "127.0.0.1:8080"]}),
            serde_json::json!({"env": [{"name": "PORT", "value": "8080"}]}),
        ] {
            assert_eq!(takes(none(), container.clone()), (true, false), "{container}");
        }
        let scraped = serde_json::json!({"annotations": {"prometheus.io/port": "8080"}});
        assert_eq!(takes(scraped, none()), (true, false));
        assert_eq!(takes(none(), none()), (false, false));
    }

    #[test]
    fn a_port_is_taken_by_others_only() {
        let spec = json!({"containers": [container(None), {"name": "a", "ports": [
            {"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 9, "protocol": "SCTP"}]}]});
        let pod = pod(&spec, &json!({}));
        assert!(pod.takes_port(80) && pod.takes_port(53));
        assert!(!pod.takes_port(9) && !pod.takes_port(8080));
    }
}
