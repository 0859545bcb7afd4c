//! An object gets another key: its marks move there, and none is lost on the way.
use serde_json::json;

use super::*;

const BUSY: [Says; 4] = [Percent(99.0), Percent(98.0), Percent(1.0), Percent(1.0)];

/// An object with another key than the one of its labels.
struct Renamed {
    w: World,
    /// The nodes that have the label of the former key, [`KEY`], with their values.
    former: BTreeMap<String, String>,
    /// The time until the next pass, in seconds.
    next: u64,
}

/// Four nodes, of which `a` and `b` are marked under the former key.
fn renamed(spec: Value) -> Renamed {
    let mut w = World::new(&["a", "b", "c", "d"], spec);
    w.judge(&BUSY);
    w.judge(&BUSY);
    let labels = w.labels.iter_mut();
    let former = labels.map(|(node, label)| (node.clone(), label.take().unwrap())).collect();
    w.watch.spec.label = Some("other".into());
    Renamed { w, former, next: 0 }
}

impl Renamed {
    fn observed(&self, reading: Result<Measurement, QueryError>) -> Observed {
        let mut seen = self.w.observed(vec![reading]);
        for facts in Arc::get_mut(&mut seen.nodes).unwrap() {
            facts.unfit |= self.former.get(&*facts.name).is_some_and(|value| value == "true");
        }
        for node in self.former.keys() {
            let carrier = Carrier::of(node.as_str().into(), Incarnation::default(), true, false);
            seen.stray.push(Stray { carrier: carrier.unwrap(), key: KEY.into() });
        }
        seen
    }

    /// One judgment, `None` if the request fails: the labels that are set, and the nodes that lose
    /// the former one.
    fn judge(&mut self, says: Option<&[Says]>) -> (Vec<(String, bool)>, Vec<String>) {
        self.w.next();
        let reading = says.map(|says| self.w.reading(says)).ok_or_else(no);
        let plan = plan(&self.w.watch, &self.observed(reading)).unwrap();
        let (mut set, mut lost) = (vec![], vec![]);
        for write in plan.desired.nodes {
            let node = write.node.to_string();
            match write.label {
                Edit::Set(unfit) => {
                    self.w.labels.insert(node.clone(), Some(unfit.to_string()));
                    set.push((node, unfit));
                }
                Edit::Remove if *write.key == *KEY => {
                    self.former.remove(&node);
                    lost.push(node);
                }
                Edit::Remove | Edit::Keep => unreachable!("{node}"),
            }
        }
        self.next = plan.period.as_secs();
        self.w.memory = plan.desired.memory.unwrap();
        self.w.watch.status = Some(plan.status);
        (set, lost)
    }

    /// The key in the status: the next leader finds the labels by it.
    fn published(&self) -> Option<String> {
        self.w.watch.status.as_ref().and_then(|status| status.label.clone())
    }
}

/// The labels of all nodes, as they were under the former key.
fn moved() -> Vec<(String, bool)> {
    [("a", true), ("b", true), ("c", false), ("d", false)].map(|(n, u)| (n.to_owned(), u)).into()
}

fn all() -> Vec<String> {
    ["a", "b", "c", "d"].map(str::to_owned).into()
}

/// Without the memory, only labels of the former key say which nodes are unfit. They went at once,
/// and while Prometheus was down, nothing kept pods away.
#[test]
fn a_key_that_is_renamed_during_a_restart_stays_until_nodes_are_judged_under_the_new_one() {
    let mut r = renamed(json!({}));
    r.w.restart();
    for _ in 0..3 {
        assert_eq!(r.judge(None), (vec![], vec![]), "no evidence");
        assert_eq!(r.next, 10);
    }
    assert_eq!(r.judge(Some(&BUSY)), (vec![], vec![]), "the first of two");
    assert_eq!(r.judge(Some(&BUSY)), (moved(), vec![]), "marked before the former key goes");
    assert_eq!((r.published().as_deref(), r.next), (Some(KEY), 1));
    assert_eq!(r.judge(Some(&BUSY)), (vec![], all()));
    assert_eq!((r.published().as_deref(), r.next), (Some(KEY), 1));
    assert_eq!(r.judge(Some(&BUSY)), (vec![], vec![]));
    assert_eq!((r.published(), r.next), (Some(r.w.watch.label_key()), 10));
}

#[test]
fn a_node_without_a_verdict_keeps_a_former_key_unless_its_label_is_to_go() {
    for (action, kept) in [("Hold", 1), ("RemoveLabel", 0)] {
        let mut r = renamed(json!({"onUnknown": {"after": "1m", "action": action}}));
        r.w.restart();
        let says = [Nothing, Percent(98.0), Percent(1.0), Percent(1.0)];
        for _ in 0..4 {
            r.judge(Some(&says));
        }
        assert_eq!(r.former.keys().collect::<Vec<_>>(), ["a"], "{action}");
        for _ in 0..4 {
            r.judge(Some(&says));
        }
        assert_eq!(r.former.len(), kept, "{action}");
        assert_eq!(r.w.label("a"), None, "{action}");
    }
}

/// A mark that waits for a place is given up when a write has failed, which may have been the one
/// that was to free it. This one has its place.
#[test]
fn marks_move_to_another_key_without_evidence_though_a_write_has_failed() {
    let mut r = renamed(json!({}));
    let failed = Arc::make_mut(&mut r.w.memory.failed);
    let why = Error::Pending("Forbidden", "patch node: no".into()).verdict();
    failed.take(&"d".into(), Some(why), Timestamp::from_second(r.w.second).unwrap());
    assert_eq!(r.judge(None), (moved(), vec![]));
    assert_eq!(r.judge(None), (vec![], all()));
    assert_eq!((r.w.label("a"), r.w.label("b")), (Some("true"), Some("true")));
}
