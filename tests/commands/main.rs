//! The user's commands, run as processes against a scripted Prometheus; one also runs against a
//! real Prometheus, which `lab tools` builds. None of these tests needs a cluster.
mod backtesting;
mod docs;
mod doctoring;
mod evaluating;
mod explaining;
mod objects;
mod probing;
mod program;
mod prometheus;
mod shells;
mod status;
mod swarming;
mod trying;
