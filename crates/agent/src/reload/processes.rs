//! The processes of an application, found in `/proc` by their name.
use std::{fs, path::Path};

use nix::unistd::Pid;

/// Number of bytes that the kernel keeps of a process's name.
const KEPT: usize = 15;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: Pid,
    parent: i32,
    /// Start time in ticks since the system started: ids are reused.
    started: u64,
}

/// Returns the processes with a name, except this one and those whose parents have the name too: a
/// server passes the signal to its own children.
pub(super) fn named(name: &str) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<_> = ids
        .filter(|id| *id != std::process::id().cast_signed())
        .filter_map(|id| process(id).filter(|_| has_name(id, name)))
        .collect();
    let all = found.clone();
    found.retain(|process| !all.iter().any(|other| other.id.as_raw() == process.parent));
    found
}

/// Reports whether that very process still runs.
pub(super) fn is_there(of: &Process) -> bool {
    process(of.id.as_raw()).is_some_and(|now| now.started == of.started)
}

fn process(id: i32) -> Option<Process> {
    let stat = fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).ok()?;
    parse(id, &stat)
}

/// Parses the state of a process; `None` for one that has ended and is only waiting to be reaped.
fn parse(id: i32, stat: &str) -> Option<Process> {
    // The name is in parentheses and may contain parentheses itself.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    // The 22nd field; the state is the third.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { id: Pid::from_raw(id), parent, started })
}

fn has_name(id: i32, name: &str) -> bool {
    let read = |file| fs::read(Path::new("/proc").join(id.to_string()).join(file));
    let command = read("comm").unwrap_or_default();
    let arguments = read("cmdline").unwrap_or_default();
    is_name(name.as_bytes(), &command, &arguments)
}

/// Reports whether the process's own name or the file it was started as is that. A script has its
/// name, cut off, and the interpreter's file: then the script is among the arguments.
fn is_name(name: &[u8], command: &[u8], arguments: &[u8]) -> bool {
    fn file(path: &[u8]) -> &[u8] {
        path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
    let command = command.trim_ascii_end();
    let mut arguments = arguments.split(|byte| *byte == 0);
    let program = arguments.next().unwrap_or_default();
    let cut = name.get(..KEPT).is_some_and(|cut| cut == command);
    [command, program, file(program)].contains(&name) || cut && arguments.any(|it| file(it) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_process_or_of_its_file() {
        for (name, command, arguments, expected) in [
            ("app", "app\n", "/bin/other\0--flag\0", true),
            ("app", "other\n", "/bin/app\0--flag\0", true),
            ("app", "other\n", "app\0", true),
            ("/bin/app", "app\n", "/bin/app\0", true),
            (
                "an-application-of-long-name",
                "an-application-\n",
                { "/an-application-of-long-name\0" },
                true,
            ),
            ("nginx", "nginx\n", "nginx: master process nginx -g daemon off;\0", true),
            ("app", "python3\n", "/usr/bin/python3\0/srv/app\0", false),
            ("app", "application\n", "application\0", false),
            ("app", "", "", false),
            (
                "script-of-long-name.sh",
                "script-of-long-\n",
                { "/bin/sh\0/srv/script-of-long-name.sh\0" },
                true,
            ),
            (
                "script-of-long-name.py",
                "script-of-long-\n",
                { "/bin/sh\0/srv/script-of-long-name.sh\0" },
                false,
            ),
        ] {
            let is = is_name(name.as_bytes(), command.as_bytes(), arguments.as_bytes());
            assert_eq!(is, expected, "{name} {command} {arguments}");
        }
    }

    #[test]
    fn a_line_of_stat() {
        let rest = "7 12 12 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 8674 1 2";
        let expected = Process { id: Pid::from_raw(12), parent: 7, started: 8674 };
        assert_eq!(parse(12, &format!("12 (a) b) S {rest}")), Some(expected));
        assert_eq!(parse(12, &format!("12 (app) Z {rest}")), None);
        assert_eq!(parse(12, "12 (app) S 7"), None);
        assert_eq!(parse(12, ""), None);
    }

    #[test]
    fn this_process_is_there_but_not_found() {
        let id = std::process::id().cast_signed();
        let own = process(id).unwrap();
        assert!(is_there(&own));
        assert!(!is_there(&Process { started: own.started + 1, ..own }));
        assert!(named("no-process-has-this-name").is_empty());
    }
}
