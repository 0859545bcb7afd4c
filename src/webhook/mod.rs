//! The admission webhook that injects the prober's agent, and the TLS server that it runs in.
//!
//! - [`injection`]: decides whether a pod gets the agent, and makes the patch that adds it (pure).
//! - [`review`]: an admission review in, an answer out; never a refusal.
//! - `configuration`: the requests that the API server sends here (pure).
//! - [`certificates`]: our own authority and certificate: the rotation (pure), its writer and its
//!   readers.
//! - [`server`]: HTTPS, on every replica of the webhook.
pub mod certificates;
pub(crate) mod configuration;
pub mod injection;
pub mod review;
pub mod server;

/// FNV-1a: its value is the same in every version of this program and of its libraries.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
