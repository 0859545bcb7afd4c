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

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_have_a_code_or_that_of_the_one_before() {
        assert_eq!(split("1002-Node_10_90_0_11 BGP"), ("Node_10_90_0_11 BGP", None));
        assert_eq!(split(" bgp1"), ("bgp1", None));
        assert_eq!(split("0000 "), ("", Some(0)));
        assert_eq!(split("8002 x.conf:3:1 syntax error"), ("x.conf:3:1 syntax error", Some(8002)));
    }

    #[test]
    fn only_established_bgp_counts() {
        let answer = lines(
            "Name       Proto      Table      State  Since         Info\n\
             kernel1    Kernel     master4    up     17:31:03.311\n\
             Node_10_90_0_10 BGP   ---        up     17:31:05.411  Established\n\
             Node_10_90_0_12 BGP   ---        start  17:31:03.311  Active        Socket: Connection refused",
        );
        assert_eq!(established(&answer), BTreeSet::from(["Node_10_90_0_10".to_owned()]));
    }

    #[test]
    fn paths_are_counted_not_networks() {
        let answer = lines("326 of 326 routes for 20 networks in table master4\nTotal: 326 of 326");
        assert_eq!(paths(&answer), Some(326));
        let answer = lines(
            "0 of 0 routes for 0 networks in table master4\n7 of 7 routes for 3 networks in table master6",
        );
        assert_eq!(paths(&answer), Some(7));
        assert_eq!(paths(&[]), None);
    }
}
