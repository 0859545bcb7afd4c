//! A line on standard error while a command takes long: only on a terminal, cleared at the end.
//!
//! indicatif is a fine library for bars; for one delayed line, it would add five crates, and the
//! delay would still be our code.
use std::{
    env,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::output;
use crate::inspect::progress::Progress;

/// The time before the line appears: an answer that arrives sooner needs none.
const QUIET: Duration = Duration::from_secs(2);

/// The time between two lines: often enough to be seen moving.
const TICK: Duration = Duration::from_millis(250);

/// The longest line, which fits on every terminal: one that wraps could not be rewritten.
const COLUMNS: usize = 79;

/// Returns to the first column, and erases the line.
const ERASE: &str = "\r\u{1b}[2K";

/// Runs a command that waits for the network, and shows its progress.
pub(super) fn block_on<T>(
    progress: &Progress,
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
    let stderr = io::stderr();
    if dumb || !stderr.is_terminal() {
        return output::block_on(command);
    }
    output::block_on(show(progress, command, stderr, QUIET))
}

/// Writes the line at every tick after the quiet time, until the command ends.
async fn show<T>(
    progress: &Progress,
    command: impl Future<Output = T>,
    mut to: impl Write,
    quiet: Duration,
) -> T {
    let mut command = std::pin::pin!(command);
    let started = Instant::now();
    let mut ticks = interval_at(started + quiet, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut drawn = false;
    let result = loop {
        tokio::select! {
            biased;
            result = &mut command => break result,
            _ = ticks.tick() => {
                drawn = true;
                draw(&mut to, &line(&progress.stage(), started.elapsed()));
            }
        }
    };
    if drawn {
        draw(&mut to, "");
    }
    result
}

fn line(stage: &str, elapsed: Duration) -> String {
    let end = format!(" … {} s", elapsed.as_secs());
    let room = COLUMNS.saturating_sub(end.chars().count());
    stage.chars().take(room).chain(end.chars()).collect()
}

fn draw(to: &mut impl Write, line: &str) {
    // A terminal that is gone misses only this line.
    let _ = write!(to, "{ERASE}{line}").and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::Notify;

    use super::*;

    /// A terminal that reports when something was written to it.
    #[derive(Clone, Default)]
    struct Terminal(Arc<(Mutex<Vec<u8>>, Notify)>);

    impl Write for Terminal {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.1.notify_one();
            Ok(())
        }
    }

    impl Terminal {
        fn text(&self) -> String {
            String::from_utf8(self.0.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[tokio::test]
    async fn a_command_that_takes_long_shows_its_stage_and_leaves_nothing_behind() {
        let (progress, terminal) = (Progress::default(), Terminal::default());
        let command = async {
            progress.enter("the first");
            terminal.0.1.notified().await;
            progress.enter("the second");
            terminal.0.1.notified().await;
            7
        };
        let result = show(&progress, command, terminal.clone(), Duration::from_millis(1)).await;
        assert_eq!(result, 7);
        let text = terminal.text();
        let lines: Vec<_> = text.split(ERASE).collect();
        assert!(lines[1].starts_with("the first … "), "{lines:?}");
        assert!(lines[2].starts_with("the second … "), "{lines:?}");
        assert_eq!(lines.last(), Some(&""), "{lines:?}");
    }

    #[tokio::test]
    async fn a_command_that_is_quick_shows_nothing() {
        let (progress, terminal) = (Progress::default(), Terminal::default());
        show(&progress, async { progress.enter("a stage") }, terminal.clone(), QUIET).await;
        assert_eq!(terminal.text(), "");
    }

    #[test]
    fn a_line_never_wraps_and_keeps_its_seconds() {
        let line = line(&"ä".repeat(200), Duration::from_millis(12_345));
        assert_eq!(line.chars().count(), COLUMNS);
        assert!(line.ends_with("ä … 12 s"), "{line}");
    }
}
