//! A Kubernetes operator that measures the network and acts on the results.
//!
//! One loop for every kind: **observe** reads and never writes, **plan** decides and does nothing
//! else, **apply** writes and decides nothing, and the driver reports. Read in this order:
//!
//! - [`api`]: the custom resources. Types only; one file per kind, and the registry
//!   [`api::KINDS`] over which the tests of the house rules run.
//! - [`controller`]: the loop that every kind shares, the memory of each object, and the one table
//!   of errors.
//! - The kinds, each with the same files: `observe`, `plan`, `apply`, `memory`, `metrics`,
//!   `report`; most with `conflict` (other objects of the kind), and with `cleanup`, in `apply` or
//!   beside it (what is written outside of the owner tree). Their `mod.rs` lists the others.
//!   - [`traffic_watch`]: judges nodes by PromQL, labels them, and runs a Deployment on the fit
//!     ones. Its pure core leads from `findings` (what each measure proves) through `judgment` to
//!     `plan`; `replay` runs the same core over a history.
//!   - [`network_prober`]: measures round-trip time and loss between pods. `state` keeps one
//!     snapshot of the cluster on every replica, which also serves the webhook and the agents.
//!   - [`swarm`]: gives each stream to exactly one worker. `handover` is the protocol (pure).
//!   - [`route_reflector`]: elects Calico's route reflectors (`election`) and replaces them without
//!     losing a route (`bgp_model` computes the routes that arrive at each node). Both are pure.
//! - [`webhook`]: puts the agent into pods as they are created: `injection` decides and patches
//!   (pure); the API server reaches it through `server`, `review` and `certificates`.
//! - [`agent`]: the processes in the pods: the agents of a `NetworkProber`, and the workers of a
//!   Swarm. They need no API server.
//! - [`acknowledgement`]: how workers sign their reports to the operator.
//! - [`placement`]: assigns one thing to another. Pure, and without Kubernetes.
//! - [`prometheus`]: PromQL in, numbers out; one request for all callers with the same query.
//! - [`nodes`]: the known facts about nodes, and the node of a series.
//! - `selector`: label selectors.
//! - [`pods`]: the known facts about pods, of which only a part is read.
//! - [`infra`]: the parts below all of these: client, lease, watches, the signal to end, log.
//! - [`runtime`]: one process, which is webhook, controller or both: the composition of all parts,
//!   and the admin server.
//! - `text`: numbers, colors and tables for people.
//! - `serving`: HTTP servers with limits for all clients and for each.
//! - [`metrics`]: our own metrics.
//! - [`manifests`]: the sources of the generated files in `deploy/`.
//! - [`inspect`]: the logic of the commands that only read: pure answers, and thin code that reads
//!   the facts.
//! - [`cli`]: the command line; its doc comments are the help text.
//! - `clock`: the clocks of decisions, which `simulation` (tests) plays faster than they run.
#![warn(clippy::disallowed_types)]

#[cfg(test)]
mod any_json;
pub mod api;
pub mod cli;
mod clock;
pub mod controller;
mod extended_resources;
pub mod infra;
pub mod inspect;
pub mod manifests;
pub mod metrics;
pub mod network_prober;
pub mod nodes;
mod partial_resource;
pub mod pods;
pub mod prometheus;
pub mod route_reflector;
pub mod runtime;
pub(crate) mod selector;
pub(crate) mod serving;
#[cfg(test)]
mod simulation;
pub mod swarm;
pub(crate) mod text;
pub mod traffic_watch;
pub mod webhook;

pub use traffic_operator_agent as agent;
pub use traffic_operator_core::{acknowledgement, placement};

/// Identifies this operator to the API server and to Prometheus, and its agents to the operator.
pub use traffic_operator_agent::USER_AGENT;
