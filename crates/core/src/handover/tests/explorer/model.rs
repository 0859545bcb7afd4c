//! The world: its state, and the possible events.
use super::operator::Operator;

/// Maximum number of workers and streams of a state.
pub(super) const WORKERS: usize = 3;
pub(super) const STREAMS: usize = 3;

/// Number of epochs that a state remembers.
pub(super) const HISTORY: usize = 16;

/// A set of streams or of workers, one bit for each.
pub(super) type Set = u8;

pub(super) const fn has(set: Set, element: usize) -> bool {
    set >> element & 1 == 1
}

/// A version of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct File {
    pub epoch: u8,
    /// The workers that have an entry.
    pub entries: Set,
    pub lists: [Set; WORKERS],
    pub versions: [u8; WORKERS],
    /// The epoch since which each stream is releasing from each worker; 0 if it is not.
    pub releasing: [[u8; STREAMS]; WORKERS],
    /// 0: none.
    pub barrier: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pod {
    /// The epoch of the file that it has read last.
    pub read: u8,
    /// The epoch that it answers when asked.
    pub applied: u8,
    /// The streams that it runs.
    pub run: Set,
    pub terminating: bool,
    pub stopped: bool,
    /// True if its node is cut off: nothing can reach it or leave it.
    pub cut: bool,
    /// The operator's memory of its answer, and of the epoch at that time.
    pub reported: Option<u8>,
    pub born: Option<u8>,
}

/// The operator's cached view of a worker, in worlds with a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cached {
    pub pod: Option<Pod>,
    /// The file's epoch at that time.
    pub at: u8,
    /// True if it is still the same pod.
    pub same: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub file: File,
    /// The lists of each epoch.
    pub history: [[Set; WORKERS]; HISTORY],
    /// Index of the wish that the spec currently has.
    pub wish: u8,
    pub pods: [Option<Pod>; WORKERS],
    /// For a Deployment: the pods with used-up names.
    pub born: Set,
    pub cache: [Cached; WORKERS],
    /// With immutable `ConfigMap`s: the epoch that the template names, and the one that its
    /// controller has observed.
    pub template: u8,
    pub observed: u8,
    /// The highest epoch ever reported to the operator; only if epochs are absolute, otherwise it
    /// is never above the file's.
    pub highest: u8,
    /// The write that the operator has decided but not yet done.
    pub write: Option<File>,
    pub evict: Set,
    /// Number of remaining events: changes of the spec, faults, crashes of the operator.
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
}

/// The user's wish: a number of replicas, and a worker for each stream; `-` is unassigned, `x` is
/// removed.
pub(super) type Wish = (usize, &'static str);

/// The parameters of a world.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties")]
pub(super) struct Plot {
    pub workers: usize,
    pub streams: usize,
    pub wishes: &'static [Wish],
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
    /// Pods have unique names and never come back.
    pub deployment: bool,
    /// Pods mount the `ConfigMap` of one epoch.
    pub immutable: bool,
    /// A kubelet may give a new pod any file that ever existed.
    pub stale_births: bool,
    /// The operator sees pods through a cache.
    pub cached: bool,
    /// Workers start and stop streams one by one, and evictions happen at any time after the write.
    pub careful: bool,
    /// Epochs are not shifted: required if old epochs can return.
    pub absolute: bool,
    /// The highest epoch that the status remembers.
    pub remembered: u8,
    /// Two may run a stream, as long as the file allows it.
    pub immediate: bool,
    /// Pods run streams that the file does not list.
    pub unbooked: bool,
    /// Only streams that two pods run, or two lists have, are checked.
    pub only_i8: bool,
}

/// A plot and its operator.
pub(super) struct World<'a> {
    pub plot: Plot,
    pub operator: Operator<'a>,
    /// Everything that can ever happen in it.
    pub moves: Vec<Move>,
}

/// A possible event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The user changes the wish.
    Wish(u8),
    /// The kubelet delivers the next file, and the worker starts what it lists.
    Read(usize),
    /// The operator asks. Before the worker answers, it stops the streams that its file does not
    /// list (or its container is restarted, which is equivalent).
    Ask(usize),
    /// In careful worlds: it starts or stops a stream; or it has stopped all, and answers so.
    Start(usize, usize),
    Stop(usize, usize),
    Apply(usize),
    /// The workload, or a user, deletes the pod.
    Delete(usize),
    /// All containers of a pod that is being deleted are terminated.
    Terminate(usize),
    /// All containers die for good, although the pod is not deleted.
    Die(usize),
    /// The pod's object vanishes.
    Vanish(usize),
    /// A pod starts, and has read the newest possible file, or one that is this many epochs older.
    Come(usize, usize),
    /// Its node is cut off; it comes back; or it is dead and the user confirms it.
    Cut(usize),
    Heal(usize),
    Fence(usize),
    /// The operator's cache receives the worker's pod.
    Sync(usize),
    /// The template names the newest file; the controller has seen that.
    Template,
    Observe,
    /// The operator decides; writes; evicts; is killed.
    Decide,
    Write,
    Evict(usize),
    Crash,
}

impl<'a> World<'a> {
    pub(super) fn new(plot: Plot, operator: Operator<'a>) -> Self {
        Self { plot, operator, moves: Self::moves(&plot) }
    }

    /// Returns the desired number of replicas and the place of each stream.
    pub(super) fn wish(&self, state: &State) -> Wish {
        self.plot.wishes[usize::from(state.wish)]
    }

    /// Returns the first state: an empty file, and the user's wish.
    pub(super) fn beginning(&self) -> State {
        let Plot { changes, faults, crashes, .. } = self.plot;
        // Epoch 0 means none.
        let file = File { epoch: 1, ..File::default() };
        State {
            file,
            highest: self.plot.remembered,
            template: 1,
            observed: 1,
            changes,
            faults,
            crashes,
            ..State::default()
        }
    }

    /// Returns the state in which the first wish is fulfilled.
    pub(super) fn settled(&self) -> State {
        let mut state = self.beginning();
        loop {
            let before = state;
            self.fair_round(&mut state);
            if state == before {
                return state;
            }
        }
    }

    /// Everything that can ever happen.
    fn moves(plot: &Plot) -> Vec<Move> {
        let Plot { workers, streams, wishes, .. } = *plot;
        let mut moves = vec![Move::Decide, Move::Write, Move::Crash, Move::Template, Move::Observe];
        moves.extend((0..wishes.len()).filter_map(|wish| u8::try_from(wish).ok()).map(Move::Wish));
        for w in 0..workers {
            moves.extend([Move::Evict(w), Move::Delete(w), Move::Terminate(w), Move::Die(w)]);
            moves.extend([Move::Vanish(w), Move::Cut(w), Move::Heal(w), Move::Fence(w)]);
            moves.extend([Move::Read(w), Move::Apply(w), Move::Ask(w), Move::Sync(w)]);
            let late = if plot.stale_births { HISTORY } else { 1 };
            moves.extend((0..late).map(|late| Move::Come(w, late)));
            if plot.careful {
                moves.extend((0..streams).flat_map(|s| [Move::Start(w, s), Move::Stop(w, s)]));
            }
        }
        moves
    }
}
