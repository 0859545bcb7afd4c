//! OCI images without a container engine: one layer, and the same bytes for the same input.

mod architecture;
mod index;
mod product;

use std::fs::File;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

pub use index::write_index;
pub use product::{
    ORIGINAL_AGENT_REFERENCE, ORIGINAL_AGENT_SAMPLE_NAME, PRODUCT_REFERENCE, original_agent,
    original_agent_archive, product,
};

/// One image: what is in it and how it starts.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// The full name, with registry and tag: `docker.io/library/busybox:1.35`.
    pub reference: String,
    /// Files, directories and links; written in the order of their paths.
    pub entries: Vec<Entry>,
    /// The program and its fixed arguments.
    pub entrypoint: Vec<String>,
    /// Default arguments, or the program if there is no entrypoint.
    pub command: Vec<String>,
    /// User and group to run as, `65532:65532`; empty = root.
    pub user: String,
}

/// One entry of an image.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Absolute path in the image.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// The kind of entry.
    pub kind: Kind,
}

/// The kinds of entries.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A directory entry.
    Directory,
    /// A file with the content of a file here.
    File(PathBuf),
    /// A file with this content.
    Text(String),
    /// A symbolic link to this path.
    Link(String),
}

/// The compression of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As it is: quickest to import.
    None,
    /// gzip: for archives that travel.
    Gzip,
}

/// An image archive on disk.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The image's full name.
    pub reference: String,
    /// The digest of its manifest, `sha256:…`.
    pub digest: String,
    /// The archive's size in bytes.
    pub size: u64,
    /// The path of the archive.
    pub path: PathBuf,
}

/// The parts of an image before they are in an archive.
struct Parts {
    architecture: &'static str,
    /// The manifest as an index describes it.
    descriptor: serde_json::Value,
    /// Digest of the manifest.
    digest: String,
    /// Configuration, manifest and layer, by their digests.
    blobs: Vec<(String, Vec<u8>)>,
}

impl Entry {
    /// A directory that everyone may enter.
    #[must_use]
    pub fn directory(path: &str) -> Self {
        Self { path: path.to_owned(), mode: 0o755, kind: Kind::Directory }
    }

    /// `/tmp`: everyone may write, only owners may remove.
    #[must_use]
    pub fn tmp() -> Self {
        Self { mode: 0o1777, ..Self::directory("/tmp") }
    }

    /// Returns an executable file with the contents of `source`.
    #[must_use]
    pub fn program(path: &str, source: &Path) -> Self {
        Self { path: path.to_owned(), mode: 0o755, kind: Kind::File(source.to_owned()) }
    }

    /// A text file.
    #[must_use]
    pub fn text(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), mode: 0o644, kind: Kind::Text(text.to_owned()) }
    }
}

impl Image {
    /// Writes the image as an OCI archive that `ctr images import`, `docker load` and `skopeo`
    /// read.
    ///
    /// # Errors
    ///
    /// If a source cannot be read or the archive cannot be written.
    pub fn write(&self, path: &Path, compression: Compression) -> Result<Archive> {
        let Parts { descriptor, digest, blobs, .. } = self.build(compression)?;
        write_layout(path, &self.reference, descriptor, digest, &blobs)
    }

