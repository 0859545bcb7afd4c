//! The fabric against what was measured with real BIRD, and against a walk over every single node.
//!
//! `lab` builds the fabrics that were measured; `naive` is confd and the oracle once more, node by
//! node.
mod change;
mod confd;
mod lab;
mod naive;
mod original;
mod properties;
mod selectors;
mod tables;
