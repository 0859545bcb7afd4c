//! The faults of the API server and of Prometheus, each with a beginning and an end.
use std::time::Duration;

use super::{call::Call, dice::Dice};

#[derive(Clone, Copy, Debug)]
pub struct FaultWindow {
    pub from: Duration,
    pub until: Duration,
    pub fault: Fault,
}

/// A fault. Percentages are those of requests, or of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// There is no connection to the API server.
    Away,
    /// It refuses requests with a code.
    Refuses(u16, u64),
    /// It carries out requests, and their answers are lost at once.
    Loses(u64),
    /// It carries out requests, and never answers them.
    Hangs(u64),
    Conflicts(u64),
    /// Requests and answers take up to this many milliseconds longer.
    Slow(u64),
    /// Events of watches come up to this many milliseconds late.
    Lags(u64),
    /// Events of watches come twice.
    Repeats(u64),
    /// Watches break off, or end with an error that their version is gone.
    Cuts(u64),
    /// Prometheus: there is no connection.
    Unreachable,
    /// Prometheus answers with this code.
    Answers(u16),
    /// Prometheus answers with an empty vector.
    Empty,
    /// Prometheus never answers.
    Silent,
    /// Prometheus takes up to this many milliseconds.
    Late(u64),
    /// Prometheus has the series of this many of a hundred nodes.
    Partial(u64),
}

impl Fault {
    /// Reports whether it is the API server's.
    pub fn is_of_the_server(self) -> bool {
        use Fault::{Away, Conflicts, Cuts, Hangs, Lags, Loses, Refuses, Repeats, Slow};
        matches!(
            self,
            Away | Refuses(..)
                | Loses(_)
                | Hangs(_)
                | Conflicts(_)
                | Slow(_)
                | Lags(_)
                | Repeats(_)
                | Cuts(_)
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Milliseconds until it is carried out, and until its answer arrives.
    pub there: u64,
    pub back: u64,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Answered,
    /// It is not carried out.
    Unreachable,
    Refused(u16),
    /// It is carried out without an answer.
    Lost,
    Hanging,
}

/// Draws the way of a request under the faults of the moment.
pub fn way(call: &Call, faults: &[Fault], dice: &mut Dice) -> Way {
    let mut way = Way { there: dice.between(1, 12), back: dice.between(1, 8), end: End::Answered };
    for fault in faults {
        let end = match *fault {
            Fault::Away => End::Unreachable,
            Fault::Refuses(code, percent) if dice.percent(percent) => End::Refused(code),
            Fault::Loses(percent) if dice.percent(percent) => End::Lost,
            Fault::Hangs(percent) if dice.percent(percent) => End::Hanging,
            Fault::Conflicts(percent) if call.writes() && dice.percent(percent) => {
                End::Refused(409)
            }
            Fault::Slow(most) => {
                way.there += dice.below(most);
                way.back += dice.below(most);
                continue;
            }
            _ => continue,
        };
        if way.end == End::Answered {
            way.end = end;
        }
    }
    way
}
