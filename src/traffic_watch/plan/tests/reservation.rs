//! Offers of nodes, over judgments in sequence.
use super::{
    super::super::{
        reservation::{Leaving, OfferWrite, Seen},
        retries::FailedWrites,
    },
    *,
};
use crate::nodes::Offer;

const NAME: &str = "example.com/bps";

type Amounts = BTreeMap<String, u64>;

/// Offers of nodes and requests of pods, by resource and node.
#[derive(Default)]
pub(super) struct Bandwidth {
    offers: BTreeMap<String, Amounts>,
    requests: BTreeMap<String, Amounts>,
    /// The requests of pods without a node.
    waiting: Vec<u64>,
    /// The pods are not listed yet.
    unlisted: bool,
    holder: Option<String>,
    device_class: Option<String>,
    failed: FailedWrites,
}

/// The offer of each node, and the requests of its pods, if they are listed.
type OfOne = (Vec<(Arc<str>, Offer)>, Option<BTreeMap<Arc<str>, u64>>);

impl Bandwidth {
    fn of(&self, resource: &str) -> OfOne {
        let by_node = |all: &BTreeMap<String, Amounts>| -> BTreeMap<Arc<str>, u64> {
            let amounts = all.get(resource).into_iter().flatten();
            amounts.map(|(node, amount)| (node.as_str().into(), *amount)).collect()
        };
        let offers = by_node(&self.offers).into_iter().map(|(node, n)| (node, Offer::of(n)));
        (offers.collect(), (!self.unlisted).then(|| by_node(&self.requests)))
    }

    /// As `observe` reads them.
    pub(super) fn seen(&self, watch: &TrafficWatch) -> Seen {
        let current = watch.spec.reservation.as_ref().filter(|_| !watch.spec.paused);
        let current = current.map(|reservation| reservation.resource.as_str());
        let status = watch.status.as_ref().and_then(|status| status.reservation.as_ref());
        let recorded = status.into_iter().flat_map(|s| s.resource.iter().chain(&s.leaving));
        let leaving = recorded.filter(|name| current != Some(name.as_str())).map(|name| {
            let (offers, requested) = self.of(name);
            Leaving { resource: name.as_str().into(), offers, requested }
        });
        let (offers, requested) = current.map_or((vec![], None), |name| self.of(name));
        Seen {
            holder: self.holder.clone(),
            device_class: self.device_class.clone(),
            offers,
            requested,
            waiting: self.waiting.clone(),
            leaving: leaving.filter(|_| watch.spec.mode == Mode::Enforce).collect(),
            failed: Arc::new(self.failed.clone()),
        }
    }

    pub(super) fn carry_out(&mut self, writes: &[OfferWrite]) -> Vec<(String, Option<u64>)> {
        let each = |write: &OfferWrite| {
            let offers = self.offers.entry(write.resource.to_string()).or_default();
            let node = write.node.to_string();
            offers.remove(&node);
            offers.extend(write.amount.map(|amount| (node.clone(), amount)));
            (node, write.amount)
        };
        writes.iter().map(each).collect()
    }

    fn request(&mut self, node: &str, amount: u64) {
        self.requests.entry(NAME.into()).or_default().insert(node.into(), amount);
    }
}

