//! Standard output, which a reader may close early: `| head` is not an error.
use std::io::{self, ErrorKind, StdoutLock, Write};

use anstream::AutoStream;
use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::text::printable;

/// Writes text unchanged.
pub(super) fn text(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Clears the terminal, whose next text is at its top.
pub(super) fn clear() -> anyhow::Result<()> {
    text("\x1b[2J\x1b[H")
}

/// Output that is complete, and not yet written.
#[derive(Debug)]
pub(super) enum Document {
    /// Prose, whose colors depend on the terminal.
    Prose(String),
    /// Text for programs.
    Data(String),
}

impl Document {
    /// Writes it.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        match self {
            Self::Prose(prose) => self::prose(prose),
            Self::Data(data) => text(data),
        }
    }
}

/// Returns one JSON document.
fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let json = serde_json::to_string_pretty(value).context("JSON")?;
    Ok(format!("{json}\n"))
}

/// Writes text with colors, if they are enabled. Whatever it quotes, a terminal gets no other
/// control characters.
fn prose(text: &str) -> anyhow::Result<()> {
    let text = text.split('\n').map(printable).collect::<Vec<_>>().join("\n");
    let stdout = io::stdout().lock();
    let choice = choice(&stdout);
    match AutoStream::new(stdout, choice).write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// The crate decides by the flag, `NO_COLOR`, `CLICOLOR_FORCE` and the terminal. It would color the
/// output of a CI job even if `TERM` is dumb.
fn choice(stdout: &StdoutLock<'static>) -> anstream::ColorChoice {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    match anstream::ColorChoice::global() {
        anstream::ColorChoice::Auto if dumb => anstream::ColorChoice::Never,
        _ => AutoStream::choice(stdout),
    }
}

/// The flag `--color`, of commands whose text has colors.
#[derive(Args, Clone, Copy, Debug)]
pub struct ColorArgs {
    /// Color states in text: auto does so on a terminal, unless `NO_COLOR` is set or `TERM` is
    /// dumb.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: Color,
}

impl ColorArgs {
    /// Applies the choice to the whole process.
    pub(super) fn choose(self) {
        match self.color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Color {
    /// On a terminal.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// Returns one YAML document, made from the JSON value: an enum written directly as YAML would
/// become a tag, which few readers know.
fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(value).context("YAML")?;
    serde_yaml::to_string(&value).context("YAML")
}

/// Format of output that is prose.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TextFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs, and easier to read.
    Yaml,
}

impl TextFormat {
    /// Writes a value, in prose by `in_words`.
    pub(super) fn print<T: Serialize>(
        self,
        value: &T,
        in_words: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        self.format(value, in_words)?.write()
    }

    /// Formats a value, in prose by `in_words`.
    pub(super) fn format<T: Serialize>(
        self,
        value: &T,
        in_words: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<Document> {
        Ok(match self {
            Self::Text => Document::Prose(in_words(value)),
            Self::Json => Document::Data(json(value)?),
            Self::Yaml => Document::Data(yaml(value)?),
        })
    }
}

/// Format of output that is a table.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TableFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For programs, and easier to read.
    Yaml,
}

impl TableFormat {
    /// Writes a value, as a table by `table`.
    pub(super) fn print<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        match self {
            Self::Table => TextFormat::Text,
            Self::Json => TextFormat::Json,
            Self::Yaml => TextFormat::Yaml,
        }
        .print(value, table)
    }
}

/// Runs a command that waits for the network; it needs one thread only.
pub(super) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("async runtime")?.block_on(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_what_the_json_is() {
        #[derive(Serialize)]
        enum Either {
            This(u8),
        }
        assert_eq!(yaml(&[Either::This(1)]).unwrap(), "- This: 1\n");
    }
}
