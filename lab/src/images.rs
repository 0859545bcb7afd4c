//! The images that the lab's nodes are given, under the names that the manifests of the real
//! projects use.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cluster::Monitoring;
use crate::{process, tools, versions, workspace};
use image::{Archive, Compression, Entry, Image, Kind};

/// Raised when images are made differently from the same programs.
const REVISION: u32 = 1;

/// Returns where `make image` writes, and where a cluster looks for, the product's image archive.
#[must_use]
pub fn product_archive() -> PathBuf {
    workspace::state().join("image/traffic-operator.tar")
}

/// The nodes that need an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Every node.
    All,
    /// The one that runs the cluster's own services (DNS, Prometheus).
    Services,
}

/// Builds all images whose programs changed, and returns them with the nodes that need them.
///
/// The images of the monitoring stack are left out unless requested.
pub(crate) fn build_all(monitoring: Monitoring) -> Result<Vec<(Role, PathBuf)>> {
    let _lock = tools::lock("images")?;
    let mut all = vec![(Role::All, busybox()?)];
    let mut add = |role, reference, path, source: PathBuf, user, directories: &[&str]| {
        all.push((role, of_program(reference, path, &source, user, directories)?));
        anyhow::Ok(())
    };
    let (of_pause, nobody) = ("65535:65535", "65534:65534");
    add(Role::All, pause_reference(), "/pause", pause_program()?, of_pause, &[])?;
    let coredns = tools::ensure("coredns")?;
    add(Role::Services, coredns_reference(), "/coredns", coredns, "", &[])?;
    if monitoring != Monitoring::None {
        let (exporter, prometheus) =
            (tools::ensure("node_exporter")?, tools::ensure("prometheus")?);
        add(Role::All, node_exporter_reference(), "/bin/node_exporter", exporter, nobody, &[])?;
        let (program, directories) = ("/bin/prometheus", ["/etc/prometheus", "/prometheus"]);
        add(Role::Services, prometheus_reference(), program, prometheus, nobody, &directories)?;
    }
    if monitoring == Monitoring::Operator {
        let reloader = tools::ensure("prometheus-config-reloader")?;
        let program = "/bin/prometheus-config-reloader";
        add(Role::Services, config_reloader_reference(), program, reloader, nobody, &[])?;
    }
    Ok(all)
}

/// The pod sandbox's image.
pub(crate) fn pause_reference() -> String {
    format!("registry.k8s.io/pause:{}", versions::PAUSE)
}

pub(crate) fn coredns_reference() -> String {
    format!("registry.k8s.io/coredns/coredns:{}", versions::COREDNS)
}

pub(crate) fn node_exporter_reference() -> String {
    format!("quay.io/prometheus/node-exporter:{}", versions::NODE_EXPORTER)
}

pub(crate) fn prometheus_reference() -> String {
    format!("quay.io/prometheus/prometheus:{}", versions::PROMETHEUS)
}

pub(crate) fn config_reloader_reference() -> String {
    format!(
        "quay.io/prometheus-operator/prometheus-config-reloader:{}",
        versions::PROMETHEUS_OPERATOR
    )
}

/// Returns the archive of an image of one static program.
fn of_program(
    reference: String,
    path: &str,
    source: &Path,
    user: &str,
    directories: &[&str],
) -> Result<PathBuf> {
    let mut entries = vec![
        Entry::program(path, source),
        Entry::directory("/etc"),
        Entry::text("/etc/passwd", "root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/:/\n"),
        Entry::tmp(),
    ];
    if path.starts_with("/bin/") {
        entries.push(Entry::directory("/bin"));
    }
    entries.extend(directories.iter().map(|path| Entry::directory(path)));
    let (entrypoint, user) = (vec![path.to_owned()], user.to_owned());
    cached(&Image { reference, entries, entrypoint, user, ..Image::default() }, source)
}

/// Returns the archive of an image, rewritten only if its program changed.
fn cached(image: &Image, source: &Path) -> Result<PathBuf> {
    let name = image.reference.rsplit('/').next().unwrap_or(&image.reference).replace(':', "-");
    let dir = workspace::state().join("cache/images");
    let (path, stamp_path) = (dir.join(format!("{name}.tar")), dir.join(format!("{name}.stamp")));
    let metadata = fs::metadata(source).with_context(|| format!("reading {}", source.display()))?;
    let stamp =
        format!("{REVISION} {} {} {:?}\n", image.reference, metadata.len(), metadata.modified()?);
    if path.is_file() && fs::read_to_string(&stamp_path).is_ok_and(|text| text == stamp) {
        return Ok(path);
    }
    // Uncompressed: it only travels from this disk to this disk, and unpacks in half the time.
    let Archive { reference, size, .. } = image.write(&path, Compression::None)?;
    fs::write(&stamp_path, stamp)?;
    crate::progress(&format!("image {reference}, {} MB", size / 1_000_000));
    Ok(path)
}

/// The pause program, built from its source in this repository.
fn pause_program() -> Result<PathBuf> {
    tools::build(&["pause"])?;
    Ok(workspace::bin().join("pause"))
}

/// Debian's static busybox with a link for each of its applets.
fn busybox() -> Result<PathBuf> {
    let program = Path::new("/bin/busybox");
    ensure!(program.is_file(), "/bin/busybox is missing: apt-get install busybox-static");
    let start = fs::read(program)?;
    // A dynamic program names its loader right behind the headers.
    let dynamic = start.windows(8).take(4096).any(|bytes| bytes == b"ld-linux");
    ensure!(!dynamic, "/bin/busybox is not static: apt-get install busybox-static");
    let mut entries: Vec<Entry> =
        ["/bin", "/etc", "/root", "/usr", "/usr/bin", "/var"].map(Entry::directory).into();
    entries.extend([
        Entry::program("/bin/busybox", program),
        Entry::text(
            "/etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        ),
        Entry::text("/etc/group", "root:x:0:\nnobody:x:65534:\n"),
        Entry::tmp(),
    ]);
    for applet in
        process::output(program, &["--list"])?.lines().filter(|applet| *applet != "busybox")
    {
        let path = format!("/bin/{applet}");
        entries.push(Entry { path, mode: 0o777, kind: Kind::Link("busybox".to_owned()) });
    }
    let image = Image {
        reference: format!("docker.io/library/busybox:{}", versions::BUSYBOX),
        entries,
        command: vec!["sh".to_owned()],
        ..Image::default()
    };
    cached(&image, program)
}
