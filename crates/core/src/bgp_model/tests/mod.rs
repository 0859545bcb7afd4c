//! Tests that compare the fabric with measurements of real BIRD, and with a walk over every single
//! node.
//!
//! `lab` builds the fabrics that were measured; `naive` implements confd and the oracle again, node
//! by node.
mod change;
mod confd;
mod lab;
mod naive;
mod properties;
mod selectors;
mod tables;
