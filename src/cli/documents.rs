//! The flag `-f`: objects in a file.
use std::{
    fs::File,
    io::{self, Read},
};

use anyhow::{Context, ensure};
use clap::Args;

use crate::{api::TrafficWatch, inspect::spec};

/// The size limit of a file: the API server accepts no object larger than 1.5 MiB, and this has
/// room for several.
const MAX_BYTES: u64 = 16 << 20;

/// The objects to read.
#[derive(Args, Clone, Debug)]
pub struct DocumentArgs {
    /// YAML or JSON file with one or more TrafficWatch documents; `-` reads standard input.
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,
}

impl DocumentArgs {
    /// Reads and checks the objects.
    pub(super) fn read(&self) -> anyhow::Result<Vec<TrafficWatch>> {
        spec::read(&read(&self.file)?, spec::DEFAULT).with_context(|| self.file.clone())
    }
}

/// Reads a file, or standard input.
pub(super) fn read(file: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let source: Box<dyn Read> = if file == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).with_context(|| file.to_owned())?)
    };
    let read = source.take(MAX_BYTES + 1).read_to_string(&mut text);
    let read = read.with_context(|| file.to_owned())?;
    let most = usize::try_from(MAX_BYTES)?;
    ensure!(read <= most, "{file}: is larger than {} MiB", MAX_BYTES >> 20);
    Ok(text)
}
