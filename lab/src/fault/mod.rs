//! A proxy with faults, before an API server or a Prometheus.
//!
//! [`Rule`]s say which requests or watch events a [`Fault`] applies to; the first rule that applies
//! decides. [`Wire`] is for faults of whole connections. [`Proxy::hold`] shows the past.
//!
//! Clients speak plain HTTP to it, on loopback. A client certificate cannot pass a proxy that reads
//! requests, so that the proxy has the client's identity itself: it is started for one user, and
//! sends every request with that user's certificate. Two replicas of one account may share a proxy,
//! or have one each.
//!
//! ```no_run
//! # async fn example(plane: &lab::ControlPlane) -> anyhow::Result<()> {
//! use lab::fault::{EventFault, Fault, Proxy, Rule};
//! let proxy = Proxy::before_api_server(plane, "jane", &["system:authenticated"]).await?;
//! proxy.set([
//!     Rule::new(Fault::Refuse(409)).verbs(&["patch"]).resource("nodes").times(2),
//!     Rule::event(EventFault::Gone).resource("nodes").name("node-2").times(1),
//! ]);
//! // … start a client with proxy.kubeconfig() …
//! assert!(proxy.requests().iter().all(|request| request.call.verb != "delete"));
//! # Ok(())
//! # }
//! ```

mod call;
mod events;
mod proxy;
mod rule;
#[cfg(test)]
mod tests;
mod upstream;
mod wire;

pub use call::Call;
pub use proxy::{Proxy, Request};
pub use rule::{EventFault, Fault, Rule};
pub use wire::Wire;

use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use crate::wait::lock;
use upstream::Upstream;

/// State that the proxy and all of its requests share.
struct Shared {
    upstream: Upstream,
    script: Mutex<Script>,
    /// Changes with the script: events that are held back are looked at again.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Script {
    rules: Vec<Rule>,
    requests: Vec<Request>,
    /// The resource whose events are held back.
    held: Option<&'static str>,
    /// True once a request has halted the proxy.
    stopped: bool,
    /// True once the server has executed that request.
    halted: bool,
}

impl Shared {
    fn new(upstream: Upstream) -> Self {
        Self { upstream, script: Mutex::default(), changed: watch::Sender::new(()) }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.script)
    }

    /// Changes the script, and lets held events be looked at again.
    fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script());
        self.changed.send_replace(());
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Records a request, and returns its number and its fault.
    fn decide(&self, call: &Call) -> (usize, Option<Fault>) {
        let mut script = self.script();
        let mut fault = None;
        // All of them count the request, whichever decides.
        for rule in &mut script.rules {
            if rule.applies(call) && fault.is_none() {
                fault = Some(rule.fault.clone());
            }
        }
        if script.stopped {
            fault = Some(Fault::Never);
        }
        script.stopped |= matches!(fault, Some(Fault::Halt));
        let request =
            Request { call: call.clone(), body: String::new(), fault: fault.clone(), code: 0 };
        script.requests.push(request);
        (script.requests.len() - 1, fault)
    }

    /// Records the code of the answer to a request.
    fn answered(&self, number: usize, code: u16) {
        if let Some(request) = self.script().requests.get_mut(number) {
            request.code = code;
        }
    }

    fn of_event(&self, call: &Call, name: &str) -> Option<EventFault> {
        let mut script = self.script();
        let mut fault = None;
        for rule in &mut script.rules {
            fault = fault.or(rule.of_event(call, name));
        }
        fault
    }

    /// Reports whether the events of a watch are held back.
    fn holds(&self, call: &Call) -> bool {
        self.script().held.is_some_and(|held| held == call.resource)
    }
}
