//! Stand-in.
use super::hash;
/// Policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Sticky.
    Sticky,
    /// Stateless.
    Stateless,
    /// Contiguous.
    Contiguous,
}
/// Item.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    /// Id.
    pub id: &'a str,
    /// Weight.
    pub weight: u64,
    /// Pin.
    pub pin: Option<&'a str>,
    /// Dedicated.
    pub dedicated: bool,
}
/// Standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Full.
    Full,
    /// Keeps.
    Keeps,
    /// Leaving.
    Leaving,
}
/// Worker.
#[derive(Clone, Debug)]
pub struct Worker<'a> {
    /// Id.
    pub id: &'a str,
    /// Standing.
    pub standing: Standing,
}
/// Rules.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Policy.
    pub policy: Policy,
    /// Cap.
    pub max_per_worker: Option<usize>,
    /// Budget.
    pub max_moves: Option<usize>,
    /// Balance.
    pub balance: bool,
}
/// Reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No worker.
    NoWorker,
}
impl Reason {
    /// Text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        "NoWorker"
    }
}
/// Assignment.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    /// Owners.
    pub owners: Vec<Option<usize>>,
    /// Unassigned.
    pub unassigned: Vec<(usize, Reason)>,
}
/// Assign.
#[must_use]
pub fn assign(
    items: &[Item<'_>],
    workers: &[Worker<'_>],
    previous: &[Option<usize>],
    _: &Rules,
) -> Assignment {
    let n = workers.len();
    if n == 0 {
        let unassigned = (0..items.len()).map(|i| (i, Reason::NoWorker)).collect();
        return Assignment { owners: vec![None; items.len()], unassigned };
    }
    let mut counts = vec![0; n];
    for p in previous.iter().flatten() {
        counts[*p] += 1;
    }
    let mut order: Vec<_> = (0..n).collect();
    order.sort_by_key(|w| (std::cmp::Reverse(counts[*w]), hash::of(workers[*w].id)));
    let mut caps = vec![items.len() / n; n];
    for w in order.iter().take(items.len() % n) {
        caps[*w] += 1;
    }
    let mut owners = vec![None; items.len()];
    let mut used = vec![0; n];
    for (i, p) in previous.iter().enumerate() {
        if let Some(p) = p
            && used[*p] < caps[*p]
        {
            used[*p] += 1;
            owners[i] = Some(*p);
        }
    }
    for (i, o) in owners.iter_mut().enumerate() {
        if o.is_none() {
            let best = (0..n)
                .filter(|w| used[*w] < caps[*w])
                .max_by_key(|w| hash::combine(hash::of(items[i].id), hash::of(workers[*w].id)));
            if let Some(w) = best {
                used[w] += 1;
                *o = Some(w);
            }
        }
    }
    Assignment { owners, unassigned: vec![] }
}
