//! A deterministic simulation of the operator: the driver and the kind `TrafficWatch`, on a clock
//! that is faster than time, with an API server and a Prometheus in memory.
//!
//! A seed decides everything: the nodes and objects, the loads, the edits of other clients, the
//! faults and the delay of each request. `SEED=123 cargo test --lib simulation -- --nocapture`
//! plays one of them and prints what happened; `SIMULATED_SEEDS=10000` plays that many.
//!
//! | file | holds |
//! |---|---|
//! | `play` | one seed, from its beginning to its end |
//! | `script`, `dice` | what happens, and when; numbers from the seed |
//! | `world`, `write` | the state of everything, and the record |
//! | `server`, `call`, `watching`, `store` | the API server |
//! | `measured`, `loads` | Prometheus |
//! | `faults` | the faults of both |
//! | `operator` | the processes of the operator |
//! | `oracle`, `scene`, `model` | the judges of each write, and of the end |
//! | `weakened` | broken rules, which the judges must find |
mod call;
mod dice;
mod faults;
mod loads;
mod measured;
mod model;
mod operator;
mod oracle;
mod play;
mod scene;
mod script;
mod server;
mod store;
mod tests;
mod watching;
mod weakened;
mod world;
mod write;
