//! The endpoints and their settings: `--prometheus-config` and `--prometheus-url`, validated before
//! any request.
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use http::{HeaderName, HeaderValue};
use reqwest::Url;

use super::exporters::{LinkExporter, Links};

mod file;

/// The endpoint of objects that name none.
pub const DEFAULT: &str = "default";

/// URL of Prometheus in kube-prometheus.
pub const DEFAULT_URL: &str = "http://prometheus-k8s.monitoring.svc:9090";

/// Headers that the client itself sends: a second value would contradict it, or break the transfer.
const RESERVED_HEADERS: [&str; 14] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Parameters that the request itself uses.
const RESERVED_PARAMETERS: [&str; 6] = ["query", "time", "timeout", "start", "end", "step"];

/// All endpoints by name; one called [`DEFAULT`] always exists.
#[derive(Clone, Debug)]
pub struct EndpointsConfig(BTreeMap<String, EndpointConfig>);

/// The settings of one endpoint. Its `Debug` shows nothing that may be secret.
#[derive(Clone)]
pub struct EndpointConfig {
    pub(super) name: String,
    /// Base URL, without `/api/v1`.
    pub(super) url: Url,
    /// The timeout of a request.
    pub(super) timeout: Duration,
    pub(super) auth: Auth,
    pub(super) tls: Tls,
    pub(super) headers: Vec<(HeaderName, Value)>,
    /// Sent with every query. The client requires names that live as long as the process.
    pub(super) parameters: Vec<(&'static str, String)>,
    /// The namespaces with objects that may query it, `*` for all; `None` (not set) also means all.
    pub(super) allowed_namespaces: Option<Vec<String>>,
    /// The series about links, if the file names their exporter or selects them.
    links: Option<Links>,
}

/// Our authentication at the endpoint.
#[derive(Clone, Debug, Default)]
pub(super) enum Auth {
    #[default]
    None,
    /// A token, in a file.
    Bearer(PathBuf),
    Basic {
        username: String,
        password_file: PathBuf,
    },
}

/// The verification of the endpoint's certificate, and our client certificate.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    pub ca_file: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, if it differs from the URL.
    pub server_name: Option<String>,
    pub insecure_skip_verify: bool,
}

/// A header's value.
#[derive(Clone)]
pub(super) enum Value {
    Literal(HeaderValue),
    File(PathBuf),
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let parameters: Vec<_> = self.parameters.iter().map(|(name, _)| name).collect();
        f.debug_struct("EndpointConfig")
            .field("name", &self.name)
            .field("url", &shown(&self.url))
            .field("timeout", &self.timeout)
            .field("auth", &self.auth)
            .field("tls", &self.tls)
            .field("headers", &headers)
            .field("parameters", &parameters)
            .field("allowed_namespaces", &self.allowed_namespaces)
            .field("links", &self.links)
            .finish()
    }
}

/// Returns a URL in a form that may be logged and written into a status.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // These fail for URLs that cannot have credentials, and then there are none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string().trim_end_matches('/').to_owned()
}

impl EndpointsConfig {
    /// Reads the endpoints of `file`, with `url` (or [`DEFAULT_URL`]) as [`DEFAULT`] if the file
    /// has none of that name; `timeout` applies to endpoints that set none.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid: the error names file, endpoint and field, never
    /// values.
    pub fn load(file: Option<&Path>, url: Option<&str>, timeout: Duration) -> anyhow::Result<Self> {
        let mut endpoints = match file {
            Some(path) => file::read(path, timeout).with_context(|| path.display().to_string())?,
            None => BTreeMap::new(),
        };
        match (endpoints.contains_key(DEFAULT), url, file) {
            (true, Some(_), Some(file)) => bail!(
                "--prometheus-url and endpoint {DEFAULT} in {} (--prometheus-config) both say where Prometheus is: leave one of them out",
                file.display()
            ),
            (true, ..) => {}
            (false, url, _) => {
                let url = url.unwrap_or(DEFAULT_URL);
                let endpoint =
                    EndpointConfig::plain(DEFAULT, url, timeout).context("--prometheus-url")?;
                endpoints.insert(DEFAULT.into(), endpoint);
            }
        }
        Ok(Self(endpoints))
    }

