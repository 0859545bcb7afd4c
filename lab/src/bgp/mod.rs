//! Real BGP: a network namespace with a BIRD for each node, configured as Calico would. Needs root.
//!
//! ```text
//! lab-bgp-<id>       10.90.0.1     bridge, Prometheus
//! lab-bgp-<id>-NN    10.90.0.1N    eth0; one pod, 10.91.N.1; BIRD; prometheus-bird-exporter
//! ```
//!
//! `world` is what Calico is told, `sessions` and `render` make of it what confd would, `confd` brings it to the nodes of a
//! `ground`; `watch` sees every route that comes or goes and probes every pair, `measure` says of a step what it has cost;
//! `propagation` is what must be seen, and `check` shows that it is.

mod birdc;
pub mod check;
mod confd;
mod ground;
mod history;
mod journal;
mod machine;
mod measure;
mod network;
mod propagation;
mod render;
mod selector;
mod sessions;
mod teardown;
#[cfg(test)]
mod tests;
mod watch;
mod world;

pub use confd::Confd;
pub use ground::Ground;
pub use history::{History, Version};
pub use machine::Machine;
pub use measure::{Measure, Outcome, Start};
pub use propagation::{Pairs, Rule};
pub use sessions::{Session, Sessions};
pub(crate) use teardown::{leftovers, run_guard, sweep};
pub use watch::{Gap, Seen, Watch};
pub use world::World;
