//! The operator of small worlds: the very functions that observe, confirm, decide and write.
//!
//! Most states differ only in what the operator cannot see. A pass depends only
//! on the state that it sees and remembers, and is computed once for each of these.
use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt;

use super::{
    cluster::{Effect, Small},
    decided::{Decided, Remembered},
    plot::{Old, Plot},
    world::World,
};
use crate::{
    api::{Swarm, SwarmStatus},
    controller::Error,
    placement::hash::combine,
    swarm::{
        apply,
        cluster::Cluster,
        file,
        handover::{Published, Refresh},
        memory::{Memories, Memory},
        observe,
        plan::{self, Desired, Observed},
    },
};

/// Between two passes, longer than anything is waited for; and shorter than anything.
const LONG: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_millis(1);

/// The most writes of a pass before which the operator may be killed, apart from parts.
pub(super) const MOST_WRITES: usize = 3;

/// The operator in a plot, and the results of its passes.
pub(super) struct Operator<'a> {
    plot: &'a Plot,
    began: Instant,
    looks: RefCell<HashMap<u64, Look>>,
    ends: RefCell<HashMap<u64, End>>,
}

#[derive(Clone)]
struct Look {
    decided: Arc<Decided>,
    asked: Arc<[Effect]>,
    clock: Duration,
}

#[derive(Clone)]
struct End {
    effects: Arc<[Effect]>,
    writes: u32,
    /// It was killed.
    killed: bool,
    remembered: Arc<Remembered>,
}

impl<'a> Operator<'a> {
    pub(super) fn new(plot: &'a Plot) -> Self {
        let (looks, ends) = Default::default();
        Self { plot, began: Instant::now(), looks, ends }
    }

    pub(super) fn passes(&self) -> usize {
        self.looks.borrow().len()
    }

    /// The operator observes and decides.
    pub(super) fn look(&self, world: &mut World, patient: bool) -> Option<()> {
        world.decided.is_none().then_some(())?;
        let pause = if patient || !self.plot.hurried { LONG } else { SHORT };
        let key = combine(world.seen(self.plot), pause.subsec_nanos().into());
        let known = self.looks.borrow().get(&key).cloned();
        let look = if let Some(look) = known {
            look
        } else {
            let look = self.observed(world, world.clock + pause)?;
            self.looks.borrow_mut().insert(key, look.clone());
            look
        };
        look.asked.iter().for_each(|effect| world.suffer(effect));
        world.clock = look.clock;
        world.complaint.clone_from(&look.decided.complaint);
        world.decided = Some(look.decided);
        Some(())
    }

    fn observed(&self, world: &World, clock: Duration) -> Option<Look> {
        let swarm = self.swarm(world);
        let (mut view, mut memory) = (world.view(self.plot), world.remembered.memory.clone());
        let small = Small::new(self.plot, world, self.began + clock, 0..0);
        let now = small.now();
        let look = observe::look(&small, &swarm, &mut view, &mut memory);
        let mut confirmed = look.now_or_never()?.ok()?;
        match self.plot.old {
            Some(Old::Confirmed) => confirmed.all = 0,
            Some(Old::Heirs) => memory.heirs.clear(),
            _ => {}
        }
        let observed = Observed {
            now,
            held: None,
            view: Some(view),
            confirmed,
            memory,
            unfit: BTreeSet::new(),
            measuring: None,
        };
        let plan = plan::plan(&swarm, &observed);
        let plan = plan.unwrap_or_else(|error| panic!("a spec that cannot be served: {error}"));
        let mut hasher = DefaultHasher::new();
        format!("{:?} {:?}", plan.status, plan.conditions).hash(&mut hasher);
        let reported = (plan.status.epoch, hasher.finish().max(1));
        let ready = plan.conditions.iter().find(|verdict| verdict.type_ == "Ready");
        let complaint = ready.filter(|verdict| verdict.status == Some(false));
        let complaint = complaint.map(|verdict| verdict.message.as_str().into());
        let mut desired = plan.desired;
        match (self.plot.old, &mut desired.publish) {
            (Some(Old::Unrefreshed), _) => desired.refresh.clear(),
            (Some(Old::Forgotten), Some(publish)) => {
                let published = Arc::make_mut(&mut publish.published);
                published.releasing.clear();
                let file::Files { config, state } = file::render(published);
                let key = swarm.spec.config_map.key.clone();
                publish.data.extend([(key, config), (file::STATE_KEY.to_owned(), state)]);
            }
            (Some(Old::Announced), Some(publish)) => {
                let published = Arc::make_mut(&mut publish.published);
                let before = observed.memory.published.as_ref();
                published.next = before.map_or_else(Default::default, |file| file.next.clone());
            }
            _ => {}
        }
        let hash = decision(&desired);
        let next = desired.publish.as_ref().and_then(|publish| misplaced(&publish.published));
        let decided = Arc::new(Decided { desired, reported, hash, complaint, next });
        Some(Look { decided, asked: small.done().effects.into(), clock })
    }

    /// It writes and reports, or is killed before one of its writes.
    pub(super) fn finish(&self, world: &mut World, writes: Option<usize>) -> Option<()> {
        let decided = world.decided.clone()?;
        if let Some(writes) = writes {
            // There is no such write: the same as a kill between passes.
            let Desired { publish, immutable, refresh, .. } = &decided.desired;
            let all = [publish.is_some(), immutable.is_some(), world.reported != decided.reported];
            let parts = publish.as_ref().map_or(0, |publish| publish.parts.len());
            let all = all.into_iter().map(usize::from).sum::<usize>() + parts + refresh.len();
            (writes < all).then_some(())?;
            world.crashes = world.crashes.checked_sub(1)?;
        }
        world.decided = None;
        let end = self.written(world, &decided, 0..writes.unwrap_or(usize::MAX));
        if writes.is_some() {
            world.restarted();
            return Some(());
        }
        world.remembered = end.remembered;
        self.tell(world, &decided);
        Some(())
    }

