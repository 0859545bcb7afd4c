//! The part of the Secret that every replica reads: its serving certificate, and the bundle.
use std::{
    convert::Infallible,
    sync::{Arc, PoisonError, RwLock},
};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::runtime::watcher::Event;
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::sync::watch;

use super::{BACKDATED, Defect, NAME, State, UnixSeconds};
use crate::{
    infra::{self, Api},
    metrics::Metrics,
};

/// HTTP/2, as TLS names it.
pub const HTTP2: &[u8] = b"h2";

/// HTTP/1, as TLS names it.
pub const HTTP1: &[u8] = b"http/1.1";

/// The CAs that clients of this server should trust, with their expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The certificates of the authorities, PEM: `caBundle` of the webhook configurations and
    /// `ca.crt` of the agents.
    pub pem: Arc<str>,
    /// The time when the current signing authority expires.
    pub authority_not_after: UnixSeconds,
    /// The time when the server's certificate expires.
    pub leaf_not_after: UnixSeconds,
}

/// The certificates in use by this process; clones share them.
#[derive(Clone, Debug)]
pub struct Certificates {
    current: Arc<Current>,
    bundle: watch::Sender<Option<Bundle>>,
    touched: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Current(RwLock<Option<Installed>>);

/// The installed certificate.
#[derive(Debug)]
struct Installed {
    newest: Signed,
    /// The time from which it is valid: in the future if its issuer's clock was ahead.
    valid_from: UnixSeconds,
    /// The one that is served until then.
    before: Option<Signed>,
}

/// A certificate with its key, and the name of the authority that signed it.
#[derive(Clone, Debug)]
struct Signed {
    key: Arc<CertifiedKey>,
    authority: String,
}

impl Current {
    /// Returns the certificate to serve.
    fn at(&self, now: UnixSeconds) -> Option<Signed> {
        let installed = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Installed { newest, valid_from, before } = installed.as_ref()?;
        Some(before.as_ref().filter(|_| now < *valid_from).unwrap_or(newest).clone())
    }

    fn install(&self, state: &State, key: CertifiedKey, now: UnixSeconds) {
        // Clients no longer trust one whose authority has left the bundle.
        let is_trusted = |before: &Signed| {
            state.authorities.iter().any(|authority| authority.name == before.authority)
        };
        let installed = Installed {
            before: self.at(now).filter(is_trusted),
            newest: Signed { key: Arc::new(key), authority: state.leaf.authority.clone() },
            valid_from: state.leaf.issued.saturating_sub(BACKDATED),
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(installed);
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.at(Timestamp::now().as_second()).map(|signed| signed.key)
    }
}

/// The installed certificate, with another one as its fallback.
#[derive(Debug)]
struct CurrentOr {
    current: Arc<Current>,
    first: Arc<CertifiedKey>,
}

impl ResolvesServerCert for CurrentOr {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.resolve(hello).or_else(|| Some(Arc::clone(&self.first)))
    }
}

impl Default for Certificates {
    fn default() -> Self {
        let (bundle, touched) = (watch::Sender::new(None), watch::Sender::new(()));
        Self { current: Arc::default(), bundle, touched }
    }
}

impl Certificates {
    /// The bundle now and whenever it changes; `None` until the Secret was read.
    #[must_use]
    pub fn bundle(&self) -> watch::Receiver<Option<Bundle>> {
        self.bundle.subscribe()
    }

    /// Returns a receiver that is notified of any change of the Secret, so that the leader checks
    /// it.
    #[must_use]
    pub fn touched(&self) -> watch::Receiver<()> {
        self.touched.subscribe()
    }

    /// Serves with this state from the next connection on, and publishes its bundle. A certificate
    /// that is not valid yet is served once it is: until then the previous one is.
    ///
    /// # Errors
    /// When the certificate and its key are not a pair; the previous one is still served.
    pub fn install(&self, state: &State) -> Result<(), Defect> {
        let key = state.certified_key()?;
        let signer = state.authorities.iter().find(|a| a.name == state.leaf.authority);
        let bundle = Bundle {
            pem: state.bundle().into(),
            authority_not_after: signer.map_or(0, |authority| authority.not_after),
            leaf_not_after: state.leaf.not_after,
        };
        // The bundle first: clients may receive it a little before they must trust it.
        self.bundle.send_if_modified(|current| {
            let changed = current.as_ref() != Some(&bundle);
            *current = Some(bundle);
            changed
        });
        self.current.install(state, key, Timestamp::now().as_second());
        Ok(())
    }

