//! Orders the functions of a program by whether they run.
//!
//! A kernel maps 16 pages around the one that a program needs. Where the functions that run are
//! spread over the whole program, nearly all of it is resident; where they follow each other,
//! little more than they are.
//!
//! ```text
//! function-order record CALLGRIND-OUTPUT…      prints which functions ran, for a file
//! nm PROGRAM | function-order apply FILE       prints their symbols in this build, for the linker
//! ```
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead, Write},
    process::ExitCode,
};

use function_order::{defined, digest, function, process};

const USAGE: &str =
    "usage: function-order record CALLGRIND-OUTPUT…\n       nm PROGRAM | function-order apply FILE";

/// Prints the digests of all functions that ran: first those of the first process, then those that
/// ran in most of the others, and beside each other those that ran in the same ones.
fn record(outputs: &[String]) -> io::Result<()> {
    let mut ran: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for output in outputs {
        let text = fs::read(output)?;
        let text = String::from_utf8_lossy(&text);
        for digest in text.lines().filter_map(defined).map(digest) {
            ran.entry(digest).or_default().insert(process(output));
        }
    }
    let first = outputs.first().map_or("", |output| process(output));
    let mut ran: Vec<_> = ran.into_iter().collect();
    ran.sort_by(|(_, a), (_, b)| {
        let place = |set: &BTreeSet<&str>| (!set.contains(first), Reverse(set.len()));
        place(a).cmp(&place(b)).then_with(|| a.cmp(b))
    });
    let mut out = io::stdout().lock();
    ran.iter().try_for_each(|(digest, _)| writeln!(out, "{digest:08x}"))
}

/// Prints the symbols of the recorded functions, in the order of the file.
fn apply(file: &str) -> io::Result<()> {
    let recorded = fs::read_to_string(file)?;
    let mut places = BTreeMap::new();
    for (place, line) in recorded.lines().enumerate() {
        let one = u32::from_str_radix(line, 16)
            .map_err(|error| io::Error::other(format!("{file}:{}: {error}", place + 1)))?;
        places.insert(one, place);
    }
    let mut symbols = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let Some(symbol) = function(&line) else { continue };
        if let Some(place) = places.get(&digest(symbol)) {
            symbols.push((*place, symbol.to_owned()));
        }
    }
    symbols.sort();
    let mut out = io::stdout().lock();
    symbols.iter().try_for_each(|(_, symbol)| writeln!(out, "{symbol}"))
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["record", _, ..] => record(&args[1..]),
        ["apply", file] => apply(file),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("function-order: {error}");
            ExitCode::FAILURE
        }
    }
}
