//! A spec, read and checked; and the namespaces that no `NetworkProber` touches.
use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::ResourceRequirements,
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::ResourceExt;

use crate::{
    agent::{budget::TARGETS, pinglist::Destination},
    api::{
        NetworkProber,
        network_prober::{Delivery, FailurePolicy, Mode, Monitoring, Protocol, Target},
        parse_quantity,
    },
    controller::Error,
    extended_resources::is_extended,
    placement::ring::Neighbors,
    selector::Selector,
    webhook::configuration::is_excluded,
};

/// The most pods of a full mesh: 9,900 pairs, 280,000 series of the original metric.
pub const LARGEST_MESH: usize = 100;

/// The most labels, and the most expressions, of a selector: the API server evaluates those of
/// every webhook for every pod.
const LARGEST_SELECTOR: usize = 32;

/// The most values of an expression.
const LARGEST_EXPRESSION: usize = 64;

/// The namespaces that are never touched.
#[derive(Clone, Debug)]
pub struct Tenancy {
    operator: String,
}

impl Tenancy {
    /// With the operator in this namespace.
    #[must_use]
    pub fn of(operator: &str) -> Self {
        Self { operator: operator.into() }
    }

    /// The operator's namespace.
    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// Reports whether a namespace is never touched.
    #[must_use]
    pub fn is_excluded(&self, namespace: &str) -> bool {
        is_excluded(namespace, &self.operator)
    }
}

/// Older first, ties by namespace and name.
pub type Rank = (Option<i64>, String, String);

/// A spec whose text fields were read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the object.
    pub namespace: String,
    /// Name of the `NetworkProber`.
    pub name: String,
    /// UID of the `NetworkProber`.
    pub uid: String,
    /// Decides which of two that select the same pod gets it: the lower.
    pub rank: Rank,
    /// The selector of pods that get an agent.
    pub pods: Selector,
    /// The selector as it was written, for the API server.
    pub pod_selector: LabelSelector,
    /// The namespaces; `None` is its own.
    pub namespaces: Option<Selector>,
    /// The selector as written, for the API server.
    pub namespace_selector: Option<LabelSelector>,
    /// The place where agents run.
    pub mode: Mode,
    /// Port on which agents answer probes.
    pub http_port: u16,
    /// Port on which agents serve metrics.
    pub prometheus_port: u16,
    /// Each peer is probed once in this time.
    pub period: Duration,
    /// A probe without an answer for this long has failed.
    pub timeout: Duration,
    /// The author's image, if it is not our own.
    pub image: Option<String>,
    /// The protocols of the probes.
    pub probes: Vec<Protocol>,
    /// Number of pods that probe each pod.
    pub neighbors: Neighbors,
    /// The delivery of lists to agents.
    pub delivery: Delivery,
    /// True if the original's metric is exported too.
    pub original_metrics: bool,
    /// What agents probe in addition to their peers.
    pub targets: Vec<Destination>,
    /// The namespace whose agents alone probe them; `None` if all do.
    pub targets_in: Option<String>,
    /// The API server's behavior without us.
    pub failure_policy: FailurePolicy,
    /// Pull policy of the agent's image.
    pub pull_policy: &'static str,
    /// User of the agent's container, if the author names one.
    pub run_as_user: Option<i64>,
    /// Resource requests of the agent's container.
    pub requests: BTreeMap<String, String>,
    /// Resource limits of the agent's container.
    pub limits: BTreeMap<String, String>,
    /// The objects for Prometheus.
    pub monitoring: Monitoring,
}

