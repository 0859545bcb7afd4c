//! The writes of a pass, and the points at which the operator is killed.
use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
};

use lab::fault::{Call, Fault, Halt, Request, Rule};

/// A write, as far as it is the same in every run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    verb: String,
    /// As [`Rule::resource`] takes it.
    resource: String,
    namespace: String,
    /// Empty for creations, for events, whose names hold the time, and for pods of Deployments,
    /// whose names are random.
    name: String,
    /// True for a server-side apply of one of our own objects.
    applies: bool,
}

/// The parameter of a forced server-side apply, which all of ours are.
const FORCE: &str = "force=true";

impl Write {
    /// Returns the write that the API server has executed by this request.
    pub fn executed(request: &Request) -> Option<Self> {
        let done = request.call.is_write() && (200..300).contains(&request.code);
        done.then(|| Self::of(&request.call))
    }

    fn of(call: &Call) -> Self {
        let group = match call.group.as_str() {
            "" => String::new(),
            group => format!(".{group}"),
        };
        Self {
            verb: call.verb.clone(),
            resource: format!("{}{group}/{}", call.resource, call.subresource),
            namespace: call.namespace.clone(),
            name: if has_random_name(call) { String::new() } else { call.name.clone() },
            applies: call.target.contains(FORCE),
        }
    }

    /// A lease is renewed all the time.
    pub fn is_lease(&self) -> bool {
        self.resource.starts_with("leases.")
    }

    /// Reports whether it is about objects of this plural name.
    pub fn is_to(&self, plural: &str) -> bool {
        self.resource.split(['.', '/']).next() == Some(plural)
    }

    fn is_event(&self) -> bool {
        self.resource.starts_with("events.")
    }

    /// Reports whether it only informs people: the number of these depends on the time.
    fn informs(&self) -> bool {
        self.is_event() || self.resource.ends_with("/status")
    }

    /// Returns how often it may be made over all lives, if an undisturbed run makes it `often`
    /// times; none if any number is right.
    pub fn most(&self, often: usize) -> Option<usize> {
        if self.is_lease() {
            None
        } else if self.informs() {
            // The second process reports what it finds, and no more than a whole run does.
            Some(2 * often + 1)
        } else {
            // A new process applies each of its objects once, because it does not remember having
            // done so; where nothing differs, nothing is stored.
            Some(often + usize::from(self.applies && often > 0))
        }
    }

    fn verbs(&self) -> &'static [&'static str] {
        match self.verb.as_str() {
            "create" => &["create"],
            "update" => &["update"],
            "patch" => &["patch"],
            _ => &["delete"],
        }
    }

    /// A rule for the write of this number, from 0.
    fn rule(&self, number: usize, fault: Fault) -> Rule {
        let rule = Rule::new(fault).verbs(self.verbs()).resource(&self.resource);
        let rule = rule.namespace(&self.namespace);
        let rule = if self.name.is_empty() { rule } else { rule.name(&self.name) };
        let rule = if self.applies { rule.target(FORCE) } else { rule.other_than(FORCE) };
        rule.skip(number).times(1)
    }
}

/// Reports whether the name of an object differs in every run.
fn has_random_name(call: &Call) -> bool {
    // A Deployment's pod ends with five random characters; a StatefulSet's with its number.
    let suffix = call.name.rsplit('-').next().unwrap_or_default();
    call.resource == "events" || (call.resource == "pods" && suffix.len() == 5)
}

impl Display for Write {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let verb = if self.applies { "apply" } else { self.verb.as_str() };
        write!(out, "{verb} {}", self.resource.trim_end_matches('/'))?;
        let place = [&*self.namespace, &*self.name];
        let place: Vec<_> = place.into_iter().filter(|part| !part.is_empty()).collect();
        if place.is_empty() { Ok(()) } else { write!(out, " {}", place.join("/")) }
    }
}

/// One write of a reference pass.
#[derive(Clone, Debug)]
pub struct Point {
    pub write: Write,
    /// Its number among the writes of the same form, from 0.
    pub number: usize,
}

impl Point {
    /// Returns the points of a pass, in its order. Of the renewals of the lease, there is one.
    pub fn all(writes: &[Write]) -> Vec<Self> {
        let mut seen = BTreeMap::<&Write, usize>::new();
        let mut points = vec![];
        for write in writes {
            let count = seen.entry(write).or_default();
            let number = *count;
            *count += 1;
            if number == 0 || !write.is_lease() {
                points.push(Self { write: write.clone(), number });
            }
        }
        points
    }
}

