//! Three replicas, any delays, losses, stops, deaths and edits: there are never two writers.
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Happens {
    /// The next requests of a replica take these ways.
    Trips(usize, Vec<Trip>),
    Stop(usize),
    GoOn(usize),
    /// Ends as a kubelet does, and another process starts under another name.
    Terminate(usize),
    /// Is killed, and starts again under its name.
    Kill(usize),
    /// A stranger edits something that decides nothing.
    Touch,
    /// A stranger removes the holder.
    Clear,
    /// A stranger names another holder.
    Give,
    /// A stranger deletes the lease.
    Delete,
}

fn trip() -> impl Strategy<Value = Trip> {
    let end = prop_oneof![
        6 => Just(End::Answered),
        1 => Just(End::Lost),
        1 => Just(End::Never),
    ];
    // Up to more than the whole lease: requests arrive long after they were given up.
    let time = || prop_oneof![3 => 0..100_u64, 2 => 0..5_000_u64, 1 => 0..20_000_u64];
    (time(), time(), end).prop_map(|(there, back, end)| Trip { there, back, end })
}

/// Everything but a deletion, which a process that starts at that time cannot tell from the first
/// start of all.
fn happens() -> impl Strategy<Value = Happens> {
    let replica = 0..3_usize;
    prop_oneof![
        10 => lasting(),
        1 => replica.clone().prop_map(Happens::Terminate),
        1 => replica.prop_map(Happens::Kill),
    ]
}

/// Everything that starts no process.
fn happens_with_deletions() -> impl Strategy<Value = Happens> {
    prop_oneof![10 => lasting(), 2 => Just(Happens::Delete)]
}

fn lasting() -> impl Strategy<Value = Happens> {
    let replica = 0..3_usize;
    prop_oneof![
        6 => (replica.clone(), prop::collection::vec(trip(), 1..12))
            .prop_map(|(replica, trips)| Happens::Trips(replica, trips)),
        3 => replica.clone().prop_map(Happens::Stop),
        4 => replica.prop_map(Happens::GoOn),
        2 => Just(Happens::Touch),
        1 => Just(Happens::Clear),
        1 => Just(Happens::Give),
    ]
}

struct World {
    server: Server,
    replicas: Vec<Replica>,
    /// Processes that end, and may still write.
    ending: Vec<Replica>,
    names: Vec<String>,
    number: usize,
}

impl World {
    fn new() -> Self {
        let server = Server::default();
        let names: Vec<_> = (0..3).map(|number| format!("replica-{number}")).collect();
        let replicas = names.iter().map(|name| Replica::start(&server, name)).collect();
        Self { server, replicas, ending: vec![], names, number: 3 }
    }

    fn let_happen(&mut self, happens: Happens) {
        match happens {
            Happens::Trips(replica, trips) => self.replicas[replica].line.next(trips),
            Happens::Stop(replica) => self.replicas[replica].signal.stop(),
            Happens::GoOn(replica) => self.replicas[replica].signal.go_on(),
            Happens::Terminate(replica) => {
                self.number += 1;
                self.names[replica] = format!("replica-{}", self.number);
                let new = Replica::start(&self.server, &self.names[replica]);
                let mut old = std::mem::replace(&mut self.replicas[replica], new);
                old.terminate();
                self.ending.push(old);
            }
            Happens::Kill(replica) => {
                self.replicas[replica].kill();
                let new = Replica::start(&self.server, &self.names[replica]);
                self.replicas[replica] = new;
            }
            Happens::Touch => {
                self.server.edit(|lease| lease["metadata"]["labels"]["x"] = json!("y"));
            }
            Happens::Clear => self.server.edit_spec(&json!({"holderIdentity": ""})),
            Happens::Give => self.server.edit_spec(&json!({"holderIdentity": "nobody"})),
            Happens::Delete => self.server.delete(),
        }
    }

    /// As a kubelet does with a process that ended.
    fn restart(&mut self) {
        for (replica, name) in self.replicas.iter_mut().zip(&self.names) {
            if replica.task.is_finished() {
                *replica = Replica::start(&self.server, name);
            }
        }
    }

    fn writers(&self) -> usize {
        self.replicas.iter().chain(&self.ending).filter(|replica| replica.leads()).count()
    }
}

async fn play(moves: Vec<(u64, Happens)>, restarts: bool) -> Result<(), TestCaseError> {
    let mut world = World::new();
    // All of them have seen the lease.
    seconds(10).await;
    for (pause, happens) in moves {
        world.let_happen(happens);
        for _ in 0..pause {
            tokio::time::sleep(Duration::from_millis(50)).await;
            prop_assert!(world.writers() <= 1, "two writers");
            if restarts {
                world.restart();
            }
        }
    }
    // Everything works again; after a while one of them leads.
    for replica in &world.replicas {
        replica.signal.go_on();
        replica.line.0.lock().unwrap().0.clear();
    }
    for tick in 0..2_000 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        prop_assert!(world.writers() <= 1, "two writers");
        if restarts || tick > 400 {
            world.restart();
        }
    }
    prop_assert_eq!(world.writers(), 1, "nobody leads");
    Ok(())
}

fn run(moves: Vec<(u64, Happens)>, restarts: bool) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(play(moves, restarts))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_happens_there_are_never_two_writers_and_one_in_the_end(
        moves in prop::collection::vec((0..100_u64, happens()), 1..30),
    ) {
        run(moves, true)?;
    }

    #[test]
    fn however_often_the_lease_is_deleted_there_are_never_two_writers(
        moves in prop::collection::vec((0..100_u64, happens_with_deletions()), 1..30),
    ) {
        run(moves, false)?;
    }
}
