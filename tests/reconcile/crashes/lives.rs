//! The lives of an operator that is killed at one of its writes and starts again.
use std::time::{Duration, Instant};

use lab::fault::{Halt, Proxy, Request};

use super::points::{Crash, Write};
use crate::bench::{Bench, Operator};

/// The time that a process has for an answer before it is killed: it may act upon it, but no
/// request of it reaches the API server any more.
const MOMENT: Duration = Duration::from_millis(100);

/// The longest time for which a stale view lasts; it ends with the first write that it causes. An
/// API server that restarts lags behind for less.
const STALE: Duration = Duration::from_secs(3);

/// A process, and everything that the earlier one has requested.
pub struct Lives<'a> {
    // Dropped in this order: the operator ends before its proxy.
    operator: Operator,
    proxy: Proxy,
    crash: Option<&'a Crash>,
    /// True once the first process has been killed.
    pub crashed: bool,
    earlier: Vec<Request>,
    /// The start of a stale view that lasts.
    stale: Option<Instant>,
    /// The number of writes at the last look, and the time of the last one.
    writes: (usize, Instant),
}

impl<'a> Lives<'a> {
    /// Starts the operator.
    pub async fn begin(bench: &Bench, crash: Option<&'a Crash>) -> Self {
        let proxy = bench.proxy().await;
        proxy.set(crash.map(Crash::rule));
        Self {
            operator: start(bench, &proxy),
            proxy,
            crash,
            crashed: false,
            earlier: vec![],
            stale: None,
            writes: (0, Instant::now()),
        }
    }

    /// Kills the operator if it is at the point of its crash, and starts it again; ends a stale
    /// view that has lasted long enough. Returns the time since the last write.
    pub async fn look(&mut self, bench: &Bench) -> Duration {
        if let (false, Some(crash), Some(version)) = (self.crashed, self.crash, self.proxy.halted())
        {
            self.crashed = true;
            if crash.halt == Halt::Answered {
                tokio::time::sleep(MOMENT).await;
            }
            // By SIGKILL: it can neither report nor release anything.
            self.operator.child.kill().expect("kill");
            self.operator.child.wait().expect("wait");
            self.earlier = self.proxy.requests();
            let proxy = bench.proxy().await;
            if crash.stale {
                proxy.freeze_at(version);
            }
            self.operator = start(bench, &proxy);
            self.proxy = proxy;
            // Silence counts from here: before, it is only that nobody is there.
            self.operator.ready().await;
            self.stale = crash.stale.then(Instant::now);
            self.writes = (count(&self.earlier), Instant::now());
        }
        let now = self.proxy.requests();
        let count = count(&self.earlier) + count(&now);
        if self.stale.is_some_and(|since| count > self.writes.0 || since.elapsed() > STALE) {
            self.stale = None;
            self.proxy.thaw();
            // What the present view brings is still to come.
            self.writes.1 = Instant::now();
        }
        if count != self.writes.0 || self.stale.is_some() {
            self.writes = (count, Instant::now());
        }
        self.writes.1.elapsed()
    }

    /// Asserts that the process still runs, and returns the executed writes of all lives.
    pub fn end(mut self) -> Vec<Write> {
        let ended = self.operator.child.try_wait().expect("wait");
        assert_eq!(ended, None, "the operator ended");
        self.earlier.extend(self.proxy.requests());
        self.earlier.iter().filter_map(Write::executed).collect()
    }

    /// Returns the last writes, for a test that fails.
    pub fn last_writes(&self) -> Vec<String> {
        let now = self.proxy.requests();
        let all: Vec<_> = self.earlier.iter().chain(&now).filter(|r| r.call.is_write()).collect();
        let text = |r: &&Request| format!("{} {} {}", r.call.verb, r.call.target, r.code);
        all[all.len().saturating_sub(12)..].iter().map(text).collect()
    }
}

/// The number of writes except for those to leases.
fn count(requests: &[Request]) -> usize {
    requests.iter().filter(|r| r.call.is_write() && r.call.resource != "leases").count()
}

/// Starts the operator behind a proxy. The second process takes over the lease of the first at
/// once, because it has the same name. The address of the webhook is part of what they write, so
/// that both have the same; nobody listens there.
fn start(bench: &Bench, proxy: &Proxy) -> Operator {
    let kubeconfig = proxy.kubeconfig().expect("a proxy before the API server").to_owned();
    let prometheus = ["--prometheus-url", &bench.prometheus.url];
    let lease = ["--lease-duration", "15s", "--identity", "operator-1"];
    let urls = ["--webhook-url", "https://127.0.0.1:9", "--pinglist-url", "https://127.0.0.1:9"];
    Bench::operator_from(kubeconfig, &prometheus, &[lease, urls].concat())
}
