//! The transport to one endpoint: connections, TLS, and authentication.
use std::{
    error::Error,
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Method, header};
use prometheus_http_query::Client;
use reqwest::{
    Certificate, Identity, Response, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use rustls::{
    AlertDescription, CertificateError, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::{
    Class, QueryError,
    config::{EndpointConfig, shown},
    question::Question,
    secrets::{self, Secrets, TlsFiles, complaint},
};

/// The longest wait for a connection: a lost packet is sent again after one and after three
/// seconds.
const CONNECT: Duration = Duration::from_secs(5);

/// Opens requests to one endpoint.
pub(super) struct Transport {
    config: Arc<EndpointConfig>,
    /// The base URL as requests are made to; its host is `tls.serverName` if that is set.
    base: Url,
    /// The true host, if `base` has another one.
    host: Option<HeaderValue>,
    /// The client, and the files from which it was built.
    client: Mutex<Option<(TlsFiles, Client)>>,
}

/// The secrets for one request.
pub(super) struct Ready<'a> {
    transport: &'a Transport,
    client: Client,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Transport {
    pub fn new(config: Arc<EndpointConfig>) -> Result<Self, QueryError> {
        let mut base = config.url.clone();
        let mut host = None;
        if let Some(name) = &config.tls.server_name {
            let true_host = config.url.host_str().unwrap_or_default();
            let port = config.url.port().map_or_else(String::new, |port| format!(":{port}"));
            host = HeaderValue::from_str(&format!("{true_host}{port}")).ok();
            base.set_host(Some(name)).map_err(|error| {
                QueryError::new(Class::Unreachable, format!("tls.serverName: {error}"))
            })?;
        }
        // The client appends its paths with a slash of their own.
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        let transport = Self { config, base, host, client: Mutex::default() };
        // A client without files cannot fail later, so it is built now.
        if transport.config.tls.ca_file.is_none() && transport.config.tls.identity.is_none() {
            transport.client(TlsFiles::default())?;
        }
        Ok(transport)
    }

    /// Reads the secrets as they are now.
    ///
    /// # Errors
    /// When a file is missing or unusable.
    pub async fn ready(&self) -> Result<Ready<'_>, QueryError> {
        let config = Arc::clone(&self.config);
        let secrets = if secrets::any(&config) {
            let read = tokio::task::spawn_blocking(move || secrets::read(&config)).await;
            read.map_err(|error| {
                QueryError::new(Class::Unreachable, format!("files were not read: {error}"))
            })??
        } else {
            secrets::read(&config)?
        };
        let Secrets { mut headers, tls } = secrets;
        if let Some(host) = &self.host {
            headers.push((header::HOST, host.clone()));
        }
        Ok(Ready { transport: self, client: self.client(tls)?, headers })
    }

    /// Returns the client for these files: the one of the last request if they are the same.
    fn client(&self, files: TlsFiles) -> Result<Client, QueryError> {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, client)) = &*slot
            && *before == files
        {
            return Ok(client.clone());
        }
        let client = Client::from(self.build(&files)?, self.base.as_str())
            .map_err(|error| self.failed(&error))?;
        *slot = Some((files, client.clone()));
        Ok(client)
    }

    fn build(&self, files: &TlsFiles) -> Result<reqwest::Client, QueryError> {
        let config = &*self.config;
        let mut builder = reqwest::Client::builder()
            .user_agent(crate::USER_AGENT)
            .connect_timeout(config.timeout.min(CONNECT))
            // A login page is not an answer, and must never receive our headers.
            .redirect(redirect::Policy::none())
            // Environment variables do not decide where our credentials go.
            .no_proxy()
            .tls_certs_only(self.authorities(files.ca.as_deref())?)
            .tls_danger_accept_invalid_certs(config.tls.insecure_skip_verify);
        if config.tls.server_name.is_some() {
            builder = builder.dns_resolver(Arc::new(Fixed(config.url.clone())));
        }
        if let (Some((cert, key)), Some((cert_file, key_file))) =
            (&files.identity, &config.tls.identity)
        {
            let pem = [cert.as_slice(), b"\n", key.as_slice()].concat();
            let refuse = |path: &Path, field: &str, what: &str| {
                Err(complaint(config, Class::Unauthorized, field, path, what))
            };
            if certificates(cert).is_empty() {
                return refuse(cert_file, "tls.certFile", "holds no certificate in PEM form");
            }
            let Ok(identity) = Identity::from_pem(&pem) else {
                return refuse(key_file, "tls.keyFile", "holds no private key in PEM form");
            };
            builder = builder.identity(identity);
            return builder.build().or_else(|_| {
                let what = "does not belong to the certificate in tls.certFile";
                refuse(key_file, "tls.keyFile", what)
            });
        }
        builder.build().map_err(|error| {
            let message = format!("endpoint {}: HTTP client: {}", config.name, cause(&error));
            QueryError::new(Class::Unreachable, message)
        })
    }

    /// Returns the CAs that may have signed the server's certificate.
    fn authorities(&self, ca: Option<&[u8]>) -> Result<Vec<Certificate>, QueryError> {
        let (Some(pem), Some(path)) = (ca, &self.config.tls.ca_file) else {
            // The 140 certificates are read only if needed.
            return if self.config.url.scheme() == "https" {
                let der = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
                Ok(der.filter_map(|der| Certificate::from_der(der).ok()).collect())
            } else {
                Ok(Vec::new())
            };
        };
        let certificates = certificates(pem);
        let mut store = RootCertStore::empty();
        let (usable, _) = store.add_parsable_certificates(certificates.iter().cloned());
        if usable == 0 || usable < certificates.len() {
            let what = "holds no certificate in PEM form, or a broken one";
            return Err(complaint(&self.config, Class::Unreachable, "tls.caFile", path, what));
        }
        Ok(certificates.iter().filter_map(|der| Certificate::from_der(der).ok()).collect())
    }

    /// Describes a failed request to the user by its last cause ("connection refused"), because the
    /// ones above it repeat the URL with the whole query.
    pub fn failed(&self, error: &(dyn Error + 'static)) -> QueryError {
        let (class, what) = match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                let known = match &self.config.tls.ca_file {
                    Some(path) => format!("tls.caFile {} does not hold it", path.display()),
                    None => "it is not one of Mozilla's: name its file in tls.caFile".into(),
                };
                let what = format!("the server's certificate is signed by an unknown CA; {known}");
                (Class::Unreachable, what)
            }
            Some(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => {
                let name = self.base.host_str().unwrap_or_default();
                let what = format!(
                    "the server's certificate is not for {name}: if it is the right server, set tls.serverName to a name of the certificate"
                );
                (Class::Unreachable, what)
            }
            Some(rustls::Error::AlertReceived(alert)) if is_about_us(*alert) => {
                let advice = match self.config.tls.identity {
                    Some(_) => "it refuses that of tls.certFile",
                    None => "set tls.certFile and tls.keyFile",
                };
                let what = format!("the server wants a client certificate ({alert:?}): {advice}");
                (Class::Unauthorized, what)
            }
            _ => (Class::Unreachable, cause(error).to_string()),
        };
        QueryError::new(class, format!("{}: {what}", shown(&self.config.url)))
    }
}

