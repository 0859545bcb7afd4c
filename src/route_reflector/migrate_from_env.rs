//! Conversion of the original operator's environment into a [`crate::api::RouteReflectorSet`].
use std::fmt::Write as _;

use serde_json::json;

use super::election::{Pool, Ratio};
use crate::api::route_reflector_set::Rounding;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

/// The errors in the environment: one line for each variable, with its name first.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Wrong(pub Vec<String>);

/// The default in its code. Its README states 25, but a migration alone should not raise the number
/// of reflectors.
const MAX: usize = 10;

/// Its default.
const RATIO: &str = "0.005";

/// The minimum and maximum of `spec.transition.wait`, in seconds.
const WAIT: (u64, u64) = (60, 24 * 60 * 60);

/// The Secret for the client of etcd.
const SECRET: &str = "calico-etcd";

/// The environment, and its errors.
struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    wrong: Vec<String>,
}

impl Environment<'_> {
    /// A variable; one that is empty counts as not set.
    fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn wrong(&mut self, name: &str, what: impl std::fmt::Display) {
        self.wrong.push(format!("{name}: {what}"));
    }

    /// A whole number within bounds; each error names its own variable.
    fn number(&mut self, name: &str, default: usize, (least, most): (usize, usize)) -> usize {
        let Some(text) = self.get(name) else { return default };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                self.wrong(name, format!("{text:?} is not a number from {least} to {most}"));
                default
            }
        }
    }
}

/// YAML, line by line.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, indent: usize, text: impl std::fmt::Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{:indent$}{text}", "");
    }

    fn field(&mut self, indent: usize, name: &str, value: impl serde::Serialize) {
        self.line(indent, format_args!("{name}: {}", quoted(&value)));
    }
}

