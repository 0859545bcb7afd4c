//! Crash points: the operator is killed at each write of a reference pass of each kind (before it,
//! without its answer, and after it), and starts again, also on a stale view.
//!
//! Judged by the end state, which is that of an undisturbed run; by the number of writes to each
//! object; and by silence afterwards. `make test` plays a sample of them, `make soak` all.
mod harness;
mod lives;
mod network_prober;
mod points;
mod route_reflector;
mod state;
mod swarm;
mod traffic_watch;
