//! Pods and streams of small worlds.
use crate::placement::hash::combine;

/// The most workers, and streams, that a world has.
pub(super) const WORKERS: usize = 3;

/// Ids of the streams in all worlds.
pub(super) const STREAMS: [&str; 3] = ["a", "b", "c"];

/// A set of streams, or of workers: a bit for each.
pub(super) type Set = u8;

pub(super) const fn has(set: Set, element: usize) -> bool {
    set >> element & 1 == 1
}

/// The API server's report of a pod's one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reported {
    #[default]
    Nothing,
    Running,
    Terminated,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties")]
pub(super) struct Pod {
    /// Its name, as [`super::facts::name`] spells it.
    pub id: u8,
    /// Number of earlier pods in its place; with its name, this is its UID.
    pub serial: u8,
    /// It has a node.
    pub scheduled: bool,
    /// True if its container runs.
    pub running: bool,
    /// It has run before.
    pub restarted: bool,
    /// The version that its kubelet has delivered; 0: none.
    pub delivered: u8,
    /// The version that its process has read.
    pub read: u8,
    pub run: Set,
    /// The coming streams that it has prepared.
    pub prepared: Set,
    /// The version of the file by which the operator has given it these streams, and whether it has
    /// heard that.
    pub told: (u8, Set),
    pub heard: bool,
    pub reported: Reported,
    /// Its phase is final: it never runs anything again.
    pub ended: bool,
    pub terminating: bool,
    pub nudged: u8,
    /// The version by which the immutable file that it mounts is called; 0: it mounts the mutable
    /// one.
    pub mounts: u8,
    /// True if nothing can reach its node or leave it.
    pub cut: bool,
}

impl Pod {
    /// Returns the API server's view of it.
    pub(super) fn known(self) -> Self {
        let (prepared, told, heard) = Default::default();
        Self { running: false, delivered: 0, read: 0, run: 0, prepared, told, heard, ..self }
    }

    /// Its container has ended.
    pub(super) fn stopped(self) -> Self {
        Self { running: false, run: 0, prepared: 0, heard: false, ..self }
    }

    pub(super) fn stays(&self) -> bool {
        !self.terminating && !self.ended
    }

    /// Returns the whole state in one number.
    pub(super) fn packed(&self) -> u64 {
        let flags = [
            self.scheduled,
            self.running,
            self.restarted,
            self.reported == Reported::Running,
            self.reported == Reported::Terminated,
            self.ended,
            self.terminating,
            self.cut,
        ];
        let flags = flags.iter().rev().fold(0, |all, flag| all << 1 | u8::from(*flag));
        let Self { id, serial, delivered, read, run, nudged, mounts, .. } = *self;
        let packed =
            u64::from_le_bytes([id + 1, serial, delivered, read, run, nudged, mounts, flags]);
        let (told, streams) = self.told;
        match [self.prepared, told, streams, self.heard.into()] {
            [0, 0, 0, 0] => packed,
            [a, b, c, d] => combine(packed, u32::from_le_bytes([a, b, c, d]).into()),
        }
    }
}

/// Returns the whole state of a pod in one number; 0: there is none.
pub(super) fn packed(pod: Option<&Pod>) -> u64 {
    pod.map_or(0, Pod::packed)
}
