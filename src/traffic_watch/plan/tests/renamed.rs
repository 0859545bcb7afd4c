//! An object gets another key: its marks move there, also without evidence.
use serde_json::json;

use super::*;

const BUSY: [Says; 4] = [Percent(99.0), Percent(98.0), Percent(1.0), Percent(1.0)];

/// An object with another key than the one of its labels.
struct Renamed {
    w: World,
    /// The nodes that have the label of the former key, [`KEY`], with their values.
    former: BTreeMap<String, String>,
}

/// Four nodes, of which `a` and `b` are marked under the former key.
fn renamed(spec: Value) -> Renamed {
    let mut w = World::new(&["a", "b", "c", "d"], spec);
    w.judge(&BUSY);
    w.judge(&BUSY);
    let labels = w.labels.iter_mut();
    let former = labels.map(|(node, label)| (node.clone(), label.take().unwrap())).collect();
    w.watch.spec.label = Some("other".into());
    Renamed { w, former }
}

impl Renamed {
    fn observed(&self) -> Observed {
        let mut seen = self.w.observed(vec![Err(no())]);
        for facts in Arc::get_mut(&mut seen.nodes).unwrap() {
            facts.unfit |= self.former.get(&*facts.name).is_some_and(|value| value == "true");
        }
        for node in self.former.keys() {
            let carrier = Carrier::of(node.as_str().into(), Incarnation::default(), true, false);
            seen.stray.push(Stray { carrier: carrier.unwrap(), key: KEY.into() });
        }
        seen
    }

    /// One judgment, of which the request fails: the labels that are set, and the nodes that lose
    /// the former one.
    fn fail(&mut self) -> (Vec<(String, bool)>, Vec<String>) {
        self.w.next();
        let plan = plan(&self.w.watch, &self.observed()).unwrap();
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
        self.w.memory = plan.desired.memory.unwrap();
        (set, lost)
    }
}

/// The labels of all nodes, as they were under the former key.
fn moved() -> Vec<(String, bool)> {
    [("a", true), ("b", true), ("c", false), ("d", false)].map(|(n, u)| (n.to_owned(), u)).into()
}

fn all() -> Vec<String> {
    ["a", "b", "c", "d"].map(str::to_owned).into()
}

/// A mark that waits for a place is given up when a write has failed, which may have been the one
/// that was to free it. This one has its place.
#[test]
fn marks_move_to_another_key_without_evidence_though_a_write_has_failed() {
    let mut r = renamed(json!({}));
    let failed = Arc::make_mut(&mut r.w.memory.failed);
    let why = Error::Pending("Forbidden", "patch node: no".into()).verdict();
    failed.take(&"d".into(), Some(why), Timestamp::from_second(r.w.second).unwrap());
    assert_eq!(r.fail(), (moved(), all()));
    assert_eq!((r.w.label("a"), r.w.label("b")), (Some("true"), Some("true")));
}
