//! The control socket of a BIRD, and what it answers.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A BIRD answers within a millisecond, and one that has an explosion of paths to work through, in
/// seconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Gives one command; returns the lines of the answer without their codes.
pub(super) fn ask(socket: &Path, command: &str) -> Result<Vec<String>> {
    let talk = || -> Result<Vec<String>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        lines.next().context("it says nothing")??;
        writeln!(stream, "{command}")?;
        let mut answer = Vec::new();
        loop {
            let line = lines.next().context("it ends in mid-answer")??;
            let (text, end) = split(&line);
            match end {
                // Codes from 8000 on are errors, those from 9000 on of the question.
                Some(code) if code >= 8000 => bail!("{text}"),
                _ => answer.push(text.to_owned()),
            }
            if end.is_some() {
                return Ok(answer);
            }
        }
    };
    talk().with_context(|| format!("birdc -s {} {command}", socket.display()))
}

/// A line begins with a code and a minus, or on the last one a blank; or with a blank if the code
/// is that of the line before. Returns the text, and the code of the last line.
fn split(line: &str) -> (&str, Option<u32>) {
    let code = line.get(..4).and_then(|code| code.parse().ok());
    match (code, line.as_bytes().get(4)) {
        (Some(code), Some(b' ')) => (&line[5..], Some(code)),
        (Some(_), Some(b'-')) => (&line[5..], None),
        _ => (line.get(1..).unwrap_or_default(), None),
    }
}

/// The names of the BGP protocols that are established, from `show protocols`.
pub(super) fn established(answer: &[String]) -> BTreeSet<String> {
    // name, protocol, table, state, since, info
    let words = answer.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_up = |words: &Vec<&str>| words.get(1) == Some(&"BGP") && words.contains(&"Established");
    words.filter(is_up).map(|words| words[0].to_owned()).collect()
}

/// Reads the number of paths from `show route count`.
pub(super) fn paths(answer: &[String]) -> Option<usize> {
    // "306 of 306 routes for 18 networks in table master4", and the same of master6, of which one
    // is empty; a last line adds them up.
    answer.iter().filter_map(|line| line.split_whitespace().next()?.parse().ok()).max()
}
