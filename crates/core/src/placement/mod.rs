//! The placement decisions: every decision that assigns one thing to another.
//!
//! Such a decision is a pure function of identities (plain text), attributes and, if it has to be
//! sticky, the previous assignment. No Kubernetes type, no input or output, no clock, no
//! randomness. Apparent randomness is a [`hash`] of identities, so that every replica and every
//! agent, of any version, computes the same result without asking another, in whatever order it
//! received the members.
//!
//! A decision of this module has three guarantees, each checked by a property test: it depends on
//! nothing but its arguments (not on their order either); it is balanced, within bounds that its
//! documentation states; and a change of one member moves no more than that member's own share.
//!
//! - [`assignment`]: assigns items to workers: exactly one each, evenly, with as few moves as
//!   possible.
//! - [`ring`]: chooses the peers that each agent probes. Every member has a fixed number of probers
//!   in its own zone and in each other zone.
//! - [`part`]: the part of each worker in a file that is divided among several `ConfigMap`s.
//! - [`hash`]: positions on a circle, and scores of pairs.
pub mod assignment;
pub mod hash;
pub mod part;
pub mod ring;
