//! The files read before each request: tokens and certificates change while the process runs, and a
//! Secret may be mounted after its pod has started.
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderName, HeaderValue, header};

use super::{
    Class, QueryError,
    config::{Auth, EndpointConfig, Value},
};

/// Maximum size of a file in bytes: a Secret holds one mebibyte.
const MAX_FILE: u64 = 1 << 20;

/// The current contents of an endpoint's files. Without `Debug` on purpose.
pub(super) struct Secrets {
    /// Those of the configuration, and `Authorization`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub tls: TlsFiles,
}

/// The contents of the TLS files; a client is built from them, and rebuilt when they change.
#[derive(Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub ca: Option<Vec<u8>>,
    /// Certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Reports whether there is anything to read.
pub(super) fn any(config: &EndpointConfig) -> bool {
    !matches!(config.auth, Auth::None)
        || config.tls.ca_file.is_some()
        || config.tls.identity.is_some()
        || config.headers.iter().any(|(_, value)| matches!(value, Value::File(_)))
}

/// Reads all files of an endpoint; blocks.
///
/// # Errors
/// When one is missing, empty or unusable: the error names the field and the file, never the
/// content.
pub(super) fn read(config: &EndpointConfig) -> Result<Secrets, QueryError> {
    let unauthorized =
        |field: &str, path: &Path| contents(config, Class::Unauthorized, field, path);
    let mut headers = Vec::with_capacity(config.headers.len() + 1);
    let authorization = match &config.auth {
        Auth::None => None,
        Auth::Bearer(path) => {
            let field = "bearerTokenFile";
            let token = text(unauthorized(field, path)?)
                .and_then(|token| HeaderValue::from_str(&format!("Bearer {}", token.trim())).ok());
            Some(token.ok_or_else(|| not_a_header(config, field, path))?)
        }
        Auth::Basic { username, password_file } => {
            let field = "basicAuth.passwordFile";
            let login = text(unauthorized(field, password_file)?)
                .map(|password| BASE64_STANDARD.encode(format!("{username}:{password}")))
                .and_then(|login| HeaderValue::from_str(&format!("Basic {login}")).ok());
            Some(login.ok_or_else(|| not_a_header(config, field, password_file))?)
        }
    };
    if let Some(mut value) = authorization {
        value.set_sensitive(true);
        headers.push((header::AUTHORIZATION, value));
    }
    for (name, value) in &config.headers {
        let value = match value {
            Value::Literal(value) => value.clone(),
            Value::File(path) => {
                let field = format!("headerFiles.{name}");
                let mut value = text(unauthorized(&field, path)?)
                    .and_then(|text| HeaderValue::from_str(&text).ok())
                    .ok_or_else(|| not_a_header(config, &field, path))?;
                value.set_sensitive(true);
                value
            }
        };
        headers.push((name.clone(), value));
    }
    let ca = config.tls.ca_file.as_ref();
    let ca = ca.map(|path| contents(config, Class::Unreachable, "tls.caFile", path)).transpose()?;
    let identity = match &config.tls.identity {
        Some((cert, key)) => {
            Some((unauthorized("tls.certFile", cert)?, unauthorized("tls.keyFile", key)?))
        }
        None => None,
    };
    Ok(Secrets { headers, tls: TlsFiles { ca, identity } })
}

/// Returns a text without the line end that editors and `echo` add.
fn text(bytes: Vec<u8>) -> Option<String> {
    let mut text = String::from_utf8(bytes).ok()?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Some(text)
}

fn contents(
    config: &EndpointConfig,
    class: Class,
    field: &str,
    path: &Path,
) -> Result<Vec<u8>, QueryError> {
    bounded(path).map_err(|error| complaint(config, class, field, path, &error.to_string()))
}

fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is no file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other("is larger than 1 MiB"));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(io::Error::other("is empty"));
    }
    Ok(bytes)
}

fn not_a_header(config: &EndpointConfig, field: &str, path: &Path) -> QueryError {
    let what = "holds characters that cannot be sent in a header";
    complaint(config, Class::Unauthorized, field, path, what)
}

/// An error about a file.
pub(super) fn complaint(
    config: &EndpointConfig,
    class: Class,
    field: &str,
    path: &Path,
    what: &str,
) -> QueryError {
    let message = format!("endpoint {}: {field} {}: {what}", config.name, path.display());
    QueryError::new(class, message)
}