    fn build(&self, compression: Compression) -> Result<Parts> {
        let architecture = self.architecture()?;
        let layer =
            self.layer().with_context(|| format!("packing the layer of {}", self.reference))?;
        let diff_id = digest(&layer);
        let (media_type, blob, blob_digest) = match compression {
            Compression::None => ("application/vnd.oci.image.layer.v1.tar", layer, diff_id.clone()),
            Compression::Gzip => {
                let blob = gzip(&layer)?;
                let blob_digest = digest(&blob);
                ("application/vnd.oci.image.layer.v1.tar+gzip", blob, blob_digest)
            }
        };
        let config = serde_json::to_vec(&self.config(architecture, &diff_id))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(&config), "size": config.len()},
            "layers": [{"mediaType": media_type, "digest": blob_digest, "size": blob.len()}],
        }))?;
        let manifest_digest = digest(&manifest);
        Ok(Parts {
            architecture,
            descriptor: json!({
                "mediaType": MANIFEST,
                "digest": manifest_digest,
                "size": manifest.len(),
                "platform": {"architecture": architecture, "os": "linux"},
            }),
            digest: manifest_digest.clone(),
            blobs: vec![
                (digest(&config), config),
                (manifest_digest, manifest),
                (blob_digest, blob),
            ],
        })
    }

    /// The architecture of the programs in the image; the machine's if it has none.
    fn architecture(&self) -> Result<&'static str> {
        let mut found: Option<(&'static str, &Path)> = None;
        for entry in &self.entries {
            let Kind::File(source) = &entry.kind else { continue };
            let Some(own) = architecture::of_program(source)? else { continue };
            let (first, of) = *found.get_or_insert((own, source.as_path()));
            ensure!(
                own == first,
                "{} is for {first}, and {} for {own}: no image has both",
                of.display(),
                source.display()
            );
        }
        Ok(found.map_or_else(architecture::of_machine, |(architecture, _)| architecture))
    }

    /// The layer as an uncompressed tar: sorted, owned by root, without times.
    fn layer(&self) -> Result<Vec<u8>> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        // Parents sort before what is in them.
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let mut tar = tar::Builder::new(Vec::new());
        for entry in entries {
            let mut header = tar::Header::new_ustar();
            header.set_mode(entry.mode);
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            let path = entry.path.trim_start_matches('/');
            match &entry.kind {
                Kind::Directory => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_size(0);
                    tar.append_data(&mut header, format!("{path}/"), std::io::empty())?;
                }
                Kind::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    tar.append_link(&mut header, path, target)?;
                }
                Kind::Text(text) => append(&mut tar, &mut header, path, text.as_bytes())?,
                Kind::File(source) => {
                    let content = std::fs::read(source)
                        .with_context(|| format!("reading {}", source.display()))?;
                    append(&mut tar, &mut header, path, &content)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }

    fn config(&self, architecture: &str, diff_id: &str) -> serde_json::Value {
        json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint,
                "Cmd": self.command,
                "User": self.user,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        })
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

fn tag(reference: &str) -> &str {
    reference
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
        .map_or("latest", |(_, tag)| tag)
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    // No time and no name in the header: the same input gives the same bytes.
    let mut encoder =
        flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    header: &mut tar::Header,
    path: &str,
    content: &[u8],
) -> Result<()> {
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(content.len() as u64);
    Ok(tar.append_data(header, path, Cursor::new(content))?)
}

/// Writes an archive that holds one object under the image's name: a manifest, or an index of
/// manifests.
fn write_layout(
    path: &Path,
    reference: &str,
    descriptor: serde_json::Value,
    digest: String,
    blobs: &[(String, Vec<u8>)],
) -> Result<Archive> {
    let mut named = descriptor;
    named["annotations"] = json!({
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": tag(reference),
    });
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [named],
    }))?;
    write_archive(path, &index, blobs).with_context(|| format!("writing {}", path.display()))?;
    Ok(Archive {
        reference: reference.to_owned(),
        digest,
        size: std::fs::metadata(path)?.len(),
        path: path.to_owned(),
    })
}

fn write_archive(path: &Path, index: &[u8], blobs: &[(String, Vec<u8>)]) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let partial = path.with_extension("partial");
    let mut tar = tar::Builder::new(File::create(&partial)?);
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_mtime(0);
        append(&mut tar, &mut header, name, content)
    };
    add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add("index.json", index)?;
    for (name, content) in blobs {
        add(&format!("blobs/{}", name.replace(':', "/")), content)?;
    }
    tar.into_inner()?;
    // A reader that sees the archive sees all of it.
    Ok(std::fs::rename(&partial, path)?)
}

#[cfg(test)]
mod tests;