    /// Returns the series about links at the endpoints that name an exporter or select its series.
    pub fn links(&self) -> BTreeMap<String, Links> {
        let of = |(name, endpoint): (&String, &EndpointConfig)| {
            Some((name.clone(), endpoint.links.clone()?))
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Iterates over the endpoints, by name.
    pub fn iter(&self) -> impl Iterator<Item = &EndpointConfig> {
        self.0.values()
    }
}

impl EndpointConfig {
    /// Creates an endpoint without any settings.
    fn plain(name: &str, url: &str, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.into(),
            url: base_url(url)?,
            timeout,
            auth: Auth::None,
            tls: Tls::default(),
            headers: Vec::new(),
            parameters: Vec::new(),
            allowed_namespaces: None,
            links: None,
        })
    }

    /// Returns the name of the endpoint.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports whether secrets leave the machine unencrypted.
    pub(super) fn exposes_credentials(&self) -> bool {
        let secret = !matches!(self.auth, Auth::None)
            || self.url.password().is_some()
            || self.headers.iter().any(|(_, value)| matches!(value, Value::File(_)));
        secret && self.url.scheme() == "http" && !is_loopback(&self.url)
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address: Option<std::net::IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

fn base_url(text: &str) -> anyhow::Result<Url> {
    // The text itself is not repeated: there may be a password in it.
    let url = Url::parse(text).context("is no URL: write for example http://prometheus:9090")?;
    ensure!(
        matches!(url.scheme(), "http" | "https") && url.has_host(),
        "must begin with http:// or https:// and name a host"
    );
    Ok(url)
}

/// Prefixes a field's errors with its name.
fn field<T>(name: &str, result: anyhow::Result<T>) -> anyhow::Result<T> {
    result.with_context(|| name.to_owned())
}

impl file::Endpoint {
    fn check(self, name: String, timeout: Duration) -> anyhow::Result<EndpointConfig> {
        ensure!(
            is_dns_label(&name),
            "the name must be a DNS label: 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
        );
        let url = field("url", file_url(&self.url.0))?;
        let timeout = match &self.timeout {
            Some(text) => field("timeout", positive(&text.0))?,
            None => timeout,
        };
        ensure!(
            self.bearer_token_file.is_none() || self.basic_auth.is_none(),
            "bearerTokenFile and basicAuth both set the Authorization header: leave one of them out"
        );
        let auth = match (self.bearer_token_file, self.basic_auth) {
            (Some(path), _) => Auth::Bearer(field("bearerTokenFile", file_path(path))?),
            (None, Some(basic)) => field("basicAuth", basic.check())?,
            (None, None) => Auth::None,
        };
        let tls = match self.tls {
            Some(tls) => field("tls", tls.check(&url))?,
            None => Tls::default(),
        };
        let mut headers = Vec::new();
        let mut seen = HashSet::new();
        for (name, value) in self.headers {
            let name = field("headers", header_name(&name, &mut seen))?;
            let value = HeaderValue::from_str(&value.0).map_err(|_| {
                anyhow!("headers: {name}: has characters that cannot stand in a header")
            })?;
            headers.push((name, Value::Literal(value)));
        }
        for (name, path) in self.header_files {
            let name = field("headerFiles", header_name(&name, &mut seen))?;
            let path = file_path(path).with_context(|| format!("headerFiles: {name}"))?;
            headers.push((name, Value::File(path)));
        }
        let mut parameters = Vec::new();
        for (name, value) in self.parameters {
            ensure!(!name.is_empty(), "parameters: a name is empty");
            ensure!(
                !RESERVED_PARAMETERS.contains(&name.as_str()),
                "parameters: {name} belongs to each question and cannot be set here"
            );
            parameters.push((interned(name), value.0));
        }
        let allowed_namespaces = match self.allowed_namespaces {
            None => None,
            Some(names) => {
                let names: Vec<_> = names.into_iter().map(|name| name.0).collect();
                for name in &names {
                    ensure!(
                        name == "*" || is_dns_label(name),
                        "allowedNamespaces: {name:?} is no name of a namespace: write names, or \"*\" for each"
                    );
                }
                Some(names)
            }
        };
        let links = links(self.exporter.as_ref(), self.selector.as_ref())?;
        Ok(EndpointConfig {
            name,
            url,
            timeout,
            auth,
            tls,
            headers,
            parameters,
            allowed_namespaces,
            links,
        })
    }
}

impl file::BasicAuth {
    fn check(self) -> anyhow::Result<Auth> {
        let username = self.username.0;
        ensure!(
            !username.contains(':') && !username.chars().any(char::is_control),
            "username: has a colon or a control character, which cannot be transmitted"
        );
        let password_file = field("passwordFile", file_path(self.password_file))?;
        Ok(Auth::Basic { username, password_file })
    }
}

impl file::Tls {
    fn check(self, url: &Url) -> anyhow::Result<Tls> {
        ensure!(
            url.scheme() == "https",
            "url begins with http://, where there is no TLS: write https:// or leave tls out"
        );
        let ca_file = self.ca_file.map(|path| field("caFile", file_path(path))).transpose()?;
        let identity = match (self.cert_file, self.key_file) {
            (Some(cert), Some(key)) => {
                Some((field("certFile", file_path(cert))?, field("keyFile", file_path(key))?))
            }
            (None, None) => None,
            (Some(_), None) => bail!("certFile needs keyFile: set both or none"),
            (None, Some(_)) => bail!("keyFile needs certFile: set both or none"),
        };
        ensure!(
            !(self.insecure_skip_verify && ca_file.is_some()),
            "insecureSkipVerify and caFile contradict each other: leave insecureSkipVerify out"
        );
        let server_name = self.server_name.map(|name| name.0);
        if let Some(name) = &server_name {
            let is_name = name.len() <= 253
                && name.split('.').all(|label| is_dns_label(&label.to_ascii_lowercase()))
                && name.parse::<std::net::Ipv4Addr>().is_err();
            ensure!(is_name, "serverName: must be a DNS name, as in the server's certificate");
        }
        let insecure_skip_verify = self.insecure_skip_verify;
        Ok(Tls { ca_file, identity, server_name, insecure_skip_verify })
    }
}

/// Reads the exporter of links, and which of its series are accepted.
fn links(
    exporter: Option<&file::Text>,
    selector: Option<&file::Text>,
) -> anyhow::Result<Option<Links>> {
    if exporter.is_none() && selector.is_none() {
        return Ok(None);
    }
    let exporter = match exporter {
        None => LinkExporter::default(),
        Some(name) => {
            let known = LinkExporter::ALL.into_iter().find(|exporter| exporter.name() == name.0);
            let names = LinkExporter::ALL.map(LinkExporter::name).join(", ");
            known.with_context(|| format!("exporter: {:?} is none of {names}", name.0))?
        }
    };
    let selector = match selector {
        Some(text) => text.0.as_str(),
        None => exporter.usual_selector().with_context(|| {
            format!(
                "selector: is needed with exporter {}: label matchers that only the series of your \
                 collector have, such as job=\"otel-collector\"",
                exporter.name()
            )
        })?,
    };
    let believed = selector.parse().map_err(|error| anyhow!("selector: {error}"))?;
    Ok(Some(Links { exporter, believed }))
}

fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn file_url(text: &str) -> anyhow::Result<Url> {
    let url = base_url(text)?;
    ensure!(
        url.username().is_empty() && url.password().is_none(),
        "has credentials in it: use basicAuth"
    );
    ensure!(url.query().is_none(), "has a query in it: use parameters");
    ensure!(url.fragment().is_none(), "has a fragment (#…) in it: leave it out");
    ensure!(
        !url.path().trim_end_matches('/').ends_with("/api/v1"),
        "ends in /api/v1, which is added to it: leave that out"
    );
    Ok(url)
}

fn positive(text: &str) -> anyhow::Result<Duration> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| anyhow!("{error}: write for example 10s"))?;
    ensure!(!duration.is_zero(), "must be more than zero");
    Ok(duration)
}

fn file_path(path: file::Text) -> anyhow::Result<PathBuf> {
    ensure!(!path.0.is_empty(), "is empty: name a file");
    Ok(path.0.into())
}

fn header_name(text: &str, seen: &mut HashSet<HeaderName>) -> anyhow::Result<HeaderName> {
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| anyhow!("{text:?} is no header name"))?;
    if name == "authorization" {
        bail!("{text} is set by bearerTokenFile or basicAuth: use one of them");
    }
    ensure!(
        !RESERVED_HEADERS.contains(&name.as_str()),
        "{text} is set by the operator itself and cannot be set here"
    );
    ensure!(seen.insert(name.clone()), "{text} is set twice");
    Ok(name)
}

/// Returns a name that is never freed; each name is stored only once, no matter how often the
/// configuration is read.
fn interned(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let name: &'static str = Box::leak(name.into_boxed_str());
    names.insert(name);
    name
}

#[cfg(test)]
mod tests;
