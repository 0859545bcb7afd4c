//! A TLS handshake with a pod, by a port-forward through the API server, which verifies the pod's
//! certificate against a bundle.
use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::Trouble;
use crate::{infra::Api, inspect::cluster::describe};

/// The deadline, including the port-forward: a handshake takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// Makes a handshake with a port of a pod, as the API server does with the webhook.
///
/// # Errors
/// The reason why the API server would not trust it.
pub(super) async fn shake(
    client: &Client,
    (namespace, pod, port): (&str, &str, u16),
    host: &str,
    bundle: &[u8],
) -> Result<(), Trouble> {
    let shaken = async {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let forward = pods.portforward(pod, &[port]).await;
        let mut forward =
            forward.map_err(|error| Trouble::NotReached(describe("forward a port", error)))?;
        let nothing = || Trouble::NotReached(format!("port {port} is not forwarded"));
        let stream = forward.take_stream(port).ok_or_else(nothing)?;
        let result = trusts(stream, host, bundle).await.map_err(Trouble::Refused);
        forward.abort();
        result
    };
    within(DEADLINE, shaken).await
}

/// Waits for the result of a handshake up to a deadline. A late one proves nothing about the
/// certificate: it may be the port-forward that hangs.
pub(super) async fn within(
    deadline: Duration,
    shaken: impl Future<Output = Result<(), Trouble>>,
) -> Result<(), Trouble> {
    let late = Trouble::NotReached(format!("no answer within {} s", deadline.as_secs()));
    tokio::time::timeout(deadline, shaken).await.unwrap_or(Err(late))
}

/// Verifies that the bundle trusts the other end under this name.
pub(super) async fn trusts(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    bundle: &[u8],
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate =
            certificate.map_err(|error| format!("the caBundle is no PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("the caBundle holds no authority: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the caBundle is empty".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map(drop).map_err(|error| error.to_string())
}
