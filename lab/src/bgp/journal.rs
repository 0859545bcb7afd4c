//! Sessions that came up and went down, by the logs of the BIRDs.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Something that happened to one end of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub time: Timestamp,
    /// The protocol: `Node_10_90_0_11`.
    pub protocol: String,
    /// True if the session is established from now on.
    pub up: bool,
}

/// Reads a BIRD's log; a line that is still being written is left out.
pub(super) fn read(log: &Path) -> Vec<Event> {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().filter_map(event).collect()
}

/// `2026-01-02 03:04:05.678 <TRACE> Node_10_90_0_11: BGP session closed`
fn event(line: &str) -> Option<Event> {
    let (head, text) = line.split_once(": ")?;
    let up = match text {
        "BGP session established" => true,
        "BGP session closed" => false,
        _ => return None,
    };
    let mut words = head.split(' ');
    let (date, time) = (words.next()?, words.next()?);
    let local: DateTime = format!("{date}T{time}").parse().ok()?;
    let protocol = words.next_back()?.to_owned();
    // The BIRDs are started with TZ=UTC.
    Some(Event { time: local.to_zoned(TimeZone::UTC).ok()?.timestamp(), protocol, up })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ends_and_beginnings_of_sessions_count() {
        let line = "2026-01-02 03:04:05.678 <TRACE> Node_10_90_0_11: BGP session closed";
        let found = event(line).unwrap();
        assert_eq!(found.time, "2026-01-02T03:04:05.678Z".parse().unwrap());
        assert_eq!((found.protocol.as_str(), found.up), ("Node_10_90_0_11", false));
        assert!(event(&line.replace("closed", "established")).unwrap().up);
        for other in ["", "bird: Started", &line.replace("BGP session closed", "Connected")] {
            assert_eq!(event(other), None, "{other}");
        }
    }
}
