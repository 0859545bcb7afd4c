//! The connection to etcd: the member, the certificate, and the timeouts.
use std::{
    collections::BTreeMap,
    error::Error as _,
    time::{Duration, Instant},
};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use tokio::{sync::Mutex, time::timeout};

use crate::{infra::Api, route_reflector::datastore::Error};

/// The deadline of every call, as of those to the API server.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// The time that one member may take, so that a second one can still answer within the deadline.
const MEMBER_DEADLINE: Duration = Duration::from_secs(4);

/// The time that a connection to a member may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// etcd closes the connection of a client that pings more often than every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Time between two reads of the Secret while everything works: certificates are renewed long
/// before they expire.
const SECRET_AGE: Duration = Duration::from_mins(5);

/// Maximum size of the answer to a list of 1,000 large objects; the library's limit is 4 MiB.
const MAX_ANSWER: usize = 64 << 20;

/// The field with these settings.
const FIELD: &str = "spec.datastore.etcd";

/// The key of the members in a Secret, and how Calico's own Secrets and its `ConfigMap` would spell
/// it.
const ENDPOINTS: [&str; 3] = ["endpoints", "etcd-endpoints", "etcd_endpoints"];

/// The credentials for etcd, and its endpoints. Without `Debug` on purpose.
///
/// Both come from one place: the author of an object must not choose the host to which a password
/// is sent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    endpoints: Vec<String>,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    user: Option<(String, String)>,
}

impl Credentials {
    /// An etcd that requires none.
    #[must_use]
    pub fn anonymous(endpoints: Vec<String>) -> Self {
        Self { endpoints, ..Self::default() }
    }

    /// `endpoints`, and the keys of Calico's own Secrets (`etcd-ca`, `etcd-cert`, `etcd-key`),
    /// `username` and `password`; each of these may be absent or empty.
    ///
    /// # Errors
    /// When there are no endpoints, half of a pair is missing, or credentials would be sent in the
    /// clear. The keys are named, what they hold never is.
    pub fn from_secret(name: &str, data: &BTreeMap<String, ByteString>) -> Result<Self, Error> {
        let get = |key: &str| data.get(key).map(|v| v.0.clone()).filter(|v| !v.is_empty());
        let text = |key: &str| {
            let text = get(key).map(String::from_utf8).transpose();
            // A file is often made with a line end that is no part of the password.
            text.map(|text| text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned()))
                .map_err(|_| invalid(name, &format!("{key} is no text")))
        };
        let pair = |a: &str, b: &str| invalid(name, &format!("has {a} but no {b}"));
        let identity = match (get("etcd-cert"), get("etcd-key")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(pair("etcd-cert", "etcd-key")),
            (None, Some(_)) => return Err(pair("etcd-key", "etcd-cert")),
        };
        let user = match (text("username")?, text("password")?) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) => return Err(pair("username", "password")),
            (None, Some(_)) => return Err(pair("password", "username")),
        };
        let mut spelled = Vec::new();
        for key in ENDPOINTS {
            if let Some(found) = text(key)? {
                spelled.push((key, found));
            }
        }
        let (key, list) = match &spelled[..] {
            [] => return Err(invalid(name, "has no endpoints: the URLs of etcd's members")),
            [one] => one,
            [one, two, ..] => {
                return Err(invalid(name, &format!("has {} and {}; keep one", one.0, two.0)));
            }
        };
        let members = list.split([',', '\n', '\r']).map(str::trim).filter(|url| !url.is_empty());
        let endpoints: Vec<String> = members.map(str::to_owned).collect();
        let url = |url: &String| ["http://", "https://"].iter().any(|s| url.starts_with(s));
        if endpoints.is_empty() || !endpoints.iter().all(url) {
            let what = format!("has under {key} something that is not a URL with http or https");
            return Err(invalid(name, &what));
        }
        let credentials = Self { endpoints, ca: get("etcd-ca"), identity, user };
        let clear = credentials.endpoints.iter().find(|url| !url.starts_with("https://"));
        if let Some(url) = clear.filter(|_| credentials.has_secrets()) {
            let what = format!(
                "has credentials and the endpoint {url}: they are only sent over https; use https, or remove them"
            );
            return Err(invalid(name, &what));
        }
        Ok(credentials)
    }

    /// Reports whether it contains secrets.
    fn has_secrets(&self) -> bool {
        self.identity.is_some() || self.user.is_some()
    }

    fn options(&self, endpoint: &str) -> Result<ConnectOptions, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE, CONNECT_TIMEOUT)
            // Without a running call, etcd counts a ping as one too many.
            .with_keep_alive_while_idle(false)
            // A member that is cut off from the others would serve stale data.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = &self.user {
            options = options.with_user(user, password);
        }
        if endpoint.starts_with("https://") {
            let ca = self.ca.as_ref().ok_or_else(|| {
                Error::Secret(format!(
                    "{FIELD}.secretRef: {endpoint} needs a Secret with etcd-ca, the authority that signed etcd's certificate"
                ))
            })?;
            let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
            if let Some((certificate, key)) = &self.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            options = options.with_tls(tls);
        }
        Ok(options)
    }
}