impl Settings {
    /// Reads a spec. The schema has refused what is wrong here, except in objects that are older
    /// than the schema.
    ///
    /// # Errors
    /// The path of the invalid field, and its error.
    pub fn of(prober: &NetworkProber, tenancy: &Tenancy) -> Result<Self, Error> {
        let spec = &prober.spec;
        let pods = selector("podSelector", &spec.pod_selector)?;
        if pods.is_empty() && !spec.select_all {
            let text =
                "an empty selector selects every pod; if that is meant, set spec.selectAll: true";
            return Err(invalid("podSelector", text));
        }
        let namespace = prober.namespace().unwrap_or_default();
        let namespaces = spec.namespace_selector.as_ref();
        let namespaces = namespaces.map(|s| selector("namespaceSelector", s)).transpose()?;
        if tenancy.is_excluded(&namespace) && namespaces.is_none() {
            let text = format!("needed here: pods of the namespace {namespace} are never selected");
            return Err(invalid("namespaceSelector", text));
        }
        let (http_port, prometheus_port) = (
            port("httpPort", &spec.http_port)?,
            port("httpPrometheusPort", &spec.http_prometheus_port)?,
        );
        if http_port == prometheus_port {
            return Err(invalid("httpPrometheusPort", "must differ from spec.httpPort"));
        }
        let period = duration("pollingPeriod", spec.polling_period, Duration::from_millis(100))?;
        let timeout = match spec.timeout {
            None => period.min(Duration::from_secs(1)),
            Some(timeout) => duration("timeout", timeout, Duration::from_millis(1))?,
        };
        if timeout > period {
            return Err(invalid("timeout", "must not be longer than spec.pollingPeriod"));
        }
        if spec.mode == Mode::DaemonSet && labels_of_agents(&spec.pod_selector).is_empty() {
            let text = "in mode DaemonSet the agents' pods get these labels, so it needs \
                        matchLabels alone, at least one";
            return Err(invalid("podSelector", text));
        }
        let image = spec.agent_image.clone();
        if image.as_ref().is_some_and(|image| image.trim().is_empty()) {
            return Err(invalid(
                "agentImage",
                "is empty; leave it out for the operator's own image",
            ));
        }
        let default = if image.is_some() { Delivery::ConfigMap } else { Delivery::Pull };
        let created = prober.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
        let neighbors = spec.effective_neighbors();
        let resources = ResourceRequirements {
            requests: Some(spec.injection.resources.requests.clone()),
            limits: Some(spec.injection.resources.limits.clone()),
            claims: None,
        };
        let texts = |map: Option<BTreeMap<String, _>>| {
            let quantity =
                |q: k8s_openapi::apimachinery::pkg::api::resource::Quantity| q.0.trim().to_owned();
            map.into_iter().flatten().map(|(key, value)| (key, quantity(value))).collect()
        };
        let (requests, limits) = (texts(resources.requests), texts(resources.limits));
        check_resources(&requests, &limits)?;
        Ok(Self {
            uid: prober.uid().unwrap_or_default(),
            rank: (created, namespace.clone(), prober.name_any()),
            targets: targets(&spec.targets, &namespace)?,
            // Consent is to being probed, and not to requests of another author's choice.
            targets_in: (namespace != tenancy.operator()).then(|| namespace.clone()),
            namespace,
            name: prober.name_any(),
            pods,
            pod_selector: spec.pod_selector.clone(),
            namespaces,
            namespace_selector: spec.namespace_selector.clone(),
            mode: spec.mode,
            http_port,
            prometheus_port,
            period,
            timeout,
            delivery: spec.delivery.unwrap_or(default),
            image,
            probes: spec.probes.clone(),
            neighbors: Neighbors {
                in_zone: neighbors.in_zone as usize,
                per_other_zone: neighbors.per_other_zone as usize,
            },
            // Who names an image may be an author of the original operator.
            original_metrics: spec.original_metrics.unwrap_or(spec.agent_image.is_some()),
            failure_policy: spec.injection.failure_policy,
            pull_policy: spec.injection.image_pull_policy.as_str(),
            run_as_user: spec.injection.run_as_user,
            requests,
            limits,
            monitoring: spec.monitoring.clone(),
        })
    }

    /// Returns the labels by which the API server identifies the namespaces, if the object needs no
    /// consent; `None` where the API server has to know them by name.
    #[must_use]
    pub fn namespace_labels(&self, tenancy: &Tenancy) -> Option<&LabelSelector> {
        let labels = self.namespace_selector.as_ref();
        labels.filter(|_| self.namespace == tenancy.operator())
    }

    /// Returns `<namespace>/<name>`, as agents, annotations, the job of the `PodMonitor` and other
    /// objects name it.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The labels of the agents' pods in mode `DaemonSet`.
    #[must_use]
    pub fn agent_labels(&self) -> BTreeMap<String, String> {
        labels_of_agents(&self.pod_selector)
    }

    /// Reports whether every pod probes every other.
    #[must_use]
    pub fn is_full_mesh(&self) -> bool {
        self.neighbors.in_zone == 0 && self.neighbors.per_other_zone == 0
    }
}

fn labels_of_agents(selector: &LabelSelector) -> BTreeMap<String, String> {
    if selector.match_expressions.iter().flatten().next().is_some() {
        return BTreeMap::new();
    }
    selector.match_labels.clone().unwrap_or_default()
}

