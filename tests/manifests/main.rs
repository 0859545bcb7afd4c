//! The house rules over all kinds; what is committed is what the code generates; and every way to
//! install renders the same objects, which an API server accepts.
//!
//! Needs helm, kubectl and bundle-validate, and etcd and kube-apiserver for one test;
//! `cargo run --bin lab -- tools` builds them beforehand.
mod accepted;
mod chart;
mod equal;
mod generated;
mod olm;
mod rendering;
mod values;