fn invalid(secret: &str, what: &str) -> Error {
    Error::Secret(format!("{FIELD}.secretRef: Secret {secret} {what}"))
}

/// The source of endpoints and credentials.
pub(super) enum Source {
    /// The object itself, of an etcd that requires no credentials.
    Spec(Vec<String>),
    /// A Secret in the operator's namespace.
    Secret {
        /// The Secret's namespace.
        secrets: Box<Api<Secret>>,
        /// Its namespace: the operator's.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
}

impl Source {
    async fn read(&self) -> Result<Credentials, Error> {
        let (secrets, namespace, name) = match self {
            Self::Spec(endpoints) => return Ok(Credentials::anonymous(endpoints.clone())),
            Self::Secret { secrets, namespace, name } => (secrets, namespace, name),
        };
        let secret = secrets.get_opt(name).await.map_err(|source| Error::Kube {
            action: "get the Secret of spec.datastore.etcd.secretRef",
            source,
        })?;
        let secret = secret
            .ok_or_else(|| invalid(name, &format!("does not exist in namespace {namespace}")))?;
        Credentials::from_secret(name, &secret.data.unwrap_or_default())
    }
}

/// A connection to one member at a time: with several at once, the failed one would be unknown.
pub(super) struct Connection {
    source: Source,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The members, as they were read last.
    endpoints: Vec<String>,
    /// The member that is used, by its place.
    member: usize,
    open: Option<Open>,
}

impl State {
    fn endpoint(&self) -> &str {
        self.endpoints.get(self.member).map_or("", String::as_str)
    }
}

/// The member that failed.
struct Failed {
    endpoint: String,
    /// True if it was shown no certificate.
    anonymous: bool,
    /// Number of members.
    members: usize,
}

struct Open {
    client: Client,
    credentials: Credentials,
    /// The time at which the Secret was last read.
    read: Instant,
    /// Distinguishes connections.
    number: u64,
}

impl Connection {
    pub fn new(source: Source) -> Self {
        Self { source, state: Mutex::default() }
    }

    /// Calls etcd: the member that answered last, then each other one, all within the deadline.
    pub async fn call<T, F>(&self, mut call: impl FnMut(Client) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let tries = async {
            let mut tried = 0;
            loop {
                let answer = async {
                    let (client, number) = self.client().await?;
                    let result = call(client).await;
                    Ok::<_, Error>((result, number))
                };
                let (failed, number, final_) = match timeout(MEMBER_DEADLINE, answer).await {
                    Ok(Ok((Ok(value), _))) => return Ok(value),
                    Ok(Ok((Err(error), number))) => {
                        let (text, elsewhere) = explain(&error);
                        (text, Some(number), !elsewhere)
                    }
                    // The error is not about a member.
                    Ok(Err(error @ (Error::Secret(_) | Error::Kube { .. }))) => return Err(error),
                    Ok(Err(error)) => (error.to_string(), None, false),
                    Err(_) => {
                        let text = format!("no answer within {} s", MEMBER_DEADLINE.as_secs());
                        (text, None, false)
                    }
                };
                let Failed { endpoint, anonymous, members } = self.failed(number).await;
                tried += 1;
                if final_ || tried >= members {
                    let hint = hint(&endpoint, &failed, anonymous);
                    return Err(Error::Etcd(format!("{endpoint}: {failed}{hint}")));
                }
            }
        };
        timeout(CALL_DEADLINE, tries).await.unwrap_or_else(|_| {
            let text = format!("no answer within {} s from any member", CALL_DEADLINE.as_secs());
            Err(Error::Etcd(text))
        })
    }

