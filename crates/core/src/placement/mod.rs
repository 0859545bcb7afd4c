//! The placement decisions: every decision that assigns one thing to another.
//!
//! Such a decision is a pure function: of identities (plain text), attributes and, where it has to
//! be sticky, of the assignment before. No Kubernetes type, no input or output, no clock, no
//! randomness. Apparent randomness is a [`hash`] of identities, so that every replica and every
//! agent, of any version, computes the same result without asking another, and in whatever order it
//! learned of its members.
//!
//! A decision of this module promises three things, each proved by a property test: it depends on
//! nothing but its arguments (not on their order either); it is balanced, within bounds that its
//! documentation states; and a change of one member moves no more than that member's own share.
//!
//! - [`assignment`]: which worker has which items. Each has one, evenly, and as few move as is
//!   possible.
//! - [`ring`]: who probes whom. Every member has a fixed number of probers in its own zone and in
//!   each other zone.
//! - [`part`]: which part of a file that is divided among several `ConfigMap`s is whose.
//! - [`hash`]: positions on a circle, and scores of pairs.
pub mod assignment;
pub mod hash;
pub mod part;
pub mod ring;