/// Reads targets.
///
/// # Errors
/// The path of the invalid one, and its error.
fn targets(targets: &[Target], namespace: &str) -> Result<Vec<Destination>, Error> {
    if targets.len() > TARGETS {
        let text = format!("has {} entries; the limit is {TARGETS}", targets.len());
        return Err(invalid("targets", text));
    }
    let mut found: Vec<Destination> = Vec::with_capacity(targets.len());
    for (place, target) in targets.iter().enumerate() {
        let to = destination(target, namespace)
            .map_err(|(field, text)| invalid(&format!("targets[{place}].{field}"), text))?;
        if found.iter().any(|other| other.name == to.name) {
            return Err(invalid(
                &format!("targets[{place}].name"),
                "is also that of another target",
            ));
        }
        found.push(to);
    }
    Ok(found)
}

/// The address of the API server's Service: its certificate names it, and the pods' resolvers know it.
const API_SERVER: &str = "kubernetes.default.svc";

fn destination(
    target: &Target,
    namespace: &str,
) -> Result<Destination, (&'static str, &'static str)> {
    let to = Destination { name: target.name.clone(), ..Destination::default() };
    let found = match target {
        Target { dns: Some(name), service: None, url: None, api_server: None, .. } => {
            if name.parse::<std::net::IpAddr>().is_ok() {
                return Err(("dns", "must be a DNS name"));
            }
            Destination { host: name.clone(), ..to }
        }
        Target { dns: None, service: Some(service), url: None, api_server: None, .. } => {
            let namespace = service.namespace.as_deref().unwrap_or(namespace);
            let host = format!("{}.{namespace}.svc", service.name);
            Destination { host, port: Some(service.port), ..to }
        }
        Target { dns: None, service: None, url: Some(url), api_server: None, .. } => {
            let text = "must be an http or https address without user, blanks and fragment";
            at_url(to, url).ok_or(("url", text))?
        }
        Target { dns: None, service: None, url: None, api_server: Some(true), .. } => Destination {
            host: API_SERVER.into(),
            port: Some(443),
            tls: true,
            path: Some("/readyz".into()),
            ..to
        },
        _ => return Err(("name", "exactly one of dns, service, url and apiServer is needed")),
    };
    // An agent leaves out what is longer.
    if found.is_sane() { Ok(found) } else { Err(("url", "its host or its path is too long")) }
}

fn at_url(to: Destination, url: &str) -> Option<Destination> {
    if url.contains('#') {
        return None;
    }
    let url: http::Uri = url.parse().ok()?;
    let authority = url.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let tls = match url.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return None,
    };
    // A port that is none, such as 99999, is not left out.
    let port = match authority.as_str().strip_prefix(authority.host())?.strip_prefix(':') {
        None => {
            if tls {
                443
            } else {
                80
            }
        }
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let path = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    Some(Destination { host, port: Some(port), tls, path: Some(path), ..to })
}

fn invalid(path: &str, text: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("spec.{path}: {text}"))
}

fn selector(path: &str, selector: &LabelSelector) -> Result<Selector, Error> {
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    let labels = selector.match_labels.as_ref().map_or(0, BTreeMap::len);
    for (field, count) in [("matchLabels", labels), ("matchExpressions", expressions.len())] {
        if count > LARGEST_SELECTOR {
            let text = format!("has {count} entries; the limit is {LARGEST_SELECTOR}");
            return Err(invalid(&format!("{path}.{field}"), text));
        }
    }
    for (place, expression) in expressions.iter().enumerate() {
        let count = expression.values.as_ref().map_or(0, Vec::len);
        if count > LARGEST_EXPRESSION {
            let text = format!("has {count} entries; the limit is {LARGEST_EXPRESSION}");
            return Err(invalid(&format!("{path}.matchExpressions[{place}].values"), text));
        }
    }
    Selector::new(selector).map_err(|text| Error::Invalid(format!("spec.{path}.{text}")))
}

fn port(path: &str, port: &IntOrString) -> Result<u16, Error> {
    let read = match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(text) => text.parse().ok(),
    };
    let shown = match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{text:?}"),
    };
    read.filter(|port| *port > 0)
        .ok_or_else(|| invalid(path, format!("{shown} is not a port from 1 to 65535")))
}

fn duration(path: &str, value: crate::api::Duration, least: Duration) -> Result<Duration, Error> {
    let std = Duration::from(value);
    if value.is_negative() || std < least {
        let least = humantime::format_duration(least);
        return Err(invalid(path, format!("must be at least {least}")));
    }
    Ok(std)
}

