//! Names in pods that the operator and its agents agree on.

/// The name of the agent's container, the original operator's.
pub const AGENT_CONTAINER: &str = "net-prober";
/// The variable with the way in which an agent gets its list of peers.
pub const DELIVERY_VARIABLE: &str = "NET_PROBER_DELIVERY";
/// Seconds of running after which the kubelet forgets earlier terminations of a container.
pub const SOUND_SECONDS: i64 = 10 * 60;
/// The name of the agent's volume, the original operator's.
pub const AGENT_VOLUME: &str = "net-prober-vol";
/// The name of the port that answers probes.
pub const PING_PORT: &str = "np-ping";
/// The name of the port that serves the agent's metrics.
pub const METRICS_PORT: &str = "np-prometheus";

/// Written by the injection with the value `true`, as the original operator did; an author who sets
/// it to any value opts out.
pub const DEPLOYED_ANNOTATION: &str = "netprober-container-deployed";
/// `"false"` opts out.
pub const INJECT_ANNOTATION: &str = "probes.bigmikes.io/inject";
/// Names the agent's `NetworkProber`: `<namespace>/<name>`.
pub const INJECTED_BY_ANNOTATION: &str = "probes.bigmikes.io/injected-by";
/// Identifies the injected agent: the hash of the recipe.
pub const HASH_ANNOTATION: &str = "probes.bigmikes.io/injected-hash";
/// The mark of a pod that would be refused with an agent: `<namespace>/<name>` of the
/// `NetworkProber`, and the hash of the recipe.
pub const REFUSED_ANNOTATION: &str = "probes.bigmikes.io/refused-with";
/// Set by the kubelet on the mirror of a static pod, which cannot be changed.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Set by `OpenShift` before webhooks are called: the security context constraint that admits the
/// pod.
pub const CONSTRAINT_ANNOTATION: &str = "openshift.io/scc";
/// A port of the application, for scrapes that discover pods by annotations.
pub const SCRAPED_ANNOTATION: &str = "prometheus.io/port";
