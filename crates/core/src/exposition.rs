//! The formats of a page of metrics: which one a reader asks for, and the older text format, made from
//! OpenMetrics as the client library writes it.
//!
//! See <https://prometheus.io/docs/instrumenting/exposition_formats/>.

/// A format, from what every reader knows to what has most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// The text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Messages of Prometheus, one after the other, each with its length.
    Protobuf,
}

impl Format {
    /// Returns the format among `offers` that the header `Accept` prefers; of equal ones the richest,
    /// and [`Self::Text`] if it names none.
    #[must_use]
    pub fn preferred(accept: &str, offers: &[Self]) -> Self {
        let mut best = (0.0_f32, Self::Text);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let parameter = |name: &str| {
                let found =
                    parameters.iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim().trim_matches('"'))
            };
            let is_delimited = || {
                parameter("proto") == Some("io.prometheus.client.MetricFamily")
                    && parameter("encoding").is_none_or(|encoding| encoding == "delimited")
            };
            let format = match media_type.as_str() {
                "text/plain" => Self::Text,
                "application/openmetrics-text" => Self::OpenMetrics,
                "application/vnd.google.protobuf" if is_delimited() => Self::Protobuf,
                _ => continue,
            };
            let quality = parameter("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
            if quality > 0.0 && offers.contains(&format) && (quality, format) > best {
                best = (quality, format);
            }
        }
        best.1
    }

    /// The header `Content-Type` of a page.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }
}

/// Rewrites a page of OpenMetrics as text 0.0.4, piece by piece: in it a family has the name of its
/// series, there are fewer types, and no mark of the end.
#[derive(Debug, Default)]
pub struct Rewriter {
    /// The beginning of a line that continues in the next piece.
    begun: Vec<u8>,
    /// The help of the next family, whose type follows.
    help: Option<String>,
}

impl Rewriter {
    /// Returns the lines that end in this piece.
    pub fn rewrite(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut page = Vec::with_capacity(piece.len());
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                self.line(&line, &mut page);
            }
        }
        page
    }

    /// Adds a line, which ends with a line break.
    fn line(&mut self, line: &[u8], page: &mut Vec<u8>) {
        let comment = line.strip_prefix(b"# ").and_then(|line| std::str::from_utf8(line).ok());
        let Some(comment) = comment else {
            page.extend_from_slice(line);
            return;
        };
        if let Some(help) = comment.strip_prefix("HELP ") {
            self.help = Some(help.to_owned());
            return;
        }
        let family = comment.strip_prefix("TYPE ").and_then(|rest| rest.trim_end().split_once(' '));
        let Some((name, kind)) = family else { return };
        let (suffix, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "stateset" => ("", "gauge"),
            "gauge" | "histogram" | "summary" => ("", kind),
            _ => ("", "untyped"),
        };
        if let Some((_, help)) = self.help.take().as_ref().and_then(|help| help.split_once(' ')) {
            page.extend_from_slice(format!("# HELP {name}{suffix} {help}").as_bytes());
        }
        page.extend_from_slice(format!("# TYPE {name}{suffix} {kind}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_chooses_the_format() {
        use Format::{OpenMetrics, Protobuf, Text};
        const FAMILY: &str =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
        for (accept, expected) in [
            (String::new(), Text),
            ("*/*".into(), Text),
            ("text/plain;version=0.0.4".into(), Text),
            ("application/openmetrics-text".into(), OpenMetrics),
            ("application/openmetrics-text;q=0".into(), Text),
            (format!("{FAMILY};encoding=delimited"), Protobuf),
            (format!("{FAMILY};encoding=delimited;q=0"), Text),
            (format!("{FAMILY};encoding=text"), Text),
            ("application/vnd.google.protobuf;proto=other;encoding=delimited".into(), Text),
            // Prometheus 3 with and without native histograms, and Telegraf.
            (
                format!(
                    "{FAMILY};encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;\
                     escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
                ),
                Protobuf,
            ),
            (
                "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3,*/*;q=0.1"
                    .into(),
                OpenMetrics,
            ),
            (format!("{FAMILY};encoding=compact-text;q=0.7,text/plain;version=0.0.4;q=0.3"), Text),
            (format!("application/openmetrics-text;q=0.9,{FAMILY};q=0.1"), OpenMetrics),
        ] {
            let chosen = Format::preferred(&accept, &[Text, OpenMetrics, Protobuf]);
            assert_eq!(chosen, expected, "{accept}");
            assert_ne!(Format::preferred(&accept, &[Text, OpenMetrics]), Protobuf, "{accept}");
        }
    }

    #[test]
    fn a_family_has_the_name_of_its_series_wherever_a_piece_ends() {
        let open = "\
# HELP a_requests Requests: \"all\".
# TYPE a_requests counter
# UNIT a_requests requests
a_requests_total{x=\"1\"} 3
# HELP b_seconds Time in µs.
# TYPE b_seconds histogram
b_seconds_bucket{le=\"+Inf\"} 1
b_seconds_sum 0.5
b_seconds_count 1
# TYPE c gauge
c{d=\"# EOF\"} 1.0
# HELP e What.
# TYPE e info
e_info{f=\"g\"} 1
# EOF
";
        let text = "\
# HELP a_requests_total Requests: \"all\".
# TYPE a_requests_total counter
a_requests_total{x=\"1\"} 3
# HELP b_seconds Time in µs.
# TYPE b_seconds histogram
b_seconds_bucket{le=\"+Inf\"} 1
b_seconds_sum 0.5
b_seconds_count 1
# TYPE c gauge
c{d=\"# EOF\"} 1.0
# HELP e_info What.
# TYPE e_info gauge
e_info{f=\"g\"} 1
";
        for size in 1..open.len() {
            let mut rewriter = Rewriter::default();
            let pieces = open.as_bytes().chunks(size);
            let page: Vec<u8> = pieces.flat_map(|piece| rewriter.rewrite(piece)).collect();
            assert_eq!(String::from_utf8(page).unwrap(), text, "{size}");
        }
    }
}