/// The resources of containers that have no domain, besides huge pages.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The prefix of the resources of huge pages; the size of a page follows.
const HUGE_PAGES: &str = "hugepages-";

/// The most digits of an amount, so that a comparison of two is exact.
const DIGITS: usize = 15;

type Amounts = BTreeMap<String, String>;

/// Checks requests and limits by the API server's rules for a container: what it refuses in the
/// agent, it refuses together with the whole pod.
///
/// # Errors
/// The path of the invalid amount, and its error.
fn check_resources(requests: &Amounts, limits: &Amounts) -> Result<(), Error> {
    let requested = amounts("requests", requests)?;
    let limited = amounts("limits", limits)?;
    for (name, request) in &requested {
        let Some(limit) = limited.get(name) else {
            if is_overcommitted(name) {
                continue;
            }
            return Err(at("requests", name, "needs an equal limit"));
        };
        let both = || format!("{} and the limit is {}", requests[*name], limits[*name]);
        if !is_overcommitted(name) && request.total_cmp(limit).is_ne() {
            return Err(at(
                "requests",
                name,
                format!("must be equal to the limit: it is {}", both()),
            ));
        }
        if request > limit {
            let text = format!(
                "must not be more than spec.injection.resources.limits.{name}: it is {} (the \
                 defaults are requests of 10m CPU and 16Mi memory, and a limit of 64Mi memory)",
                both()
            );
            return Err(at("requests", name, text));
        }
    }
    for (kind, amounts) in [("requests", &requested), ("limits", &limited)] {
        let pages = amounts.keys().find(|name| name.starts_with(HUGE_PAGES));
        let with = |name| requested.contains_key(name) || limited.contains_key(name);
        if let Some(name) = pages.filter(|_| !with("cpu") && !with("memory")) {
            return Err(at(kind, name, "huge pages need a request or a limit of cpu or memory"));
        }
    }
    Ok(())
}

fn at(kind: &str, name: &str, text: impl std::fmt::Display) -> Error {
    invalid(&format!("injection.resources.{kind}.{name}"), text)
}

/// Reports whether a container may use more than it requests.
fn is_overcommitted(name: &str) -> bool {
    STANDARD.contains(&name)
}

fn amounts<'a>(kind: &str, texts: &'a Amounts) -> Result<BTreeMap<&'a str, f64>, Error> {
    let read = texts.iter().map(|(name, text)| {
        let amount = amount(name, text).map_err(|error| at(kind, name, error))?;
        Ok((&**name, amount))
    });
    read.collect()
}

fn amount(name: &str, text: &str) -> Result<f64, String> {
    let page = name.strip_prefix(HUGE_PAGES);
    if page.is_none() && !STANDARD.contains(&name) && !is_extended_name(name) {
        return Err("is not a resource of containers: cpu, memory, ephemeral-storage, \
                    hugepages-<size>, or an extended resource such as example.com/device"
            .into());
    }
    let amount = quantity(text)?;
    if amount < 0.0 {
        return Err(format!("{text:?} is negative"));
    }
    let unit = match page {
        None if STANDARD.contains(&name) => return Ok(amount),
        None => 1.0,
        Some(page) => quantity(page)?,
    };
    if unit < 1.0 || unit.fract() != 0.0 {
        return Err(format!("{unit} is not the size of a page"));
    }
    if amount % unit != 0.0 {
        return Err(format!("{text:?} is not a multiple of {unit}"));
    }
    Ok(amount)
}

fn quantity(text: &str) -> Result<f64, String> {
    if text.chars().filter(char::is_ascii_digit).count() > DIGITS {
        return Err(format!("has more than {DIGITS} digits"));
    }
    parse_quantity(text).map_err(|error| error.to_string())
}

/// Reports whether it is the name of an extended resource, to which a quota can also refer by
/// `requests.<name>`.
fn is_extended_name(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else { return false };
    let domain_is_good = domain.len() + "requests.".len() <= 253
        && domain.split('.').all(|label| {
            let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            label.starts_with(is_good)
                && label.ends_with(is_good)
                && label.chars().all(|c| is_good(c) || c == '-')
        });
    let is_end = |c: char| c.is_ascii_alphanumeric();
    is_extended(name)
        && domain_is_good
        && (1..=63).contains(&rest.len())
        && rest.starts_with(is_end)
        && rest.ends_with(is_end)
        && rest.chars().all(|c| is_end(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests;