    /// Returns the configuration of a TLS server for these protocols that presents the installed
    /// certificate; until there is one, it refuses every handshake.
    ///
    /// # Errors
    /// When the versions of TLS do not match the cryptography.
    pub fn server_config(&self, protocols: &[&[u8]]) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Current>::clone(&self.current));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    /// Returns the same for an HTTP/1 server that serves from the start: until a certificate is
    /// installed, it presents `first`.
    ///
    /// # Errors
    /// When the versions of TLS do not match the cryptography.
    pub fn server_config_from(&self, first: CertifiedKey) -> Result<ServerConfig, rustls::Error> {
        let current = Arc::clone(&self.current);
        let resolver = CurrentOr { current, first: Arc::new(first) };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(config)
    }

    /// Follows the Secret for ever. Unreadable contents are logged, and the last good certificate
    /// stays.
    pub async fn follow(
        &self,
        client: kube::Client,
        namespace: &str,
        metrics: Metrics,
    ) -> Infallible {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let only = infra::watch::config().fields(&format!("metadata.name={NAME}"));
        let events = infra::watch::follow(api, only);
        let mut events = infra::watch::readable(events, "secrets", &metrics);
        loop {
            match events.next().await {
                Some(Event::InitApply(secret) | Event::Apply(secret)) => self.read(&secret),
                Some(Event::Delete(_)) => {
                    tracing::warn!(
                        secret = NAME,
                        "deleted; the certificate in use stays until the leader makes another"
                    );
                    self.touched.send_replace(());
                }
                // A first list without the Secret: the leader is about to create it, or to receive
                // it.
                Some(Event::InitDone) => self.touched.send_replace(()),
                Some(Event::Init) => {}
                // The stream never ends; if it did, the certificate in use would stay.
                None => std::future::pending().await,
            }
        }
    }

    fn read(&self, secret: &Secret) {
        match State::from_secret(secret).and_then(|state| self.install(&state)) {
            Ok(()) => tracing::debug!(secret = NAME, "certificates read"),
            Err(defect) => {
                tracing::warn!(secret = NAME, %defect, "not what we wrote, the last good certificate stays");
            }
        }
        self.touched.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Lifetimes, next},
        *,
    };

    /// The leader's clock was two days ahead for a moment: its certificate is valid in two days.
    #[test]
    fn a_certificate_of_the_future_is_not_served_before_it_is_valid() {
        let (start, day, names) = (1_767_225_600, 86_400, ["a.b.svc".to_owned()]);
        let issue = |state: Option<&State>, now, names: &[String]| {
            next(state, now, Lifetimes::default(), names).unwrap().unwrap()
        };
        let first = issue(None, start, &names);
        let ahead = issue(Some(&first), start + 2 * day, &["other.b.svc".to_owned()]);
        assert_eq!(ahead.authorities, first.authorities);
        let current = Current::default();
        let install =
            |state: &State, now| current.install(state, state.certified_key().unwrap(), now);
        let serves = |state: &State, now| {
            let expected = state.certified_key().unwrap();
            current.at(now).is_some_and(|signed| signed.key.cert == expected.cert)
        };
        // Without another one it is served all the same.
        install(&ahead, start);
        assert!(serves(&ahead, start));
        install(&first, start);
        install(&ahead, start);
        let valid = start + 2 * day - BACKDATED;
        assert!(serves(&first, start) && serves(&first, valid - 1) && serves(&ahead, valid));
        // The certificate of the corrected clock follows at once.
        let corrected = issue(Some(&ahead), start + 60, &names);
        install(&corrected, start + 60);
        assert!(serves(&corrected, start + 60));
        // One of an authority that no client trusts any more serves nobody.
        install(&issue(None, start + 2 * day, &names), start);
        assert!(!serves(&corrected, start));
    }
}
