//! What the operator knows of pods: what an injector and a list of peers need. Nothing else is kept.
pub mod address;
mod agent;
mod needs;
mod qos;
mod resource;
mod weight;
mod wire;

pub use agent::{
    AGENT_CONTAINER, AGENT_VOLUME, AgentFacts, METRICS_PORT, PING_PORT, SOUND_SECONDS,
};
pub use needs::{Compute, Needs};
pub use qos::Qos;
pub use resource::{
    CONSTRAINT_ANNOTATION, Container, DEPLOYED_ANNOTATION, HASH_ANNOTATION, INJECT_ANNOTATION,
    INJECTED_BY_ANNOTATION, MIRROR_ANNOTATION, Owner, PodObject, Port,
};
