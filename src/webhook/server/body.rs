//! Bodies of admission requests, with memory that counts towards a budget as they arrive.
//!
//! Any client that reaches the port may send one. If a budget were reserved for an announced size,
//! a client that announces much and sends nothing would hold it; so only received bytes count.
//! There are two budgets, one for the size of almost every pod and one for the excess of the
//! largest, each with a part for every source.
use std::{net::IpAddr, time::Duration};

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::serving::budget::{Budget, Share};

/// The largest body of an admission request. An object in etcd has at most 1.5 MiB, and its JSON is
/// larger than the stored form; the API server sends one object at a creation.
pub const LIMIT: usize = 4 << 20;

/// Part of a body that counts towards the budget of all bodies: more than almost every Pod has.
const SMALL: usize = 64 << 10;

/// The budget of all bodies, in steps: 8 MiB, 128 of [`SMALL`] at once. A thousand reviews a second
/// of that size are two at a time.
const SMALL_IN_ALL: usize = (8 << 20) / STEP;

/// The part of one source: 2 MiB, an API server that sends 32 at once.
const SMALL_OF_ONE: usize = (2 << 20) / STEP;

/// The budget of the parts of bodies beyond [`SMALL`], in steps: 8 MiB, two of the largest.
const LARGE_IN_ALL: usize = (8 << 20) / STEP;

/// The part of one source: 4 MiB, one of the largest.
const LARGE_OF_ONE: usize = (4 << 20) / STEP;

/// The unit of the budgets, in bytes: larger than a frame, for fewer steps.
const STEP: usize = 16 << 10;

/// Maximum number of bodies read at once, in total and of one source, which bounds those that wait
/// for a budget. An API server has as many concurrent requests as pods are created in a
/// millisecond.
const REQUESTS: (usize, usize) = (1024, 256);

/// The time that a body may take to arrive, including the wait for its turn: the API server gives
/// up after the same time.
const DEADLINE: Duration = Duration::from_secs(2);

/// Deadline for each further [`SMALL`] of a large body: 256 KiB a second, even after a lost packet
/// (the kernel retransmits it after 200 ms). A slow sender holds the second budget no longer.
const PROGRESS: Duration = Duration::from_millis(250);

/// The memory of all bodies.
#[derive(Clone)]
pub struct Bodies {
    requests: Budget<IpAddr>,
    small: Budget<IpAddr>,
    large: Budget<IpAddr>,
}

/// A body, and its part of the budgets.
pub struct Held {
    /// The complete body.
    pub bytes: Vec<u8>,
    _shares: [Share; 3],
}

/// The reason why a body was not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The source, or all sources together, have too many concurrent requests.
    #[error("too many requests at once")]
    TooMany,
    /// It has more than [`LIMIT`].
    #[error("the body is larger than {LIMIT} bytes")]
    TooLarge,
    /// It arrived too slowly, or others use the budgets.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// The connection broke.
    #[error("the body broke off")]
    Broken,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            requests: Budget::new(REQUESTS.0, REQUESTS.1),
            small: Budget::new(SMALL_IN_ALL, SMALL_OF_ONE),
            large: Budget::new(LARGE_IN_ALL, LARGE_OF_ONE),
        }
    }
}

impl Bodies {
    /// Reads a body.
    ///
    /// # Errors
    /// The reason why it was not read; the received part is dropped.
    pub async fn read(&self, body: Body, source: IpAddr) -> Result<Held, Refused> {
        let request = self.requests.take(source, 1).ok_or(Refused::TooMany)?;
        if body.size_hint().lower() > LIMIT as u64 {
            return Err(Refused::TooLarge);
        }
        let mut reader = BodyReader {
            bytes: Vec::new(),
            small: self.small.none(source),
            large: self.large.none(source),
            paid: 0,
            deadline: Instant::now() + DEADLINE,
        };
        reader.all(body).await?;
        let BodyReader { bytes, small, large, .. } = reader;
        Ok(Held { bytes, _shares: [request, small, large] })
    }
}

struct BodyReader {
    bytes: Vec<u8>,
    small: Share,
    large: Share,
    paid: usize,
    deadline: Instant,
}

impl BodyReader {
    async fn all(&mut self, mut body: Body) -> Result<(), Refused> {
        let mut due = self.deadline;
        let mut mark = SMALL;
        loop {
            let frame = timeout_at(due, body.frame()).await.map_err(|_| Refused::TooSlow)?;
            let Some(frame) = frame else { return Ok(()) };
            let Ok(chunk) = frame.map_err(|_| Refused::Broken)?.into_data() else { continue };
            self.add(&chunk).await?;
            if self.bytes.len() >= mark {
                mark = self.bytes.len() + SMALL;
                due = self.deadline.min(Instant::now() + PROGRESS);
            }
        }
    }

    async fn add(&mut self, chunk: &Bytes) -> Result<(), Refused> {
        let length = self.bytes.len() + chunk.len();
        if length > LIMIT {
            return Err(Refused::TooLarge);
        }
        while self.paid < length {
            let budget = if self.paid < SMALL { &mut self.small } else { &mut self.large };
            timeout_at(self.deadline, budget.grow(1)).await.map_err(|_| Refused::TooSlow)?;
            self.paid += STEP;
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