impl Ready<'_> {
    /// Sends a query, with the parameters of the endpoint.
    pub async fn send(&self, method: &Method, question: &Question) -> Result<Response, QueryError> {
        // Instant and range queries have the same methods, and no trait in common.
        macro_rules! send {
            ($query:expr) => {{
                let mut query = $query.timeout(question.milliseconds());
                for (name, value) in &self.transport.config.parameters {
                    query = query.query(name, value);
                }
                for (name, value) in &self.headers {
                    query = query.header(name, value.clone());
                }
                if *method == Method::GET { query.get_raw().await } else { query.post_raw().await }
            }};
        }
        let promql = &question.promql;
        #[cfg(test)]
        if let Some(answer) = super::simulated::answer(promql) {
            return answer.await;
        }
        let response = match question.range {
            None => send!(self.client.query(promql)),
            Some((start, end, step)) => {
                send!(self.client.query_range(promql, start, end, step.as_secs_f64()))
            }
        };
        response.map_err(|error| self.transport.failed(&error))
    }
}

/// Finds the host of a URL, for any requested name: the certificate's name need not be one that
/// leads to the server.
struct Fixed(Url);

impl Resolve for Fixed {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.0.port_or_known_default().unwrap_or_default();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, port)).await?;
            let addresses: Vec<SocketAddr> = found.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    // One unreadable certificate invalidates the file: half of a bundle would cause confusing
    // errors later.
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().unwrap_or_default()
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    error.source().map_or(error, cause)
}

fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = match error.downcast_ref::<io::Error>() {
        // An I/O error names the source of its inner error as its own, and skips the inner one.
        Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    };
    error.downcast_ref().or_else(|| tls_error(inner?))
}

fn is_about_us(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

#[cfg(test)]
mod tests;
