//! The house rules for all kinds; the committed manifests are the generated ones; every way to
//! install renders the same objects, which an API server accepts; and the commands of the
//! documentation install and uninstall.
//!
//! Needs helm, kubectl and bundle-validate, and the programs of a control plane for two
//! tests; `cargo run --bin lab -- tools` builds them beforehand.
mod accepted;
mod chart;
mod environment;
mod equal;
mod generated;
mod newcomers;
mod olm;
mod rendering;
mod scripts;
mod values;
