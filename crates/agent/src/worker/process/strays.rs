//! Processes that a stream's process started and detached: they left the group, and their parent is
//! gone.
use std::{collections::BTreeSet, fs};

use nix::unistd::Pid;

/// The reparented orphans with the variable of this stream in their environment. A process that has
/// removed the variable belongs to no stream, and neither does any process on a kernel that does
/// not list our children.
pub(super) fn of(stream: &str, ours: &BTreeSet<i32>) -> Vec<Pid> {
    let variable = format!("STREAM={stream}");
    let mut children = children();
    children.retain(|child| !ours.contains(child));
    children.retain(|child| {
        // Not readable: it is gone, or belongs to another user, so that we could not end it.
        let environment = fs::read(format!("/proc/{child}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    });
    children.into_iter().map(Pid::from_raw).collect()
}

fn children() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts.flat_map(|text| parse(&text)).collect()
}

fn parse(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_listed_with_spaces() {
        assert_eq!(parse("12 345 "), [12, 345]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn only_orphans_with_the_variable_are_of_the_stream() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .env("STREAM", "of-this-test")
            .spawn()
            .unwrap();
        let id = i32::try_from(child.id()).unwrap();
        // The kernel's list may omit one while other children start and end.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while of("of-this-test", &BTreeSet::new()) != [Pid::from_raw(id)] {
            assert!(std::time::Instant::now() < deadline, "the child is not listed");
            std::thread::yield_now();
        }
        assert!(of("of-this-test", &BTreeSet::from([id])).is_empty());
        assert!(of("of-this", &BTreeSet::new()).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
