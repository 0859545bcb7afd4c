//! Parses the values of flags; an error names what is valid.
use std::time::Duration;

use http::Uri;

/// Parses a duration greater than zero.
///
/// # Errors
/// When it is zero, or no duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than zero".into()) } else { Ok(duration) }
}

/// Accepts only https, because the token is sent there.
pub(super) fn https(text: &str) -> Result<Uri, String> {
    address(text, "https")
}

/// Accepts only http: the posted data is not secret, and the server is close.
pub(super) fn http(text: &str) -> Result<Uri, String> {
    address(text, "http")
}

fn address(text: &str, scheme: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let host = uri.host().is_some_and(|host| !host.is_empty());
    if uri.scheme_str() != Some(scheme) || !host {
        return Err(format!("must begin with {scheme}://"));
    }
    // A port out of range reads as none, and would be the scheme's own.
    let port = uri.authority().is_some_and(|to| {
        let address = to.as_str().rsplit('@').next().unwrap_or_default();
        address == to.host() || to.port_u16().is_some()
    });
    if port { Ok(uri) } else { Err("invalid port number".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_a_host_and_a_port_that_is_one() {
        for good in ["http://a", "http://a:1/x?y=z", "http://[::1]:80/", "http://u:p@a/"] {
            assert!(http(good).is_ok(), "{good}");
            assert!(https(good).is_err(), "{good}");
            assert!(https(&good.replacen("http", "https", 1)).is_ok(), "{good}");
        }
        for bad in ["", "a", "a:80", "/x", "http:///x", "http://a:99999/", "http://a b/"] {
            assert!(http(bad).is_err(), "{bad}");
        }
    }
}