    /// A process that no longer leads makes its next write, and reports after the last.
    pub(super) fn finish_late(&self, world: &mut World) -> Option<()> {
        let (decided, made) = world.deposed.take()?;
        let heard = world.heard.clone();
        let end = self.written(world, &decided, made..made + 1);
        world.heard = heard;
        if end.killed {
            world.deposed = Some((decided, made + 1));
        } else {
            self.tell(world, &decided);
        }
        Some(())
    }

    #[allow(clippy::unused_self, reason = "a step of the operator's")]
    fn tell(&self, world: &mut World, decided: &Decided) {
        if world.reported != decided.reported {
            world.reported = decided.reported;
            world.writes += 1;
        }
    }

    fn written(&self, world: &mut World, decided: &Decided, makes: Range<usize>) -> End {
        let mut hasher = DefaultHasher::new();
        (world.seen(self.plot), decided.hash, &makes).hash(&mut hasher);
        let key = hasher.finish();
        let known = self.ends.borrow().get(&key).cloned();
        let end = known.unwrap_or_else(|| {
            let swarm = self.swarm(world);
            let memories = Memories::default();
            memories.put(swarm.key(), world.remembered.memory.clone());
            let small = Small::new(self.plot, world, self.began + world.clock, makes);
            let done = apply::apply(&small, &swarm, &memories, decided.desired.clone());
            let done = done.now_or_never().expect("nothing waits");
            let killed = matches!(done, Err(Error::Refused(_)));
            let outpaced = matches!(done, Err(Error::Outpaced));
            assert!(killed || outpaced || done.is_ok(), "no write is refused here");
            let memory = memories.get(&swarm.key());
            let remembered = Arc::new(Remembered { hash: remembered(&memory), memory });
            let done = small.done();
            let effects = done.effects.into();
            let end = End { effects, writes: done.writes, killed, remembered };
            self.ends.borrow_mut().insert(key, end.clone());
            end
        });
        end.effects.iter().for_each(|effect| world.suffer(effect));
        world.writes += end.writes;
        end
    }

    fn swarm(&self, world: &World) -> Swarm {
        let mut swarm = self.plot.wishes[world.wish].swarm.clone();
        let status = || SwarmStatus { epoch: world.reported.0, ..SwarmStatus::default() };
        swarm.status = (world.reported.1 != 0).then(status);
        swarm
    }
}

/// Returns what is wrong with the streams that will come, if anything.
fn misplaced(file: &Published) -> Option<String> {
    let mut seen = BTreeSet::new();
    let coming = file.next.iter().flat_map(|(w, next)| next.iter().map(move |stream| (w, stream)));
    let mut wrong = coming.filter(|(worker, stream)| {
        let share = file.shares.get(*worker);
        !seen.insert(*stream) || share.is_none_or(|share| share.streams.contains(*stream))
    });
    wrong.next().map(|(worker, stream)| format!("next: {stream} of {worker} in {file:?}"))
}

fn decision(desired: &Desired) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Desired { publish, immutable, refresh, memory, .. } = desired;
    publish.as_ref().map(|publish| (&publish.data, &publish.on)).hash(&mut hasher);
    for part in publish.iter().flat_map(|publish| &publish.parts) {
        (&part.data, &part.on).hash(&mut hasher);
    }
    immutable.as_ref().map(|immutable| &immutable.name).hash(&mut hasher);
    for refresh in refresh {
        match refresh {
            Refresh::Evict { uid, .. } => uid.hash(&mut hasher),
            Refresh::Nudge { uid, epoch, .. } => (uid, epoch).hash(&mut hasher),
        }
    }
    // Never nothing.
    combine(hasher.finish(), memory.as_ref().map_or(1, remembered)).max(1)
}

/// All of a memory that affects a decision, except times: whatever began in an earlier pass has
/// lasted equally long.
fn remembered(memory: &Memory) -> u64 {
    let mut hasher = DefaultHasher::new();
    let hasher = &mut hasher;
    for (uid, report) in &memory.reports {
        (uid, report.loaded, report.failures.min(3)).hash(hasher);
        let answer = report.answer.as_ref();
        answer.map(|answer| (answer.version, &answer.jobs, &answer.prepared)).hash(hasher);
    }
    (&memory.born, memory.looked, &memory.unreported, &memory.stuck).hash(hasher);
    if let Some(published) = &memory.published {
        (published.epoch, &published.releasing, published.barrier).hash(hasher);
        (&published.outdated, &published.next).hash(hasher);
        for (worker, share) in &published.shares {
            (worker, &share.streams, share.version).hash(hasher);
        }
    }
    for (stream, granted) in &memory.granted {
        (stream, &granted.worker, granted.epoch).hash(hasher);
    }
    for (worker, (uid, loaded, _)) in &memory.unread {
        (worker, uid, loaded).hash(hasher);
    }
    memory.free.keys().for_each(|stream| stream.hash(hasher));
    memory.releasing.keys().for_each(|release| release.hash(hasher));
    memory.refused.keys().for_each(|worker| worker.hash(hasher));
    memory.away.keys().for_each(|worker| worker.hash(hasher));
    memory.restored.map(|(rounds, _)| rounds).hash(hasher);
    memory.evictions.fingerprint().hash(hasher);
    (&memory.heirs, &memory.listed, memory.highest).hash(hasher);
    (memory.barrier.is_some(), memory.awaiting.is_some(), memory.incomplete.is_some()).hash(hasher);
    memory.preparing.is_some().hash(hasher);
    hasher.finish()
}