/// Nodes that can carry 800 bit/s, half of which they may use: one percent of the link is 8 bit/s,
/// and a step is 40.
fn world(nodes: &[&str], more: &Value) -> World {
    let mut spec = json!({
        "maxBandwidthPercent": "50", "capacity": "800",
        "reservation": {"resource": NAME, "unit": "1", "reserve": "0%", "step": "10%"},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    World::new(nodes, spec)
}

fn amounts(amounts: &[(&str, u64)]) -> Vec<(String, Option<u64>)> {
    amounts.iter().map(|(node, amount)| ((*node).to_owned(), Some(*amount))).collect()
}

fn ready(step: &Step) -> &Verdict {
    step.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap()
}

/// The time that requests need to show in measurements, in judgments.
const SETTLED: usize = 22;

#[test]
fn nodes_offer_what_is_free_once_the_status_reports_it_and_nothing_is_written_twice() {
    let mut world = world(&["a", "b"], &json!({}));
    let first = world.judge(&[Percent(10.0), Percent(25.0)]);
    assert_eq!(first.offers, [], "the name is not in the status yet");
    assert!(first.notices.contains(&"ReservationBegun"));
    let second = world.judge(&[Percent(10.0), Percent(25.0)]);
    assert_eq!(second.offers, amounts(&[("a", 320), ("b", 200)]));
    for percent in [10.0, 10.0, 14.0, 6.0, 14.8, 10.0] {
        let step = world.judge(&[Percent(percent), Percent(25.0)]);
        assert_eq!(step.offers, [], "{percent} is less than a step away");
        assert!(!step.notices.contains(&"ReservationBegun"));
    }
    let status = world.watch.status.as_ref().unwrap().reservation.as_ref().unwrap();
    assert_eq!(status.resource.as_deref(), Some(NAME));
}

#[test]
fn a_pod_waits_for_bandwidth_if_no_node_has_as_much_free() {
    let mut world = world(&["a", "b"], &json!({}));
    world.bandwidth.request("a", 100);
    world.bandwidth.waiting = vec![150, 230, 300];
    world.judge(&[Percent(10.0), Percent(25.0)]);
    world.judge(&[Percent(10.0), Percent(25.0)]);
    // Of 320 on one node 100 are taken, and the other has 200.
    let waiting = |world: &World| world.memory.reservation.as_ref().unwrap().waiting;
    assert_eq!(waiting(&world), 2);
    world.bandwidth.waiting = vec![150];
    world.judge(&[Percent(10.0), Percent(25.0)]);
    assert_eq!(waiting(&world), 0);
}

#[test]
fn a_device_class_of_the_same_name_is_named_and_nodes_are_offered_all_the_same() {
    let mut world = world(&["a"], &json!({}));
    world.bandwidth.device_class = Some("links".into());
    world.judge(&[Percent(10.0)]);
    let step = world.judge(&[Percent(10.0)]);
    assert_eq!(step.offers, amounts(&[("a", 320)]));
    let Verdict { status, reason, message, .. } = ready(&step);
    assert_eq!((*status, *reason), (Some(false), "DeviceClass"));
    assert!(message.contains("DeviceClass links has the extendedResourceName"), "{message}");
    world.bandwidth.device_class = None;
    assert_eq!(ready(&world.judge(&[Percent(10.0)])).status, Some(true));
}

#[test]
fn a_node_whose_links_carry_more_together_than_one_may_is_reported_once() {
    let mut world = world(&["a", "b"], &json!({"capacity": null}));
    world.judge(&[Both(20.0), Percent(20.0)]);
    assert_eq!(world.judge(&[Both(20.0), Percent(20.0)]).offers, amounts(&[("a", 80), ("b", 240)]));
    // Each link is fit, and together they carry more than one of them may.
    let step = world.judge(&[Both(30.0), Percent(20.0)]);
    assert_eq!((step.states.as_slice(), step.offers), (&[Fit, Fit][..], amounts(&[("a", 0)])));
    assert!(step.notices.contains(&"CapacityOfOneLink"), "{:?}", step.notices);
    let step = world.judge(&[Both(30.0), Percent(70.0)]);
    assert!(!step.notices.contains(&"CapacityOfOneLink"), "{:?}", step.notices);
}

#[test]
fn foreign_load_shrinks_what_is_offered_and_it_recovers() {
    let mut world = world(&["a"], &json!({"minFit": 1}));
    world.judge(&[Percent(5.0)]);
    assert_eq!(world.judge(&[Percent(5.0)]).offers, amounts(&[("a", 360)]));
    assert_eq!(world.judge(&[Percent(40.0)]).offers, amounts(&[("a", 80)]));
    // Above the threshold, but never marked: one node has to stay fit.
    assert_eq!(world.judge(&[Percent(70.0)]).offers, amounts(&[("a", 0)]));
    assert_eq!(world.judge(&[Percent(5.0)]).offers, amounts(&[("a", 360)]));
}

#[test]
fn an_unfit_node_offers_what_is_requested_there() {
    let mut world = world(&["a", "b"], &json!({}));
    world.bandwidth.request("a", 50);
    world.judge(&[Percent(10.0), Percent(10.0)]);
    world.judge(&[Percent(10.0), Percent(10.0)]);
    for _ in 0..SETTLED {
        world.judge(&[Percent(10.0), Percent(10.0)]);
    }
    assert_eq!(world.bandwidth.offers[NAME]["a"], 370);
    world.judge(&[Percent(55.0), Percent(10.0)]);
    let step = world.judge(&[Percent(55.0), Percent(10.0)]);
    assert_eq!(step.states, [Unfit, Fit]);
    assert_eq!(world.bandwidth.offers[NAME]["a"], 50);
    assert!(step.offers.is_empty() || step.offers == amounts(&[("a", 50)]), "{:?}", step.offers);
}

#[test]
fn without_evidence_nothing_moves_but_what_pods_need() {
    let mut world = world(&["a", "b"], &json!({}));
    world.judge(&[Percent(10.0), Percent(10.0)]);
    world.judge(&[Percent(10.0), Percent(10.0)]);
    for step in [world.fail(), world.judge(&[Nothing, Percent(10.0)]), world.judge(&[Old, Nothing])]
    {
        assert_eq!(step.offers, []);
    }
    // A pod that was bound without the scheduler: more than is offered.
    world.bandwidth.request("a", 390);
    assert_eq!(world.fail().offers, amounts(&[("a", 390)]));
    assert_eq!(world.fail().offers, []);
}

#[test]
fn pods_that_come_free_nothing_before_their_load_shows() {
    let mut world = world(&["a"], &json!({}));
    world.judge(&[Percent(20.0)]);
    assert_eq!(world.judge(&[Percent(20.0)]).offers, amounts(&[("a", 240)]));
    // Their requests hide what others send.
    world.bandwidth.request("a", 160);
    for _ in 0..SETTLED - 1 {
        assert_eq!(world.judge(&[Percent(20.0)]).offers, []);
    }
    assert_eq!(world.judge(&[Percent(20.0)]).offers, amounts(&[("a", 400)]));
    // The next process does not know when they came.
    world.bandwidth.offers.get_mut(NAME).unwrap().insert("a".into(), 240);
    world.restart();
    assert_eq!(world.judge(&[Percent(20.0)]).offers, []);
}

#[test]
fn nothing_moves_before_the_pods_are_listed() {
    let mut world = world(&["a"], &json!({}));
    world.judge(&[Percent(20.0)]);
    world.judge(&[Percent(20.0)]);
    world.bandwidth.unlisted = true;
    let step = world.judge(&[Percent(1.0)]);
    assert_eq!(step.offers, []);
    assert_eq!((ready(&step).status, ready(&step).reason), (None, "PodsUnknown"));
    world.bandwidth.unlisted = false;
    let step = world.judge(&[Percent(1.0)]);
    assert_eq!(step.offers, amounts(&[("a", 392)]));
    assert_eq!(ready(&step).reason, "Judged");
}

#[test]
fn who_does_not_hold_the_resource_judges_and_offers_nothing() {
    let mut world = world(&["a", "b"], &json!({}));
    world.bandwidth.holder = Some("ns/older".into());
    for _ in 0..3 {
        assert_eq!(world.judge(&[Percent(55.0), Percent(1.0)]).offers, []);
    }
    assert_eq!((world.label("a"), world.label("b")), (Some("true"), Some("false")));
    let step = world.judge(&[Percent(55.0), Percent(1.0)]);
    assert_eq!((ready(&step).status, ready(&step).reason), (Some(false), "Conflict"));
    assert!(ready(&step).message.contains("ns/older"));
    world.bandwidth.holder = None;
    world.judge(&[Percent(1.0), Percent(1.0)]);
    assert!(!world.judge(&[Percent(1.0), Percent(1.0)]).offers.is_empty());
}

/// Of an object whose `spec.reservation` was removed, and set again with another resource.
#[test]
fn a_former_resource_goes_except_where_pods_request_it() {
    let mut world = world(&["a", "b"], &json!({}));
    world.judge(&[Percent(10.0), Percent(10.0)]);
    world.judge(&[Percent(10.0), Percent(10.0)]);
    world.bandwidth.request("a", 50);
    world.watch.spec.reservation.as_mut().unwrap().resource = "example.com/new".into();
    let step = world.judge(&[Percent(10.0), Percent(10.0)]);
    assert_eq!(step.offers, [("a".into(), Some(50)), ("b".into(), None)]);
    assert_eq!(ready(&step).reason, "StillRequested");
    assert!(
        ready(&step).message.contains(&format!("{NAME} is no longer offered, but stays on a "))
    );
    let step = world.judge(&[Percent(10.0), Percent(10.0)]);
    assert_eq!(step.offers.len(), 2, "the new one: {:?}", step.offers);
    world.bandwidth.request("a", 0);
    assert_eq!(world.judge(&[Percent(10.0), Percent(10.0)]).offers, [("a".into(), None)]);
    let step = world.judge(&[Percent(10.0), Percent(10.0)]);
    assert_eq!((ready(&step).reason, step.offers), ("Judged", vec![]));
    let status = world.watch.status.as_ref().unwrap().reservation.as_ref().unwrap();
    assert_eq!((status.resource.as_deref(), &*status.leaving), (Some("example.com/new"), &[][..]));
}

#[test]
fn a_field_that_is_removed_and_a_pause_take_the_resource_away() {
    for pause in [false, true] {
        let mut world = world(&["a", "b"], &json!({}));
        world.judge(&[Percent(10.0), Percent(10.0)]);
        world.judge(&[Percent(10.0), Percent(10.0)]);
        world.bandwidth.request("a", 320);
        if pause {
            world.watch.spec.paused = true;
        } else {
            world.watch.spec.reservation = None;
        }
        let mut pass = || {
            let plan = plan(&world.watch, &world.observed(vec![Err(no())])).unwrap();
            world.watch.status = Some(plan.status);
            let ready = plan.conditions.into_iter().find(|c| c.type_ == "Ready").unwrap();
            (world.bandwidth.carry_out(&plan.desired.offers), ready)
        };
        // On a, the amount is what its pods request already.
        let (offers, ready) = pass();
        assert_eq!(offers, [("b".into(), None)]);
        assert!(ready.message.contains("stays on a because pods there request it"));
        assert_eq!(ready.reason == "Paused", pause);
        assert_eq!(pass().0, []);
        let left = world.watch.status.clone().unwrap().reservation.unwrap();
        assert_eq!((left.resource, left.leaving), (None, vec![NAME.to_owned()]));
    }
}

#[test]
fn observe_computes_and_writes_nothing() {
    let mut world = world(&["a"], &json!({"mode": "Observe"}));
    for _ in 0..3 {
        let step = world.judge(&[Percent(20.0)]);
        assert_eq!(step.offers, []);
        assert!(!step.notices.contains(&"ReservationBegun"));
    }
    let memory = world.memory.reservation.as_ref().unwrap();
    assert_eq!(memory.get("a").unwrap().amount, Some(240));
    assert_eq!(world.watch.status.unwrap().reservation, None);
}

#[test]
fn a_node_that_is_not_selected_any_more_offers_nothing() {
    let mut world = world(&["a"], &json!({}));
    world.judge(&[Percent(20.0)]);
    world.judge(&[Percent(20.0)]);
    let offers = world.bandwidth.offers.get_mut(NAME).unwrap();
    offers.extend([("left".into(), 100), ("needed".into(), 100)]);
    world.bandwidth.request("needed", 70);
    let step = world.judge(&[Percent(20.0)]);
    assert_eq!(step.offers, [("left".into(), None), ("needed".into(), Some(70))]);
}

#[test]
fn a_pass_writes_a_bounded_number_of_nodes_the_urgent_ones_first() {
    let names: Vec<_> = (0..600).map(|i| format!("n{i:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut world = world(&names, &json!({}));
    let says = vec![Percent(10.0); 600];
    world.judge(&says);
    world.bandwidth.request("n599", 100);
    let step = world.judge(&says);
    assert_eq!((step.offers.len(), &*step.offers[0].0), (500, "n599"));
    assert_eq!(world.judge(&says).offers.len(), 100);
}

#[test]
fn a_node_that_cannot_be_written_waits_and_holds_nothing_else_back() {
    let mut world = world(&["a", "b"], &json!({}));
    world.judge(&[Percent(10.0), Percent(10.0)]);
    let why = Verdict { type_: "Ready", status: None, reason: "ApiError", message: "no".into() };
    let now = Timestamp::from_second(world.second + 5).unwrap();
    world.bandwidth.failed.take(&"a".into(), Some(why.clone()), now);
    let step = world.judge(&[Percent(10.0), Percent(10.0)]);
    assert_eq!(step.offers, amounts(&[("b", 320)]));
    assert_eq!(ready(&step), &why);
    assert_eq!(world.judge(&[Percent(10.0), Percent(10.0)]).offers, amounts(&[("a", 320)]));
}

/// The write whose answer was lost is made: if it stayed among the failed ones, it would be the one
/// that is tried on behalf of all, and never is.
#[test]
fn a_node_that_needs_no_offer_any_more_is_not_tried_for_the_others() {
    let mut world = world(&["a", "b"], &json!({}));
    let both = [Percent(10.0), Percent(10.0)];
    world.judge(&both);
    let why = Verdict { type_: "Ready", status: None, reason: "ApiError", message: "no".into() };
    let at = |second| Timestamp::from_second(second).unwrap();
    let second = world.second;
    // Long ago and often, so that b waits for minutes and a is the one to try next.
    world.bandwidth.failed.take(&"a".into(), Some(why.clone()), at(second - 20));
    for _ in 0..6 {
        world.bandwidth.failed.take(&"b".into(), Some(why.clone()), at(second - 10));
    }
    let offers = world.bandwidth.offers.entry(NAME.into()).or_default();
    offers.insert("a".into(), 320);
    assert_eq!(world.judge(&both).offers, amounts(&[("b", 320)]));
}

#[test]
fn a_promise_that_cannot_be_kept_is_reported_once() {
    let mut world = world(&["a"], &json!({}));
    world.bandwidth.request("a", 100);
    let over = |world: &mut World, percent| {
        let step = world.judge(&[Percent(percent)]);
        step.notices.iter().filter(|reason| **reason == "BandwidthOverPromised").count()
    };
    // Above 400 bit/s are 50.1 percent; a step below are 45.
    let said = [20.0, 49.0, 51.0, 60.0, 46.0, 51.0, 44.0, 51.0].map(|p| over(&mut world, p));
    assert_eq!(said, [0, 0, 1, 0, 0, 0, 0, 1]);
}

#[test]
fn nodes_without_a_known_capacity_offer_nothing_and_the_condition_says_why() {
    let spec = json!({
        "maxBandwidthPercent": "50", "query": "load",
        "reservation": {"resource": NAME, "unit": "1"},
    });
    let mut world = World::new(&["a"], spec);
    world.judge(&[Percent(20.0)]);
    let step = world.judge(&[Percent(20.0)]);
    assert_eq!((step.offers.len(), ready(&step).reason), (0, "CapacityUnknown"));
}
