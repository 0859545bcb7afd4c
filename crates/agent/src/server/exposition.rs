//! The page `/metrics` in the requested form: native histograms exist only in protobuf.
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use prometheus_client::{
    encoding::{prometheus_protobuf, text},
    registry::Registry,
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The page, or 500: a truncated page could pass as a complete one.
pub(crate) fn page(registry: &Registry, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    let page = if wants_protobuf(&accept) { protobuf(registry) } else { open_metrics(registry) };
    match page {
        Ok((content_type, body)) => super::response(StatusCode::OK, content_type, body),
        Err(error) => {
            let what = format!("cannot encode: {error}\n");
            super::text(StatusCode::INTERNAL_SERVER_ERROR, what)
        }
    }
}

type Page = Result<(&'static str, Vec<u8>), String>;

fn protobuf(registry: &Registry) -> Page {
    let page = prometheus_protobuf::encode_to_vec(registry);
    page.map(|page| (PROTOBUF, page)).map_err(|error| error.to_string())
}

fn open_metrics(registry: &Registry) -> Page {
    let mut page = String::new();
    text::encode(&mut page, registry).map_err(|error| error.to_string())?;
    Ok((OPEN_METRICS, page.into_bytes()))
}

/// Reports whether the request names protobuf and does not prefer text. A request without a named
/// type (`*/*`) gets text, for people.
fn wants_protobuf(accept: &str) -> bool {
    let mut protobuf: f32 = 0.0;
    let mut text: f32 = 0.0;
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| {
            let found = parameters.iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().trim_matches('"'))
        };
        let quality = parameter("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
        match media_type.as_str() {
            "application/vnd.google.protobuf" => {
                let family = parameter("proto") == Some("io.prometheus.client.MetricFamily");
                if family && parameter("encoding").is_none_or(|encoding| encoding == "delimited") {
                    protobuf = protobuf.max(quality);
                }
            }
            "application/openmetrics-text" | "text/plain" => text = text.max(quality),
            _ => {}
        }
    }
    protobuf > 0.0 && protobuf >= text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_chooses_the_form() {
        const FAMILY: &str =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
        for (accept, expected) in [
            (String::new(), false),
            ("*/*".into(), false),
            (format!("{FAMILY};encoding=delimited"), true),
            (format!("{FAMILY};encoding=delimited;q=0"), false),
            (format!("{FAMILY};encoding=text"), false),
            ("application/vnd.google.protobuf;proto=other;encoding=delimited".into(), false),
            // Prometheus 3 with and without native histograms.
            (
                format!(
                    "{FAMILY};encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;\
                     escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
                ),
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3,*/*;q=0.1"
                    .into(),
                false,
            ),
            (format!("application/openmetrics-text;q=0.9,{FAMILY};q=0.1"), false),
        ] {
            assert_eq!(wants_protobuf(&accept), expected, "{accept}");
        }
    }
}