/// One crash: its point, how far the write gets, and what the next process sees.
#[derive(Clone, Debug)]
pub struct Crash {
    pub point: Point,
    pub halt: Halt,
    /// True if the next process begins with a view from before the write.
    pub stale: bool,
}

impl Crash {
    const HALTS: [Halt; 3] = [Halt::Before, Halt::Unanswered, Halt::Answered];

    /// Every crash with a fresh view.
    pub fn all(points: &[Point]) -> Vec<Self> {
        let each = |point: &Point| {
            let point = point.clone();
            Self::HALTS.map(|halt| Self { point: point.clone(), halt, stale: false })
        };
        points.iter().flat_map(each).collect()
    }

    /// One crash at each of at most `count` points; the three crashes take turns.
    pub fn sample(points: &[Point], count: usize) -> Vec<Self> {
        let halts = Self::HALTS.into_iter().cycle();
        let each = |(point, halt)| Self { point, halt, stale: false };
        spread(points, count).into_iter().zip(halts).map(each).collect()
    }

    /// Crashes with a stale view, at no more points than this.
    pub fn stale(points: &[Point], count: usize) -> Vec<Self> {
        // What the next process does not read from a watch cannot be stale.
        let seen = points.iter().filter(|p| !p.write.is_lease() && !p.write.informs());
        let seen: Vec<_> = seen.cloned().collect();
        let each = |point| Self { point, halt: Halt::Unanswered, stale: true };
        spread(&seen, count).into_iter().map(each).collect()
    }

    pub fn rule(&self) -> Rule {
        self.point.write.rule(self.point.number, Fault::Halt(self.halt))
    }

    /// Reports whether every run comes to this point: further writes of the same form, and
    /// repetitions of an event, depend on the time.
    pub fn is_certain(&self) -> bool {
        let Point { write, number } = &self.point;
        *number == 0 && !(write.is_event() && write.verb == "patch")
    }
}

impl Display for Crash {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let when = match self.halt {
            Halt::Before => "before",
            Halt::Unanswered => "without the answer to",
            Halt::Answered => "after",
        };
        let Point { write, number } = &self.point;
        write!(out, "killed {when} number {} of {write}", number + 1)?;
        if self.stale { write!(out, ", then a stale view") } else { Ok(()) }
    }
}

/// Returns `count` points, spread evenly over the pass.
fn spread(points: &[Point], count: usize) -> Vec<Point> {
    let count = count.min(points.len());
    // Each is in the middle of its part.
    (0..count).map(|i| points[(2 * i + 1) * points.len() / (2 * count)].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &http::Method, target: &str) -> Call {
        Call::of(method, &target.parse().unwrap())
    }

    #[test]
    fn the_points_of_a_pass_are_its_writes_and_one_renewal() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        let renewal = Write::of(&call(&http::Method::PUT, lease));
        let node = Write::of(&call(&http::Method::PATCH, "/api/v1/nodes/a"));
        let status = "/apis/x.io/v1/namespaces/a/things/b/status?&force=true&fieldManager=x";
        let status = Write::of(&call(&http::Method::PATCH, status));
        let writes = [&renewal, &node, &renewal, &node, &status].map(Clone::clone);
        let points = Point::all(&writes);
        let texts: Vec<_> = points.iter().map(|p| format!("{} {}", p.write, p.number)).collect();
        assert_eq!(
            texts,
            [
                "update leases.coordination.k8s.io a/b 0",
                "patch nodes a 0",
                "patch nodes a 1",
                "apply things.x.io/status a/b 0",
            ]
        );
        assert_eq!(renewal.most(1), None);
        assert_eq!((node.most(2), node.most(0)), (Some(2), Some(0)));
        assert_eq!(status.most(2), Some(5));
        assert_eq!((Crash::all(&points).len(), Crash::stale(&points, 9).len()), (12, 2));
    }

    #[test]
    fn a_sample_is_spread_over_the_pass_and_over_the_kinds_of_crashes() {
        let write = Write::of(&call(&http::Method::PATCH, "/api/v1/nodes/a"));
        let points = |writes| Point::all(&vec![write.clone(); writes]);
        let chosen = Crash::sample(&points(12), 4);
        let chosen: Vec<_> = chosen.iter().map(|crash| (crash.point.number, crash.halt)).collect();
        let [first, second, third] = Crash::HALTS;
        assert_eq!(chosen, [(1, first), (4, second), (7, third), (10, first)]);
        assert_eq!(Crash::sample(&points(2), 4).len(), 2);
        assert_eq!(Crash::stale(&points(5), 1)[0].point.number, 2);
        assert_eq!(Crash::stale(&points(5), usize::MAX).len(), 5);
    }
}
