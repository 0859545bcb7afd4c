//! The product's own image: its two binaries on nothing.

use std::path::{Path, PathBuf};

use super::{Entry, Image};

/// The name under which the product's image is built and deployed.
pub const PRODUCT_REFERENCE: &str =
    concat!("registry.invalid/traffic-operator:", env!("CARGO_PKG_VERSION"));

/// Describes the product's image around the static binaries of the operator and of its agent.
///
/// No shell and no certificates: the API server's authority is mounted into every pod, and the
/// operator brings the public ones. The user is the customary non-root one of such images.
#[must_use]
pub fn product(binary: &Path, agent: &Path, reference: &str) -> Image {
    Image {
        reference: reference.to_owned(),
        entries: vec![
            Entry::program("/traffic-operator", binary),
            // `traffic-operator agent` replaces itself with this program.
            Entry::program("/traffic-operator-agent", agent),
            Entry::directory("/etc"),
            Entry::text(
                "/etc/passwd",
                "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
            ),
            Entry::text("/etc/group", "root:x:0:\nnonroot:x:65532:\n"),
            Entry::tmp(),
        ],
        entrypoint: vec!["/traffic-operator".to_owned()],
        command: Vec::new(),
        user: "65532:65532".to_owned(),
    }
}

/// The name of the original prober's agent image, as its sample has it.
pub const ORIGINAL_AGENT_REFERENCE: &str = "docker.io/bigmikes/kube-net-prober:test-version-v8";

/// The same name as that sample writes it.
pub const ORIGINAL_AGENT_SAMPLE_NAME: &str = "bigmikes/kube-net-prober:test-version-v8";

/// Describes an image under the name of the original agent's: the product's binaries, started as
/// its agent.
///
/// The original cannot be pulled here; under its name the original's sample runs as it was
/// published. As there, all settings come from environment variables.
#[must_use]
pub fn original_agent(binary: &Path, agent: &Path) -> Image {
    let mut image = product(binary, agent, ORIGINAL_AGENT_REFERENCE);
    image.entrypoint.extend(["agent", "probe"].map(str::to_owned));
    image
}

/// Returns where the image under the original agent's name is written, beside the product's.
#[must_use]
pub fn original_agent_archive(product: &Path) -> PathBuf {
    product.with_file_name("kube-net-prober.tar")
}
