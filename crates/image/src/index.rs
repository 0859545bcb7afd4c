//! One image for several architectures.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{Archive, Compression, Image, Parts, digest, write_layout};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Writes the same image for several architectures into one archive, with an index that names the
/// manifest of each. The digest is that of the index, under which the image is pulled.
///
/// # Errors
///
/// If there is no image, two are for one architecture, a source cannot be read or the archive
/// cannot be written.
pub fn write_index(images: &[Image], path: &Path) -> Result<Archive> {
    let reference = &images.first().context("there is no image to write")?.reference;
    let mut manifests = BTreeMap::new();
    let mut blobs = Vec::new();
    for image in images {
        let Parts { architecture, descriptor, blobs: own, .. } = image.build(Compression::Gzip)?;
        let earlier = manifests.insert(architecture, descriptor);
        ensure!(earlier.is_none(), "two images of {reference} are for {architecture}");
        blobs.extend(own);
    }
    // In the order of the architectures, so that the order of the images changes nothing.
    let manifests: Vec<_> = manifests.into_values().collect();
    let index = serde_json::to_vec(
        &json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}),
    )?;
    let descriptor = json!({"mediaType": INDEX, "digest": digest(&index), "size": index.len()});
    let index_digest = digest(&index);
    blobs.push((index_digest.clone(), index));
    write_layout(path, reference, descriptor, index_digest, &blobs)
}
