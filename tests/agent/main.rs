//! Real agents, as processes on loopback: what they probe, what they report, and which faults they
//! survive. The first module has one test for every defect of the original agent.
// A test that cannot set up its stage has failed.
#![allow(clippy::unwrap_used)]

mod exposition;
mod file;
mod isolation;
mod lifecycle;
mod limits;
mod originals;
mod packets;
mod page;
mod pull;
mod reload;
mod stage;
mod trace;
mod worker;
