//! Puts the static programs of the operator and of its agent into an OCI image archive.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use image::{Archive, Compression, Image, original_agent, original_agent_archive, product};

/// Put the static programs of the operator and of its agent into an OCI image archive: of one
/// architecture or, with several pairs of programs, of each.
///
/// An image of one architecture has a second archive beside it, with the programs under the name of
/// the original prober's agent.
#[derive(Debug, Parser)]
#[command(name = "image", version)]
struct Arguments {
    /// The program of the operator; may be repeated.
    #[arg(long = "binary", required = true)]
    binaries: Vec<PathBuf>,
    /// The program of the agent, in the same order.
    #[arg(long = "agent", required = true)]
    agents: Vec<PathBuf>,
    /// The image's full name.
    #[arg(long = "ref", default_value = image::PRODUCT_REFERENCE)]
    reference: String,
    /// The archive to write.
    #[arg(long)]
    out: PathBuf,
    /// Compress nothing, for an archive that does not leave this machine.
    #[arg(long)]
    uncompressed: bool,
}

fn main() -> Result<()> {
    let Arguments { binaries, agents, reference, out, uncompressed } = Arguments::parse();
    ensure!(binaries.len() == agents.len(), "each --binary needs an --agent");
    let (binary, agent) = (&binaries[0], &agents[0]);
    if binaries.len() > 1 {
        let pairs = binaries.iter().zip(&agents);
        let images: Vec<Image> = pairs.map(|(b, a)| product(b, a, &reference)).collect();
        print(&image::write_index(&images, &out)?);
        return Ok(());
    }
    let compression = if uncompressed { Compression::None } else { Compression::Gzip };
    print(&product(binary, agent, &reference).write(&out, compression)?);
    let original = original_agent_archive(&out);
    print(&original_agent(binary, agent).write(&original, Compression::None)?);
    Ok(())
}

fn print(archive: &Archive) {
    #[allow(clippy::cast_precision_loss, reason = "for people to read")]
    let megabytes = archive.size as f64 / 1e6;
    println!(
        "{} {} {megabytes:.1} MB {}",
        archive.reference,
        archive.digest,
        archive.path.display()
    );
}
