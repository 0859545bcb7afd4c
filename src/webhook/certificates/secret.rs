//! The state as a Secret: PEM that every tool can read, and the times next to it.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::CertifiedKey,
};
use serde::{Deserialize, Serialize};

use super::{Authority, Leaf, State, UnixSeconds};

/// The bundle: all authorities, the oldest first.
const CA_CERTIFICATES: &str = "ca.crt";
/// Their keys, in the same order.
const CA_KEYS: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Names and times of the certificates, which PEM hides.
const TIMES: &str = "times.json";

/// The reason why a Secret is not a valid state.
#[derive(Debug, thiserror::Error)]
pub enum Defect {
    /// A key is missing.
    #[error("{0} is missing or is no text")]
    Missing(&'static str),
    /// The times are invalid.
    #[error("times.json: {0}")]
    Times(#[from] serde_json::Error),
    /// An entry was added or removed.
    #[error("{authorities} authorities in times.json, {certificates} in ca.crt, {keys} in ca.key")]
    Count {
        /// In the times.
        authorities: usize,
        /// In the bundle.
        certificates: usize,
        /// Of the keys.
        keys: usize,
    },
    /// A certificate or a key cannot be read, or they do not belong together.
    #[error("{0}: {1}")]
    Pair(String, String),
    /// The certificate is not signed by the authority that it names, or not for its names.
    #[error("tls.crt is not what times.json says: {0}")]
    Chain(String),
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Times {
    authorities: Vec<AuthorityTimes>,
    leaf: LeafTimes,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityTimes {
    name: String,
    created: UnixSeconds,
    not_after: UnixSeconds,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeafTimes {
    authority: String,
    names: Vec<String>,
    issued: UnixSeconds,
    not_after: UnixSeconds,
}

impl State {
    /// Returns the content of the Secret.
    ///
    /// # Errors
    /// When the times cannot be written.
    pub fn to_data(&self) -> Result<BTreeMap<String, ByteString>, Defect> {
        let authorities = self.authorities.iter().map(|authority| AuthorityTimes {
            name: authority.name.clone(),
            created: authority.created,
            not_after: authority.not_after,
        });
        let Leaf { authority, names, issued, not_after, .. } = self.leaf.clone();
        let leaf = LeafTimes { authority, names, issued, not_after };
        let times = Times { authorities: authorities.collect(), leaf };
        let keys: String = self.authorities.iter().map(|a| a.key.as_str()).collect();
        let all = [
            (CA_CERTIFICATES, self.bundle()),
            (CA_KEYS, keys),
            (CERTIFICATE, self.leaf.certificate.clone()),
            (KEY, self.leaf.key.clone()),
            (TIMES, serde_json::to_string(&times)?),
        ];
        Ok(all.map(|(key, text)| (key.into(), ByteString(text.into_bytes()))).into())
    }

    /// Reads and checks a Secret: keys belong to certificates, and the certificate to its
    /// authority. This does not check expiry.
    ///
    /// # Errors
    /// The reason why these contents are not ours.
    pub fn from_secret(secret: &Secret) -> Result<Self, Defect> {
        let text = |key| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            let text = bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
            text.ok_or(Defect::Missing(key))
        };
        let times: Times = serde_json::from_str(text(TIMES)?)?;
        let (certificates, keys) = (sections(text(CA_CERTIFICATES)?), sections(text(CA_KEYS)?));
        let authorities = times.authorities.len();
        if authorities != certificates.len() || authorities != keys.len() {
            let (certificates, keys) = (certificates.len(), keys.len());
            return Err(Defect::Count { authorities, certificates, keys });
        }
        let parts = times.authorities.into_iter().zip(certificates).zip(keys);
        let authorities = parts.map(|((times, certificate), key)| {
            let AuthorityTimes { name, created, not_after } = times;
            Authority { name, certificate, key, created, not_after }
        });
        let LeafTimes { authority, names, issued, not_after } = times.leaf;
        let (certificate, key) = (text(CERTIFICATE)?.into(), text(KEY)?.into());
        let leaf = Leaf { certificate, key, authority, names, issued, not_after };
        let state = Self { authorities: authorities.collect(), leaf };
        state.check()?;
        Ok(state)
    }

    fn check(&self) -> Result<(), Defect> {
        for authority in &self.authorities {
            pair(&authority.name, &authority.certificate, &authority.key)?;
        }
        self.certified_key()?;
        let chain = |error: &dyn std::fmt::Display| Defect::Chain(error.to_string());
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            let certificate = certificate(&authority.certificate).map_err(|e| chain(&e))?;
            let anchor = anchor_of(&certificate).map_err(|e| chain(&e))?;
            // Its next certificates name it as written here.
            if !contains(&anchor.subject, authority.name.as_bytes()) {
                return Err(Defect::Chain(format!("{} has another subject", authority.name)));
            }
            if authority.name == self.leaf.authority {
                roots.roots.push(anchor);
            }
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().map_err(|e| chain(&e))?;
        let leaf = certificate(&self.leaf.certificate).map_err(|e| chain(&e))?;
        // Both ends, because the rotation uses the separate times.
        for time in [self.leaf.issued, self.leaf.not_after.saturating_sub(1)] {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(
                u64::try_from(time).map_err(|e| chain(&e))?,
            ));
            for name in &self.leaf.names {
                let name = ServerName::try_from(name.as_str()).map_err(|e| chain(&e))?;
                let checked = verifier.verify_server_cert(&leaf, &[], &name, &[], time);
                checked.map_err(|e| chain(&e))?;
            }
        }
        Ok(())
    }

    /// Returns the certificate and key of a TLS server.
    ///
    /// # Errors
    /// When the certificate or its key cannot be read, or they do not belong together.
    pub fn certified_key(&self) -> Result<CertifiedKey, Defect> {
        pair(CERTIFICATE, &self.leaf.certificate, &self.leaf.key)
    }
}

fn pair(what: &str, certificate_pem: &str, key: &str) -> Result<CertifiedKey, Defect> {
    let wrong = |error: &dyn std::fmt::Display| Defect::Pair(what.into(), error.to_string());
    let certificate = certificate(certificate_pem).map_err(|e| wrong(&e))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| wrong(&e))?;
    CertifiedKey::from_der(vec![certificate], key, &ring::default_provider()).map_err(|e| wrong(&e))
}

/// Returns the trust anchor of an authority.
fn anchor_of(
    certificate: &CertificateDer<'_>,
) -> Result<rustls::pki_types::TrustAnchor<'static>, rustls::Error> {
    let mut one = RootCertStore::empty();
    one.add(certificate.clone().into_owned())?;
    one.roots.pop().ok_or(rustls::Error::NoCertificatesPresented)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, rustls::pki_types::pem::Error> {
    CertificateDer::from_pem_slice(pem.as_bytes())
}

/// Returns the sections of a PEM file, each with its first and last line.
fn sections(pem: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in pem.split_inclusive('\n') {
        if let Some(last) = all.last_mut() {
            last.push_str(line);
        }
        if line.starts_with("-----END ") {
            all.push(String::new());
        }
    }
    all.retain(|section| !section.trim().is_empty());
    all
}
