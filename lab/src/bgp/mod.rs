//! Real BGP: a network namespace with a BIRD for each node, configured as Calico would. Needs root.
//!
//! ```text
//! lab-bgp-<id>       10.90.0.1     bridge, Prometheus
//! lab-bgp-<id>-NN    10.90.0.1N    eth0; one pod, 10.91.N.1; BIRD; prometheus-bird-exporter
//!                    fd90::a + N   the same in IPv6: one pod, fd91:0:0:N::1; a BIRD of its own
//! ```
//!
//! `world` is the input of Calico, `sessions` and `render` derive from it what confd would, `confd`
//! brings it to the nodes of a `ground`; `watch` sees every route that comes or goes and probes
//! every pair, `measure` reports the cost of a step; `propagation` predicts the observations.

mod bird;
mod birdc;
mod confd;
mod family;
mod follow;
mod ground;
mod history;
mod journal;
mod machine;
mod measure;
mod monitoring;
mod network;
mod nodes;
mod propagation;
mod render;
mod selector;
mod sessions;
mod site;
#[cfg(test)]
mod states;
mod teardown;
#[cfg(test)]
mod tests;
mod watch;
mod world;

pub use confd::Confd;
pub use family::Family;
pub use follow::Follower;
pub use ground::Ground;
pub use history::{History, Version};
pub use machine::Machine;
pub use measure::{Measure, Outcome, Start};
pub use monitoring::{LOAD, Monitoring};
pub use nodes::{Nodes, ZONE};
pub use propagation::{Pairs, Rule, missing, more_while_restarting, paths, worst_without_one};
pub use selector::{Labels, Selector};
pub use sessions::{Session, Sessions, sessions, two_ended};
pub use site::Site;
pub use site::define;
pub(crate) use teardown::{leftovers, run_guard, sweep};
pub use watch::{Gap, Seen, Watch};
pub use world::{Local, Node, Peer, Remote, Speaker, World};
