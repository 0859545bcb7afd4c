//! The admission webhook that injects the prober's agent, and the TLS server that it runs in.
//!
//! - [`injection`]: whether a pod gets the agent, and the patch that gives it (pure).
//! - [`review`]: an admission review in, an answer out. Never a refusal.
//! - [`configuration`]: which requests the API server sends here (pure).
//! - [`certificates`]: our own authority and certificate: what is due (pure), who writes it, who reads it.
//! - [`server`]: HTTPS, on every replica.
pub mod certificates;
pub mod injection;
