//! The rules of a proxy: which requests or watch events a fault applies to.

use std::time::Duration;

use super::Call;

/// A fault of one request, or of one event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The request is passed on after a pause.
    Delay(Duration),
    /// The server never sees the request; the answer has this code, and a Status as its body.
    Refuse(u16),
    /// The same with code 429 and this many seconds in Retry-After.
    Throttle(u32),
    /// The server never sees the request; the answer has this code, content type and body.
    Answer(u16, &'static str, String),
    /// The server never sees the request; the answer is a Prometheus' vector with a label of this
    /// many mebibytes, compressed to a thousandth.
    Bomb(usize),
    /// The server never sees the request, and no answer comes.
    Never,
    /// The server executes the request; no answer comes, and no later request reaches the server.
    /// Its client is killed at this point, see [`Proxy::is_halted`](super::Proxy::is_halted).
    Halt,
    /// The connection breaks after this many bytes of the body.
    Cut(usize),
    Event(EventFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFault {
    /// In place of the event comes the error that its version is gone, and the watch ends.
    Gone,
    /// In place of the event comes a line that is no JSON, and the watch ends.
    Garbage,
}

/// The event of a watch whose version is gone.
pub(super) const GONE: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"#,
    r#""status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#,
    "\n"
);

/// One rule. A new one matches every request, each time; the methods narrow it.
#[derive(Debug, Clone)]
pub struct Rule {
    verbs: &'static [&'static str],
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    other_than: Option<String>,
    skip: usize,
    times: usize,
    pub(super) fault: Fault,
    seen: usize,
}

impl Rule {
    /// A rule for every request, or every event of every watch.
    pub fn new(fault: Fault) -> Self {
        Self {
            verbs: &[],
            resource: None,
            subresource: None,
            namespace: None,
            name: None,
            other_than: None,
            skip: 0,
            times: usize::MAX,
            fault,
            seen: 0,
        }
    }

    pub fn event(fault: EventFault) -> Self {
        Self::new(Fault::Event(fault))
    }

    /// Matches these verbs only.
    pub fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    /// Matches `plural` or `plural/subresource` only: without a subresource, the object and all of
    /// its subresources; with `plural/`, the object alone.
    pub fn resource(mut self, resource: &str) -> Self {
        let (plural, sub) = match resource.split_once('/') {
            Some((plural, sub)) => (plural, Some(sub.to_owned())),
            None => (resource, None),
        };
        (self.resource, self.subresource) = (Some(plural.to_owned()), sub);
        self
    }

    /// Matches this namespace only.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Matches this object only; of a watch, the events about it.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Matches requests whose path and query do not contain this.
    pub fn other_than(mut self, text: &str) -> Self {
        self.other_than = Some(text.to_owned());
        self
    }

    /// Lets the first `skip` pass.
    pub fn skip(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Applies this many times.
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Reports whether it applies to the request, which counts if it matches.
    pub(super) fn applies(&mut self, call: &Call) -> bool {
        !matches!(self.fault, Fault::Event(_)) && self.matches(call, &call.name) && self.is_due()
    }

    /// Returns its fault of an event about `name`, which counts if it matches.
    pub(super) fn of_event(&mut self, call: &Call, name: &str) -> Option<EventFault> {
        let Fault::Event(fault) = self.fault else { return None };
        let applies = self.matches(call, name) && self.is_due();
        applies.then_some(fault)
    }

    fn matches(&self, call: &Call, name: &str) -> bool {
        let is = |wanted: &Option<String>, actual: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == actual)
        };
        (self.verbs.is_empty() || self.verbs.contains(&call.verb.as_str()))
            && is(&self.resource, &call.resource)
            && is(&self.subresource, &call.subresource)
            && is(&self.namespace, &call.namespace)
            && is(&self.name, name)
            && self.other_than.as_deref().is_none_or(|text| !call.target.contains(text))
    }

    /// Counts one more, and reports whether the rule applies to it.
    fn is_due(&mut self) -> bool {
        let number = self.seen;
        self.seen += 1;
        let Some(number) = number.checked_sub(self.skip) else { return false };
        number < self.times
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn call(method: &Method, target: &str) -> Call {
        Call::of(method, &target.parse().unwrap())
    }

    #[test]
    fn the_numbers_of_a_rule_count_what_matches() {
        let patch = call(&Method::PATCH, "/api/v1/nodes/a");
        let mut rule = Rule::new(Fault::Refuse(409)).verbs(&["patch"]).resource("nodes");
        rule = rule.skip(1).times(2);
        let due: Vec<_> = (0..5).map(|_| rule.applies(&patch)).collect();
        assert_eq!(due, [false, true, true, false, false]);
        let mut rule = Rule::new(Fault::Never).resource("nodes").times(1);
        assert!(!rule.applies(&call(&Method::GET, "/api/v1/pods")));
        assert!(rule.applies(&patch) && !rule.applies(&patch));
    }

    #[test]
    fn a_resource_has_a_subresource_where_it_is_given() {
        let status = "/apis/traffic.example.com/v1alpha1/namespaces/ns/trafficwatches/a/status";
        let status = call(&Method::PATCH, status);
        for (resource, expected) in
            [("trafficwatches", true), ("trafficwatches/status", true), ("trafficwatches/", false)]
        {
            let mut rule = Rule::new(Fault::Never).resource(resource);
            assert_eq!(rule.applies(&status), expected, "{resource}");
        }
        assert!(Rule::new(Fault::Never).namespace("ns").name("a").applies(&status));
        assert!(!Rule::new(Fault::Never).name("b").applies(&status));
        assert!(!Rule::new(Fault::Never).other_than("v1alpha1").applies(&status));
    }

    #[test]
    fn a_rule_of_events_matches_no_request_and_the_object_of_the_event() {
        let watch = call(&Method::GET, "/api/v1/nodes?watch=true");
        let mut rule = Rule::event(EventFault::Gone).resource("nodes").name("a").times(1);
        assert!(!rule.applies(&watch));
        assert_eq!(rule.of_event(&watch, "b"), None);
        assert_eq!(rule.of_event(&watch, "a"), Some(EventFault::Gone));
        assert_eq!(rule.of_event(&watch, "a"), None);
    }
}
