//! The operator's knowledge of pods: the part that an injector and a list of peers need. Nothing
//! else is kept.
mod agent;
mod needs;
mod qos;
mod requests;
mod resource;
mod wire;

pub use agent::AgentFacts;
pub use needs::{Compute, Needs};
pub use qos::Qos;
pub use requests::RequestingPod;
pub use resource::{
    AGENT_CONTAINER, AGENT_VOLUME, CONSTRAINT_ANNOTATION, Container, DEPLOYED_ANNOTATION,
    HASH_ANNOTATION, INJECT_ANNOTATION, INJECTED_BY_ANNOTATION, METRICS_PORT, MIRROR_ANNOTATION,
    Owner, PING_PORT, PodObject, Port, REFUSED_ANNOTATION, SOUND_SECONDS, is_askable, is_probeable,
};