/// A value as JSON, which is YAML and quotes whatever needs it. Characters that JSON leaves as they
/// are, and that YAML refuses or takes for the end of a line, are escaped: nothing ends a comment.
fn quoted(value: &impl serde::Serialize) -> String {
    let mut text = String::new();
    for c in json!(value).to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

/// Returns the object, with comments where it differs from the original's behavior.
///
/// # Errors
/// Every variable that does not mean anything. Values that made the original panic but have a
/// meaning are converted.
pub fn from_env(lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Wrong> {
    let mut env = Environment { lookup, wrong: Vec::new() };
    let mut text = Text::default();
    let zone_label = env.get("ROUTE_REFLECTOR_ZONE_LABEL").unwrap_or_default();
    let topology = env.get("ROUTE_REFLECTOR_TOPOLOGY").unwrap_or_else(|| "simple".into());
    let multi = topology == "multi";
    head(&mut text, multi);
    if !["simple", "single", "multi"].contains(&&*topology) {
        text.line(2, format_args!("# {topology:?} meant simple, as did everything but multi."));
    }
    if multi && zone_label.is_empty() {
        text.line(2, "# It was multi, with a cluster id for each reflector, which makes the number of paths explode;");
        text.line(2, "# and without zones there is nothing to divide the ids by.");
        text.line(2, "topology: Simple");
    } else if multi {
        text.line(2, "# Needs nodes in two to four zones: a cluster id for each zone, not for each reflector, whose");
        text.line(2, "# number of paths explodes. In more zones: Simple.");
        text.line(2, "topology: Multi");
    } else {
        text.line(2, "topology: Simple");
    }
    text.field(2, "zoneLabel", &zone_label);
    node_label(&mut env, &mut text, multi);
    let incompatible = env.get("ROUTE_REFLECTOR_INCOMPATIBLE_NODE_LABELS").unwrap_or_default();
    count(&mut env, &mut text, !multi && !zone_label.is_empty(), !incompatible.is_empty());
    candidates(&mut env, &mut text, &incompatible);
    cluster_id(&mut env, &mut text, multi);
    transition(&mut env, &mut text);
    datastore(&mut env, &mut text);
    if env.wrong.is_empty() { Ok(text.0) } else { Err(Wrong(env.wrong)) }
}

fn head(text: &mut Text, multi: bool) {
    text.line(0, "# What the environment of calico-route-reflector-operator means. Stop that operator before this is");
    text.line(0, "# applied: both would write the same labels. Its reflectors are adopted. Its BGPPeers are not touched");
    text.line(0, "# until they are handed over:");
    let names = if multi { "rrs-to-rrs" } else { "rrs-to-rrs peer-to-rrs-1" };
    text.line(
        0,
        format_args!(
            "#   kubectl label bgppeer {names} app.kubernetes.io/managed-by=traffic-operator"
        ),
    );
    if multi {
        text.line(0, "# Once the condition Converged is True, delete those of single nodes, peer-to-rrs-<number>-<uid>.");
    }
    text.line(0, "# mode: Observe only says what it would do.");
    text.line(0, "apiVersion: traffic.example.com/v1alpha1");
    text.line(0, "kind: RouteReflectorSet");
    text.line(0, "metadata:");
    text.line(2, "name: route-reflectors");
    text.line(0, "spec:");
}

fn node_label(env: &mut Environment, text: &mut Text, multi: bool) {
    const NAME: &str = "ROUTE_REFLECTOR_NODE_LABEL";
    let label = env.get(NAME).unwrap_or_else(|| "calico-route-reflector=".into());
    let (key, value) = label.split_once('=').unwrap_or((&label, ""));
    if !is_key(key) || value.contains('=') {
        env.wrong(NAME, format!("{label:?} is neither a label key nor key=value"));
    }
    if multi {
        text.line(2, "# Adopted nodes keep the value they have.");
    }
    let label = if value.is_empty() { key.to_owned() } else { format!("{key}={value}") };
    text.field(2, "nodeLabel", label);
}

fn is_key(key: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !key.is_empty() && key.chars().all(letter)
}

fn count(env: &mut Environment, text: &mut Text, per_zone: bool, incompatible: bool) {
    let set = env.get("ROUTE_REFLECTOR_MAX").is_some();
    let wrong = env.wrong.len();
    let min = env.number("ROUTE_REFLECTOR_MIN", 3, (1, 50));
    let max = env.number("ROUTE_REFLECTOR_MAX", MAX, (5, 50));
    if min > max && env.wrong.len() == wrong {
        let whose = if set { "ROUTE_REFLECTOR_MAX" } else { "the default of ROUTE_REFLECTOR_MAX" };
        env.wrong("ROUTE_REFLECTOR_MIN", format!("{min} is greater than {max}, {whose}"));
    }
    let ratio = ratio(env);
    text.line(2, "count:");
    if per_zone {
        text.line(4, "# With a zone label its topology simple counted in each zone.");
        text.line(4, "scope: PerZone");
    }
    if incompatible {
        text.line(
            4,
            "# Of all ready nodes: they are all clients. The original left incompatible ones out.",
        );
    }
    if is_more_in_32_bits(&ratio) {
        text.line(4, "# The original kept it in 32 bits, where it is a little more: at exact multiples it had one too many.");
    }
    text.field(4, "ratio", ratio);
    text.field(4, "min", min);
    if !set {
        text.line(
            4,
            "# ROUTE_REFLECTOR_MAX is not set: 10 in the original's code, 25 in its README.",
        );
    }
    text.field(4, "max", max);
}

fn ratio(env: &mut Environment) -> String {
    const NAME: &str = "ROUTE_REFLECTOR_RATIO";
    let Some(text) = env.get(NAME) else { return RATIO.into() };
    // It read 5e-3 too.
    let decimal = |text: &str| text.parse::<Ratio>().ok();
    let ratio = decimal(&text)
        .or_else(|| text.parse::<f64>().ok().and_then(|number| decimal(&number.to_string())));
    // At least 1 of 1,000, at most 1 of 20: its bounds, exactly.
    let fits =
        |ratio: &Ratio| ratio.of(1000, Rounding::Floor) >= 1 && ratio.of(20, Rounding::Ceil) <= 1;
    if let Some(ratio) = ratio.filter(fits) {
        return ratio.to_string();
    }
    env.wrong(NAME, format!("{text:?} is not a number from 0.001 to 0.05"));
    RATIO.into()
}

fn is_more_in_32_bits(ratio: &str) -> bool {
    match (ratio.parse::<f32>(), ratio.parse::<f64>()) {
        (Ok(single), Ok(double)) => f64::from(single) > double,
        _ => false,
    }
}

fn candidates(env: &mut Environment, text: &mut Text, incompatible: &str) {
    const NAME: &str = "ROUTE_REFLECTOR_INCOMPATIBLE_NODE_LABELS";
    let labels: Vec<_> =
        incompatible.split(',').map(str::trim).filter(|label| !label.is_empty()).collect();
    if labels.is_empty() {
        return;
    }
    text.line(2, "candidates:");
    text.line(4, "nodeSelector:");
    text.line(6, "matchExpressions:");
    for label in labels {
        let (key, value) = match label.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (label, None),
        };
        if !is_key(key) || value.is_some_and(|value| value.contains('=')) {
            env.wrong(NAME, format!("{label:?} is neither a label key nor key=value"));
        }
        text.line(8, format_args!("- key: {}", quoted(&key)));
        match value {
            Some(value) => {
                text.line(10, "operator: NotIn");
                text.field(10, "values", [value]);
            }
            None => text.line(10, "operator: DoesNotExist"),
        }
    }
}

fn cluster_id(env: &mut Environment, text: &mut Text, multi: bool) {
    const NAME: &str = "ROUTE_REFLECTOR_CLUSTER_ID";
    let id = env.get(NAME).unwrap_or_else(|| "224.0.0.0".into());
    // Its first versions wrote %d where later ones wrote 0.
    let template = id.replace("%d", "0");
    let filled = multi || template != id;
    let octets: Vec<_> = template.split('.').collect();
    let kept = octets.iter().take_while(|octet| **octet != "0").count();
    let pool = if filled && kept < octets.len() {
        format!("{template}/{}", kept * 8)
    } else {
        template.clone()
    };
    match Pool::parse(&pool) {
        _ if octets.len() != 4 => env.wrong(NAME, format!("{id:?} is not an IPv4 address")),
        Err(_) => env.wrong(NAME, format!("{id:?} is not an IPv4 address")),
        Ok(_) if kept == 0 => env.wrong(NAME, format!("{id:?} cannot be a cluster id")),
        Ok(pool) if !pool.has_ids() => env.wrong(NAME, format!("{id:?} cannot be a cluster id")),
        Ok(_) if multi && kept == octets.len() => {
            env.wrong(
                NAME,
                format!("{id:?} has no \".0\" in whose place topology multi could write"),
            );
        }
        Ok(_) => {}
    }
    text.line(2, "clusterID:");
    if filled {
        text.line(4, "# What the original wrote in the places of 0 is within this range.");
    }
    text.field(4, "pool", pool);
}

fn transition(env: &mut Environment, text: &mut Text) {
    const NAME: &str = "ROUTE_REFLECTOR_WAIT_TIMEOUT";
    let seconds = env.get(NAME).map(|text| text.parse::<u64>().map_err(|_| text));
    text.line(2, "transition:");
    text.line(4, "# The original knew nothing of sessions. With prometheus-bird-exporter on the nodes leave gate and");
    text.line(4, "# wait out: then the sessions are counted before anything is taken away.");
    text.line(4, "gate: Wait");
    match seconds {
        None | Some(Ok(0)) => text.line(4, "wait: 90s"),
        Some(Err(found)) => env.wrong(NAME, format!("{found:?} is not a number of seconds")),
        Some(Ok(seconds)) => {
            let (least, most) = WAIT;
            if seconds < least {
                text.line(4, format_args!("# It was {seconds} s; sessions by selector need up to 30 s, and 60s is the least."));
            } else if seconds > most {
                text.line(4, format_args!("# It was {seconds} s; a day is the most."));
            }
            text.line(4, format_args!("wait: {}s", seconds.clamp(least, most)));
        }
    }
}

fn datastore(env: &mut Environment, text: &mut Text) {
    const NAME: &str = "DATASTORE_TYPE";
    match env.get(NAME).as_deref() {
        // If unset, the original did not start, although its README calls incluster the default.
        None | Some("incluster" | "kubernetes") => {
            text.line(2, "datastore:");
            text.line(4, "type: Kubernetes");
        }
        Some("etcdv3" | "etcd") => etcd(env, text),
        Some(other) => {
            let found = format!("{other:?} is none of incluster, kubernetes and etcdv3");
            env.wrong(NAME, found);
        }
    }
}

fn etcd(env: &mut Environment, text: &mut Text) {
    const NAME: &str = "ETCD_ENDPOINTS";
    let endpoints = env.get(NAME).unwrap_or_default();
    let endpoints: Vec<_> = endpoints.split(',').map(str::trim).filter(|e| !e.is_empty()).collect();
    if endpoints.is_empty() && env.get("ETCD_DISCOVERY_SRV").is_some() {
        env.wrong("ETCD_DISCOVERY_SRV", "is not supported; name the members in ETCD_ENDPOINTS");
    } else if endpoints.is_empty() {
        env.wrong(NAME, "is needed with DATASTORE_TYPE etcdv3");
    }
    for endpoint in &endpoints {
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            env.wrong(NAME, format!("{endpoint:?} is not a URL with http or https"));
        }
    }
    text.line(2, "datastore:");
    text.line(4, "type: etcd");
    text.line(4, "etcd:");
    let files: Vec<_> = [
        ("etcd-ca", "ETCD_CA_CERT_FILE"),
        ("etcd-cert", "ETCD_CERT_FILE"),
        ("etcd-key", "ETCD_KEY_FILE"),
    ]
    .into_iter()
    .filter_map(|(key, name)| Some((key, env.get(name)?)))
    .collect();
    let user = env.get("ETCD_USERNAME").is_some();
    if files.is_empty() && !user {
        text.field(6, "endpoints", endpoints);
        return;
    }
    let secret = user || files.iter().any(|(key, _)| *key != "etcd-ca");
    if secret && let Some(plain) = endpoints.iter().find(|url| url.starts_with("http://")) {
        env.wrong(NAME, format!("{plain:?} would get credentials in the clear; use https"));
    }
    text.line(6, "# A Secret in the operator's namespace, from what the variables name:");
    text.line(
        6,
        format_args!(
            "#   kubectl -n {} create secret generic {SECRET} \\",
            crate::manifests::NAMESPACE
        ),
    );
    // Endpoints are stored with the credentials, so that no user can redirect the credentials.
    let list = quoted(&endpoints.join(","));
    text.line(6, format_args!("#     --from-literal=endpoints={list} \\"));
    for (key, file) in files {
        // A path may contain anything.
        text.line(6, format_args!("#     --from-file={key}={} \\", quoted(&file)));
    }
    if user {
        text.line(6, "#     --from-literal=username=\"$ETCD_USERNAME\" --from-literal=password=\"$ETCD_PASSWORD\" \\");
    }
    text.line(6, "#     --dry-run=client -o yaml | kubectl apply -f -");
    text.line(6, "secretRef:");
    text.field(8, "name", SECRET);
}
