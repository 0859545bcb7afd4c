//! The lab's own certificates: EC P-256, created for every start (all of them in a few
//! milliseconds).

use std::fs;
use std::path::Path;

use crate::workspace;
use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate and its private key, both PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Pair {
    /// Writes `<name>.crt` and `<name>.key` into `dir`.
    pub fn write(&self, dir: &Path, name: &str) -> Result<()> {
        write_secret(&dir.join(format!("{name}.crt")), &self.certificate)?;
        write_secret(&dir.join(format!("{name}.key")), &self.key)
    }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(path).with_context(|| format!("creating {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))
}

/// The subject of a certificate: names and addresses.
#[derive(Debug, Default, Clone)]
pub(crate) struct Identity {
    /// The user's name for Kubernetes.
    pub common_name: String,
    /// The user's groups for Kubernetes.
    pub organizations: Vec<String>,
    /// DNS names and addresses it may serve; empty for a mere client.
    pub names: Vec<String>,
    /// True if a user may present it to servers.
    pub client: bool,
}

impl Identity {
    pub fn user(name: &str, groups: &[&str]) -> Self {
        Self {
            common_name: name.to_owned(),
            organizations: groups.iter().map(|&g| g.to_owned()).collect(),
            names: Vec::new(),
            client: true,
        }
    }

    /// A server reachable under `names`.
    pub fn server(name: &str, names: &[&str]) -> Self {
        Self {
            common_name: name.to_owned(),
            names: names.iter().map(|&n| n.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// A kubelet: user of the API server and server of its own API with one certificate.
    pub fn kubelet(node: &str, address: &str) -> Self {
        Self {
            names: vec![node.to_owned(), address.to_owned()],
            ..Self::user(&format!("system:node:{node}"), &["system:nodes"])
        }
    }
}

/// A certificate authority. Its files carry its name.
pub(crate) struct Authority {
    name: String,
    issuer: Issuer<'static, KeyPair>,
    pair: Pair,
}

impl std::fmt::Debug for Authority {
    /// Names the type only, never the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Authority")
    }
}

impl Authority {
    /// Makes a new authority.
    pub fn create(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let params = authority_params(name);
        let certificate = params.self_signed(&key)?.pem();
        let pair = Pair { certificate, key: key.serialize_pem() };
        Ok(Self { name: name.to_owned(), issuer: Issuer::new(params, key), pair })
    }

    /// Writes certificate and key into `dir`.
    pub fn write(&self, dir: &Path) -> Result<()> {
        self.pair.write(dir, &self.name)
    }

    /// Reads an authority that [`Authority::write`] wrote.
    pub fn load(dir: &Path, name: &str) -> Result<Self> {
        let read = |end: &str| workspace::read(&dir.join(format!("{name}.{end}")));
        let pair = Pair { certificate: read("crt")?, key: read("key")? };
        let key = KeyPair::from_pem(&pair.key)?;
        Ok(Self { name: name.to_owned(), issuer: Issuer::new(authority_params(name), key), pair })
    }

    /// Returns the authority's own certificate.
    pub fn certificate(&self) -> &str {
        &self.pair.certificate
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, identity: &Identity) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let certificate = leaf_params(identity)?.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

/// Makes the key pair that signs service account tokens: (private, public), both PEM.
pub(crate) fn signing_keys() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// The parameters follow from the name alone, so that a stored authority can be loaded without
/// parsing X.509.
fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn leaf_params(identity: &Identity) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(identity.names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, &identity.common_name);
    // A name holds one value per attribute type here; the second group goes in under the same
    // attribute by number.
    let attributes = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    ensure!(
        identity.organizations.len() <= attributes.len(),
        "a certificate of the lab carries at most {} groups, not {:?}",
        attributes.len(),
        identity.organizations
    );
    for (attribute, organization) in attributes.into_iter().zip(&identity.organizations) {
        params.distinguished_name.push(attribute, organization);
    }
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if identity.client {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    if !identity.names.is_empty() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(params)
}
