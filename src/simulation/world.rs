//! The simulated world: what the API server and Prometheus have, the faults of the moment, and the
//! record of all that happens.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use http::Response;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tower::BoxError;

use super::{
    call::{Body, Call},
    faults::{Fault, FaultWindow},
    loads::Loads,
    oracle::Oracle,
    store::{Key, Store},
    weakened::Weakened,
    write::Write,
};

/// The time of day at which every simulation begins, in Unix seconds.
const BEGINNING: i64 = 1_800_000_000;

type Waiting = (u64, Call, oneshot::Sender<Result<Response<Body>, BoxError>>);

/// The world; clones share it.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    seed: u64,
    began: Instant,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

/// Numbers of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub steps: u64,
    pub requests: u64,
    pub writes: u64,
    pub faults: u64,
    pub marks: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.requests += other.requests;
        self.writes += other.writes;
        self.faults += other.faults;
        self.marks += other.marks;
    }
}

pub struct State {
    pub store: Store,
    pub windows: Vec<FaultWindow>,
    /// The number of requests of each kind so far.
    pub requests: HashMap<u64, u64>,
    /// Requests that are carried out at this moment.
    pub pending: Vec<Waiting>,
    pub tally: Tally,
    pub weakened: Weakened,
    pub loads: Loads,
    pub oracle: Oracle,
    /// All that happened, one line each.
    pub log: Vec<(Duration, String)>,
    /// All writes of the operator but events, one line each.
    pub writes: Vec<String>,
}

impl World {
    /// Creates an empty world, on the clock of the runtime.
    pub fn new(seed: u64, weakened: Weakened) -> Self {
        crate::clock::simulated::begin(Timestamp::from_second(BEGINNING).unwrap());
        let state = State {
            store: Store::default(),
            windows: Vec::new(),
            requests: HashMap::new(),
            pending: Vec::new(),
            tally: Tally::default(),
            weakened,
            loads: Loads::default(),
            oracle: Oracle::default(),
            log: Vec::new(),
            writes: Vec::new(),
        };
        let (state, changed) = (Mutex::new(state), watch::Sender::new(0));
        Self(Arc::new(Inner { seed, began: Instant::now(), state, changed }))
    }

    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Returns the time since the beginning.
    pub fn now(&self) -> Duration {
        self.0.began.elapsed()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// Wakes the watches.
    pub fn changed(&self) {
        self.0.changed.send_modify(|count| *count += 1);
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Changes the world as another client than the operator.
    pub fn change<T>(&self, what: &str, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.now();
        let mut state = self.state();
        state.log.push((now, what.to_owned()));
        state.tally.steps += 1;
        let result = change(&mut state, now);
        let State { oracle, store, .. } = &mut *state;
        oracle.look(store, now);
        drop(state);
        self.changed();
        result
    }
}

impl State {
    pub fn faults(&self, now: Duration) -> Vec<Fault> {
        let windows = self.windows.iter();
        let now = windows.filter(|window| window.from <= now && now < window.until);
        now.map(|window| window.fault).collect()
    }

    /// Returns the objects of a list as the operator gets them, and their version.
    pub fn shown(&self, call: &Call) -> (u64, Vec<(Key, Value)>) {
        let all = self.store.all(&call.key.plural);
        let shown = all.map(|(key, object)| (key.clone(), self.weakened.shown(key, object)));
        (self.store.version(), shown.collect())
    }

    pub fn note_event(&mut self, at: Duration, event: &Value) {
        self.tally.writes += 1;
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        let line = format!("  event {} {}", text("reason"), text("note"));
        self.log.push((at, line));
    }

    /// Records a write of the operator, and lets the oracles judge it.
    pub fn wrote(&mut self, write: &Write) {
        self.tally.writes += 1;
        let Write { at, call, outcome, changed, .. } = write;
        let line = format!("{} {} -> {outcome} {changed}", call.who, call.line());
        if call.key.plural != "leases" {
            self.log.push((*at, format!("  {line}")));
        }
        self.writes.push(format!("{} {line}", at.as_millis()));
        if *changed {
            let (store, windows) = (&self.store, &self.windows);
            self.tally.marks += self.oracle.judge(write, store, windows);
        }
    }
}
