//! The architecture of programs and machines, in the words of OCI.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};

/// Length of the beginning of an ELF header, up to and including the machine.
const LENGTH: u64 = 20;

/// The machines of ELF (`e_machine`) that OCI has other names for.
const MACHINES: [(u16, &str); 2] = [(62, "amd64"), (183, "arm64")];

/// Returns the architecture of this machine.
pub(super) fn of_machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Reads the architecture of a program from its header; `None` for a script or data, and for a
/// machine without a name here.
///
/// # Errors
///
/// If the file cannot be read.
pub(super) fn of_program(path: &Path) -> Result<Option<&'static str>> {
    let mut header = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LENGTH).read_to_end(&mut header))
        .with_context(|| format!("reading {}", path.display()))?;
    // A class, then the order of bytes: 1 begins with the lowest.
    let [0x7f, b'E', b'L', b'F', _, 1, .., low, high] = header[..] else { return Ok(None) };
    if header.len() as u64 != LENGTH {
        return Ok(None);
    }
    let machine = u16::from_le_bytes([low, high]);
    Ok(MACHINES.iter().find(|(known, _)| *known == machine).map(|(_, name)| *name))
}
