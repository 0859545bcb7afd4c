//! Kubeconfig files with everything inside, so that one can be copied anywhere.

use base64::Engine;
use serde_json::json;

use crate::pki::Pair;

pub(crate) fn render(server: &str, authority: &str, user: &str, pair: &Pair) -> String {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": encode(authority)}}],
        "users": [{"name": user, "user": {
            "client-certificate-data": encode(&pair.certificate),
            "client-key-data": encode(&pair.key),
        }}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    });
    // JSON is YAML; indented, it can still be read by people.
    format!("{value:#}\n")
}
