//! Kubernetes that acts on how its network really behaves.
//!
//! One loop for every kind: **observe** reads and never writes, **plan** decides and does nothing
//! else, **apply** writes and decides nothing, and the driver reports. Read in this order:
//!
//! - [`api`]: the custom resources. Types only; one file per kind, and the registry
//!   [`api::KINDS`] over which the tests of the house rules run.
//! - [`controller`]: the loop that every kind shares, and the one table of errors.
//! - [`traffic_watch`]: judges nodes by PromQL. Its pure core is `plan`, from `findings` (what each
//!   measure proves) through `judgement` (with `limits`, `room`, `memory`, `conflict`) to what is written
//!   (`children`, `evictions`) and told (`report`); its edges are `query` (text out), `reading` (numbers
//!   in), `apply` and the [`controller::Reconciler`]. `replay` runs the same core over a history,
//!   `live` shows what it decides now.
//! - [`network_prober`]: measures round-trip time and loss between pods. `state` keeps what every
//!   replica knows as one snapshot, whose pure parts are `snapshot`, `settings`, `scope` (which namespaces),
//!   `members` (which pods) and `pinglists` (who probes whom); `injector` and `serving` answer webhook and agents
//!   from it, and its [`controller::Reconciler`] writes what `plan` and `children` say.
//! - [`route_reflector`]: elects Calico's route reflectors. Its pure core is `election`: which nodes, in which slots,
//!   with which cluster ids, and who peers with whom.
//! - [`webhook`]: puts the agent into pods as they are created: `injection` decides and patches (pure),
//!   `server`, `review` and `certificates` are how the API server reaches it.
//! - [`agent`]: the processes in the pods: what probes for a `NetworkProber`, what runs the streams of a
//!   Swarm. They need no API server.
//! - [`acknowledgement`]: how workers sign what they say to the operator.
//! - [`placement`]: who with whom. Pure, and without Kubernetes.
//! - [`route_reflector`]: chooses Calico's route reflectors. Its `bgp_model` says which routes arrive where (pure).
//! - [`prometheus`]: PromQL in, numbers out; one request for everybody who asks the same.
//! - [`nodes`]: what is known of the nodes, and which node a series is about.
//! - [`selector`]: which labels match.
//! - [`pods`]: what is known of the pods, read in part.
//! - [`runtime`]: one process, which is webhook, controller or both: client, lease, admin server, shutdown.
//! - [`serving`]: HTTP servers with limits for all clients and for each.
//! - [`metrics`]: our own metrics.
//! - [`manifests`]: what `deploy/` is generated from.
//! - [`inspect`]: what the commands that look find out: pure answers, and the thin reading before them.
//! - [`cli`]: the command line; its doc comments are the help text.
pub mod acknowledgement;
pub mod agent;
pub mod api;
pub mod cli;
pub mod controller;
pub mod inspect;
pub mod manifests;
pub mod metrics;
pub mod network_prober;
pub mod nodes;
mod partial_resource;
pub mod placement;
pub mod pods;
pub mod prometheus;
pub mod route_reflector;
pub mod runtime;
pub mod selector;
pub mod serving;
pub mod swarm;
pub mod traffic_watch;
pub mod webhook;

/// How this operator names itself to the API server and to Prometheus.
pub const USER_AGENT: &str = concat!("traffic-operator/", env!("CARGO_PKG_VERSION"));