    /// The connection that is open, or a new one; and its number.
    async fn client(&self) -> Result<(Client, u64), Error> {
        let mut state = self.state.lock().await;
        if let Some(open) = &mut state.open {
            if open.read.elapsed() < SECRET_AGE {
                return Ok((open.client.clone(), open.number));
            }
            if self.source.read().await? == open.credentials {
                open.read = Instant::now();
                return Ok((open.client.clone(), open.number));
            }
        }
        let number = state.open.take().map_or(0, |open| open.number) + 1;
        let credentials = self.source.read().await?;
        if state.endpoints != credentials.endpoints {
            state.endpoints.clone_from(&credentials.endpoints);
            state.member = 0;
        }
        let endpoint = state.endpoint();
        let options = credentials.options(endpoint)?;
        let client = Client::connect([endpoint], Some(options)).await;
        let client = client.map_err(|error| Error::Etcd(explain(&error).0))?;
        let read = Instant::now();
        state.open = Some(Open { client: client.clone(), credentials, read, number });
        Ok((client, number))
    }

    /// Closes a connection that failed, unless there is a newer one, and continues with the next
    /// member.
    async fn failed(&self, number: Option<u64>) -> Failed {
        let mut state = self.state.lock().await;
        let endpoint = state.endpoint().to_owned();
        let members = state.endpoints.len();
        let identity = |open: &Open| open.credentials.identity.is_some();
        let anonymous = !state.open.as_ref().is_some_and(identity);
        let current = state.open.as_ref().map(|open| open.number);
        if number.is_none() || number == current {
            state.open = None;
            state.member = (state.member + 1) % members.max(1);
        }
        Failed { endpoint, anonymous, members }
    }

    /// Closes the open connection, so that the next call connects again.
    pub async fn close(&self) {
        self.state.lock().await.open = None;
    }
}

/// The limit on the size of one read.
pub(super) fn reader(client: &Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(MAX_ANSWER)
}

/// An error for a person, and whether another member may do better.
pub(super) fn explain(error: &etcd_client::Error) -> (String, bool) {
    /// Canceled, unknown, deadline exceeded, internal, unavailable: numbers of gRPC.
    const ELSEWHERE: [i32; 5] = [1, 2, 4, 13, 14];
    match error {
        etcd_client::Error::GRpcStatus(status) => {
            let text = chain(status.message(), status.source());
            (text, ELSEWHERE.contains(&(status.code() as i32)))
        }
        etcd_client::Error::TransportError(error) => {
            (chain(&error.to_string(), error.source()), true)
        }
        etcd_client::Error::IoError(error) => (error.to_string(), true),
        other => (other.to_string(), false),
    }
}

/// Explains a connection that was closed without a message: with TLS 1.3 a server refuses a client
/// only after the client believes to be connected.
fn hint(endpoint: &str, failed: &str, anonymous: bool) -> &'static str {
    let hung_up = ["connection closed", "reset", "roken pipe", "CertificateRequired"];
    if !endpoint.starts_with("https://") || !hung_up.iter().any(|text| failed.contains(text)) {
        ""
    } else if anonymous {
        "; etcd may demand a client certificate, and the Secret has no etcd-cert and etcd-key"
    } else {
        "; etcd may have refused the client certificate (etcd-cert)"
    }
}

/// A text with the causes that it does not name: "transport error" alone does not help.
fn chain(text: &str, mut source: Option<&(dyn std::error::Error + 'static)>) -> String {
    let mut all = text.to_owned();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !text.is_empty() && !all.contains(&text) {
            all = format!("{all}: {text}");
        }
        source = cause.source();
    }
    all
}

#[cfg(test)]
mod tests;
