//! The operator's knowledge of pods: the part that an injector and a list of peers need. Nothing
//! else is kept.
pub(crate) mod address;
mod affinity;
mod agent;
mod listening;
mod names;
mod needs;
mod qos;
mod requests;
mod resource;
mod weight;
mod wire;

pub use agent::AgentFacts;
pub use names::{
    AGENT_CONTAINER, AGENT_VOLUME, CONSTRAINT_ANNOTATION, DEPLOYED_ANNOTATION, HASH_ANNOTATION,
    INJECT_ANNOTATION, INJECTED_BY_ANNOTATION, METRICS_PORT, MIRROR_ANNOTATION, PING_PORT,
    REFUSED_ANNOTATION, SOUND_SECONDS,
};
pub use needs::{Compute, Needs};
pub use qos::Qos;
pub use requests::RequestingPod;
pub use resource::{Container, Owner, PodObject, Port};
