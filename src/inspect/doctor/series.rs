//! Asks each Prometheus for the series that it has, and checks their origin and their number.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Asked, Check, CheckResult, Duplicates, Endpoint, Exporter, Facts, some};
use crate::{
    api::{CAPACITY_ANNOTATION, TrafficWatch, parse_quantity, traffic_watch::DEFAULT_DEVICES},
    inspect::cluster::name_of,
    nodes::{Identity, NodeObject, Resolution, ShortNames},
    prometheus::{
        Class, Client, Exporters, QueryError, decode,
        exporters::{LinkExporter, Links, job_of, note_job, other_jobs},
        promql::{duration, string},
    },
    selector::Selector,
    text::figures::span,
    traffic_watch::{Settings, query},
};

/// Maximum number of duplicate series to compare: the labels in which they differ are the same for
/// all nodes.
const DUPLICATES: usize = 50;

/// Maximum number of devices to name, those of the most exporters.
const DEVICES: usize = 10;

/// The loopback device and the ends of pods' links, as a regular expression.
const VIRTUAL: &str = "lo|(veth|cali|lxc|tap|tunl|flannel|docker|cni|dummy|kube-).*";

/// The default of `spec.window`.
const DEFAULT_WINDOW: Duration = Duration::from_mins(2);

/// Makes all queries for the objects that use this endpoint.
pub async fn gather(client: &Client, exporters: &Exporters, watches: &[TrafficWatch]) -> Endpoint {
    let (node_labels, links) = (&exporters.node_labels, exporters.links(client.name()));
    let device = links.exporter.device();
    let (name, url) = (client.name(), client.url().to_owned());
    let watches: Vec<_> = watches.iter().filter(|watch| watch.spec.prometheus == name).collect();
    let ask = |promql: String| ask(client, node_labels, promql);
    let names: Vec<_> =
        ["job", "instance"].into_iter().chain(node_labels.iter().map(String::as_str)).collect();
    let by = format!("by ({})", names.join(", "));
    let mut endpoint = Endpoint {
        name: name.into(),
        url,
        answers: ask("vector(1)".into()).await.map(drop),
        links: links.clone(),
        exporters: Ok(vec![]),
        down: Ok(vec![]),
        other_jobs: Ok(vec![]),
        other_exporters: vec![],
        asked: vec![],
    };
    if endpoint.answers.is_err() {
        // One failure is enough; the other queries would take as long to fail.
        return endpoint;
    }
    let found = ask(format!("count {by} ({})", links.select(true, ""))).await;
    endpoint.exporters = found.map(|rows| {
        let all: BTreeSet<_> = rows.into_iter().map(|(exporter, _)| exporter).collect();
        all.into_iter().collect()
    });
    let down = ask(format!("{} == 0", links.believed.select("up", ""))).await;
    endpoint.down = down.map(|rows| rows.into_iter().map(|(exporter, _)| exporter).collect());
    endpoint.other_jobs = jobs(client, &links.all_other_jobs()).await;
    if endpoint.exporters.as_ref().is_ok_and(Vec::is_empty) {
        for other in LinkExporter::ALL.into_iter().filter(|other| *other != links.exporter) {
            let jobs = jobs(client, &other.jobs()).await.unwrap_or_default();
            endpoint.other_exporters.extend(jobs.into_iter().map(|job| (other, job)));
        }
    }
    for ((devices, window), watches) in questions(&watches) {
        let (matcher, range) = (query::devices(device, &devices), duration(window));
        let bytes = links.select(true, &matcher);
        let samples = ask(format!("min {by} (count_over_time({bytes}[{range}]))")).await;
        let speeds = match links.speed(&matcher) {
            Some(speed) => ask(format!("count {by} ({speed} > 0)")).await,
            None => Ok(vec![]),
        };
        let duplicates = duplicates(client, node_labels, &bytes, device).await;
        let others = other_devices(client, &links, &bytes).await;
        endpoint.asked.push(Asked {
            devices,
            window,
            watches,
            samples,
            speeds: speeds.map(|speeds| speeds.into_iter().map(|(exporter, _)| exporter).collect()),
            duplicates,
            others,
        });
    }
    endpoint
}

/// Finds the series that count the same device of the same exporter.
async fn duplicates(
    client: &Client,
    node_labels: &[String],
    bytes: &str,
    device: &str,
) -> Result<Duplicates, QueryError> {
    let node: Vec<_> =
        ["instance"].into_iter().chain(node_labels.iter().map(String::as_str)).collect();
    let node = node.join(", ");
    let more = format!("(count by ({node}, {device}) ({bytes}) > 1)");
    let exporters = format!("count(count by ({node}) {more})");
    let exporters = ask(client, node_labels, exporters).await?;
    let count = exporters.first().map_or(0.0, |(_, count)| *count);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of series; `as` saturates, and NaN is 0"
    )]
    let exporters = count as usize;
    if exporters == 0 {
        return Ok(Duplicates::default());
    }
    // The values of one device are equal, or nearly: the largest ones occur in groups.
    let some = format!("topk({DUPLICATES}, {bytes} and on ({node}, {device}) {more})");
    let result = client.query(&some, client.timeout(), |answer| {
        let mut rows = Vec::new();
        decode::vector(answer.status, &answer.content_type, &answer.body, |series| {
            let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            rows.push(series.labels.iter().map(own).collect());
            Ok(())
        })?;
        Ok(rows)
    });
    Ok(Duplicates { exporters, series: result.await? })
}

/// Returns the devices of exporters none of whose devices is selected; some, if there are many.
async fn other_devices(
    client: &Client,
    links: &Links,
    selected: &str,
) -> Result<Vec<String>, QueryError> {
    let device = links.exporter.device();
    let all = links.select(true, &format!("{device}!~{}", string(VIRTUAL)));
    let promql = format!(
        "topk({DEVICES}, count by ({device}) ({all} unless on (job, instance) {selected}))"
    );
    let result = client.query(&promql, client.timeout(), |answer| {
        let mut devices = Vec::new();
        decode::vector(answer.status, &answer.content_type, &answer.body, |series| {
            devices.extend(series.labels.get(device).map(str::to_owned));
            Ok(())
        })?;
        devices.sort_unstable();
        Ok(devices)
    });
    result.await
}

/// Returns the names of jobs.
async fn jobs(client: &Client, promql: &str) -> Result<Vec<String>, QueryError> {
    let result = client.query(promql, client.timeout(), |answer| {
        let mut jobs = Vec::new();
        decode::vector(answer.status, &answer.content_type, &answer.body, |series| {
            if let Some(job) = job_of(&series.labels) {
                note_job(&mut jobs, job);
            }
            Ok(())
        })?;
        Ok(jobs)
    });
    result.await
}

/// The series of `bird_exporter` at one Prometheus.
#[derive(Clone, Debug, Default)]
pub struct BirdExporters {
    /// The number of exporters whose series are accepted.
    pub accepted: usize,
    /// Jobs with series that are not accepted, if none is.
    pub other_jobs: Vec<String>,
}

/// Asks for the series by which the gates of `RouteReflectorSet`s count sessions.
///
/// # Errors
/// When Prometheus does not answer, or refuses.
pub async fn bird_exporters(
    client: &Client,
    exporters: &Exporters,
) -> Result<BirdExporters, QueryError> {
    let (metric, bgp) = ("bird_protocol_up", r#"proto="BGP""#);
    let believed = &exporters.bird_exporter;
    let by = format!("count by (job, instance) ({})", believed.select(metric, bgp));
    let accepted = ask(client, &exporters.node_labels, by).await?.len();
    let other_jobs = match other_jobs(metric, bgp, believed) {
        Some(promql) if accepted == 0 => jobs(client, &promql).await?,
        _ => vec![],
    };
    Ok(BirdExporters { accepted, other_jobs })
}

type Questions = BTreeMap<(String, Duration), Vec<String>>;

/// Returns the devices and windows to query, with the objects that need them; the defaults if none
/// does.
fn questions(watches: &[&TrafficWatch]) -> Questions {
    let mut questions = Questions::new();
    for watch in watches {
        // Objects with only custom queries need none of this; an invalid spec is reported
        // elsewhere.
        if Settings::of(watch).is_ok_and(|settings| settings.window.is_none()) {
            continue;
        }
        let key = (watch.spec.devices.clone(), Duration::from(watch.spec.window));
        questions.entry(key).or_default().push(name_of(*watch));
    }
    if watches.is_empty() {
        questions.insert((DEFAULT_DEVICES.to_owned(), DEFAULT_WINDOW), vec![]);
    }
    questions
}

async fn ask(
    client: &Client,
    node_labels: &[String],
    promql: String,
) -> Result<Vec<(Exporter, f64)>, QueryError> {
    let result = client.query(&promql, client.timeout(), |answer| {
        let mut rows = Vec::new();
        decode::vector(answer.status, &answer.content_type, &answer.body, |series| {
            let names =
                ["job", "instance"].into_iter().chain(node_labels.iter().map(String::as_str));
            let labels = names
                .filter_map(|label| Some((label.to_owned(), series.labels.get(label)?.to_owned())));
            rows.push((Exporter(labels.collect()), series.value.unwrap_or(f64::NAN)));
            Ok(())
        })?;
        Ok(rows)
    });
    result.await
}

/// Minimum number of samples within a window: `rate` needs two, and a window of fewer than four
/// intervals has only one whenever a scrape or two fail.
const MIN_SAMPLES: f64 = 4.0;

/// Checks that a Prometheus answers.
pub(super) fn answers(facts: &Facts, endpoint: &Endpoint) -> Check {
    let check = "prometheus";
    let Endpoint { name, url, .. } = endpoint;
    let Err(error) = &endpoint.answers else {
        return Check::ok(check, format!("{name} ({url}) answers"));
    };
    let message = format!("{name} does not answer: {error}");
    let fix = match error.class {
        Class::Unauthorized => "correct the credentials of this endpoint in --prometheus-config",
        Class::BadAnswer => {
            "the URL must be the Prometheus API itself: without /graph, behind no login page"
        }
        Class::Unreachable => {
            "an address inside the cluster is not reachable from outside: kubectl port-forward and \
             --prometheus-url, or run this command in the operator's pod"
        }
        _ => "ask again; if it stays so, look at the log of Prometheus",
    };
    // An error in the credentials or the URL affects the operator as well.
    let reachable_from_there = matches!(error.class, Class::Unreachable | Class::Timeout);
    if reachable_from_there && measured(facts, name) {
        // Unreachable from here does not mean unreachable for the operator.
        let message = format!("{message}; the operator does reach its Prometheus");
        Check::warn(check, message, fix)
    } else {
        Check::fail(check, message, fix)
    }
}

/// Reports whether the operator receives answers from this endpoint, according to the objects.
fn measured(facts: &Facts, endpoint: &str) -> bool {
    let watches = facts.watches.iter().flat_map(|watches| &watches.read);
    watches
        .filter(|watch| watch.spec.prometheus == endpoint)
        .filter_map(|watch| watch.status.as_ref())
        .flat_map(|status| &status.conditions)
        .any(|c| c.type_ == "MetricsAvailable" && c.status == "True")
}

/// Runs the further checks of a Prometheus that answers.
pub(super) fn checks(facts: &Facts, endpoint: &Endpoint) -> Vec<Check> {
    let (Ok(()), Ok(nodes)) = (&endpoint.answers, &facts.nodes) else { return vec![] };
    let addresses: Vec<Vec<_>> = nodes
        .iter()
        .map(|node| node.addresses().iter().map(|a| a.address.as_str().into()).collect())
        .collect();
    let names = nodes.iter().map(|node| node.metadata.name.as_deref().unwrap_or_default().into());
    let identity = Identity::new(names.zip(addresses.iter().map(Vec::as_slice)).collect());
    let exporters = match &endpoint.exporters {
        Ok(exporters) => exporters,
        Err(error) => return vec![failed("exporters", error)],
    };
    let mut known =
        Known { identity, labels: &facts.exporters.node_labels, short: ShortNames::default() };
    for exporter in exporters {
        known.short.meet(known.identity.resolve(known.labels, |label| exporter.get(label)));
    }
    let mut checks = trust(facts, endpoint, exporters.is_empty());
    if checks.iter().any(|check| check.verdict == CheckResult::Fail) {
        return checks;
    }
    checks.extend(mapping(&known, exporters, endpoint));
    checks.extend(down(&known, endpoint));
    for asked in &endpoint.asked {
        checks.extend(question(&known, nodes, facts, asked));
    }
    checks
}

/// Checks that the right series are accepted.
fn trust(facts: &Facts, endpoint: &Endpoint, none: bool) -> Vec<Check> {
    let (name, links) = ("trust", &endpoint.links);
    let believed = &links.believed;
    let jobs = match &endpoint.other_jobs {
        Ok(jobs) => jobs,
        Err(error) => return vec![failed(name, error)],
    };
    let Some(first) = jobs.first() else { return vec![] };
    let (jobs, metric) = (jobs.join(", "), links.exporter.counter(true).0);
    let is_set = facts.exporters.links.contains_key(&endpoint.name);
    if none {
        let message =
            format!("no series {metric} matches {believed}; jobs that have such series: {jobs}");
        let first = string(first);
        let fix = if is_set {
            format!(
                "if one of them is yours: selector: 'job={first}' of this endpoint in --prometheus-config"
            )
        } else {
            format!(
                "if one of them is yours: --node-exporter-selector='job={first}', the operator's flag too"
            )
        };
        return vec![Check::fail(name, message, fix)];
    }
    let message =
        format!("only series that match {believed} are believed; not those of job {jobs}");
    let place = if is_set {
        "the endpoint's selector in --prometheus-config"
    } else {
        "--node-exporter-selector, the operator's flag too"
    };
    let fix = format!(
        "right for exporters that anybody can have scraped; if one of these jobs is yours, widen {place}"
    );
    vec![Check::warn(name, message, fix)]
}

fn failed(name: &'static str, error: &QueryError) -> Check {
    Check::fail(name, format!("the query failed: {error}"), "see the log of Prometheus")
}

struct Known<'a> {
    identity: Identity,
    labels: &'a [String],
    short: ShortNames,
}

impl Known<'_> {
    fn resolve<'e>(&self, exporter: &'e Exporter) -> Resolution<'e> {
        self.short.settle(self.identity.resolve(self.labels, |label| exporter.get(label)))
    }

    fn node(&self, exporter: &Exporter) -> Option<&str> {
        match self.resolve(exporter) {
            Resolution::Node(place) => self.identity.names().get(place).map(|name| &**name),
            _ => None,
        }
    }

    /// Returns the label that identifies the node.
    fn by(&self, exporter: &Exporter) -> &str {
        let found = self.resolve(exporter);
        let leads = |label: &&String| {
            self.short.settle(self.identity.resolve(&[], |_| exporter.get(label))) == found
        };
        self.labels.iter().find(leads).map_or("instance", String::as_str)
    }
}

impl Exporter {
    fn get(&self, label: &str) -> Option<&str> {
        self.0.get(label).map(String::as_str)
    }

    /// Returns `job=… instance=…`, with the other labels.
    fn shown(&self) -> String {
        let first = ["job", "instance"].into_iter();
        let rest = self.0.keys().map(String::as_str).filter(|k| !["job", "instance"].contains(k));
        let all = first.chain(rest).filter_map(|key| Some(format!("{key}={}", self.0.get(key)?)));
        all.collect::<Vec<_>>().join(" ")
    }
}

/// Checks the node of each exporter.
fn mapping(known: &Known<'_>, exporters: &[Exporter], endpoint: &Endpoint) -> Vec<Check> {
    let name = "exporters";
    if exporters.is_empty() {
        let metric = endpoint.links.exporter.counter(true).0;
        let message = format!("{} has no series {metric}", endpoint.name);
        let fix = match endpoint.other_exporters.first() {
            None => {
                "install the node exporter, have it scraped, with its collector netclass/netdev on"
                    .into()
            }
            Some((exporter, job)) => format!(
                "the job {job} has series of another exporter: in --prometheus-config, for this \
                 endpoint, exporter: {} and selector: 'job={}'; they have no link speeds, so set \
                 spec.capacity",
                exporter.name(),
                string(job)
            ),
        };
        return vec![Check::fail(name, message, fix)];
    }
    let (mut mapped, mut ambiguous, mut unmapped) = (Vec::new(), Vec::new(), Vec::new());
    for exporter in exporters {
        match known.resolve(exporter) {
            Resolution::Node(_) => {
                let node = known.node(exporter).unwrap_or_default();
                mapped.push(format!("{} -> {node} (by {})", exporter.shown(), known.by(exporter)));
            }
            Resolution::Ambiguous => ambiguous.push(exporter.shown()),
            Resolution::Unknown | Resolution::Short(..) => unmapped.push(exporter.shown()),
        }
    }
    let message = format!("{} of {} belong to a node", mapped.len(), exporters.len());
    let mut checks = vec![match mapped.len() {
        0 => Check::fail(
            name,
            message,
            "name the label that holds the node's name: --node-label, the operator's flag too",
        ),
        _ => Check::ok(name, message).with(mapped),
    }];
    if !ambiguous.is_empty() {
        let message = format!(
            "{} lead to several nodes with the same address, or share a short name: {}",
            ambiguous.len(),
            some(&ambiguous)
        );
        let fix = "relabel the node's name into a label `node` of these series, or name another by --node-label";
        checks.push(Check::warn(name, message, fix).with(ambiguous));
    }
    if !unmapped.is_empty() {
        let message =
            format!("{} belong to no node of this cluster: {}", unmapped.len(), some(&unmapped));
        let fix = "harmless for machines outside the cluster; else relabel a label `node`, or --node-label";
        checks.push(Check::warn(name, message, fix).with(unmapped));
    }
    checks
}

/// Checks that the exporters answer: their series stay for minutes after they do not.
fn down(known: &Known<'_>, endpoint: &Endpoint) -> Option<Check> {
    let name = "targets";
    let down = match &endpoint.down {
        Ok(down) => down,
        Err(error) => return Some(failed(name, error)),
    };
    let shown = |exporter: &Exporter| match known.node(exporter) {
        Some(node) => format!("{} -> {node}", exporter.shown()),
        None => exporter.shown(),
    };
    let down: Vec<_> = down.iter().map(shown).collect();
    if down.is_empty() {
        return None;
    }
    let message = format!("{} exporters do not answer (up is 0): {}", down.len(), some(&down));
    let fix =
        "Status > Targets of Prometheus has the error of each: a firewall, a NetworkPolicy, TLS";
    Some(Check::warn(name, message, fix).with(down))
}

/// Checks the results of one kind of query.
fn question(known: &Known<'_>, nodes: &[NodeObject], facts: &Facts, asked: &Asked) -> Vec<Check> {
    let for_whom = match asked.watches.as_slice() {
        [] => "the default devices".to_owned(),
        watches => some(watches),
    };
    let (samples, speeds, others) = match (&asked.samples, &asked.speeds, &asked.others) {
        (Ok(samples), Ok(speeds), Ok(others)) => (samples, speeds, others),
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
            return vec![failed("nodes", error)];
        }
    };
    let mut poorest: BTreeMap<&str, f64> = BTreeMap::new();
    for (exporter, count) in samples {
        let Some(node) = known.node(exporter) else { continue };
        let least = poorest.entry(node).or_insert(*count);
        *least = least.min(*count);
    }
    let judged = judged(nodes, facts, asked);
    if judged.is_empty() {
        let message = format!("none is judged ({for_whom})");
        let fix = "correct spec.nodeSelector: kubectl get nodes --show-labels";
        return vec![Check::warn("nodes", message, fix)];
    }
    let without: Vec<_> = judged
        .iter()
        .filter(|node| !poorest.contains_key(name(node)))
        .map(|n| name(n).to_owned())
        .collect();
    let mut checks = vec![coverage(&judged, without, &for_whom, asked, others)];
    let with_speed: BTreeSet<_> =
        speeds.iter().filter_map(|exporter| known.node(exporter)).collect();
    checks.extend(capacities(&judged));
    checks.push(speed(&judged, &poorest, &with_speed, &for_whom, capacity_given(facts, asked)));
    checks.push(window(&poorest, &for_whom, asked));
    checks.push(repeated(asked, known.labels, &for_whom));
    checks
}

fn name(node: &NodeObject) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the nodes that any of the query's objects judges; every Linux node if there is no
/// object.
fn judged<'a>(nodes: &'a [NodeObject], facts: &Facts, asked: &Asked) -> Vec<&'a NodeObject> {
    let watches = facts.watches.iter().flat_map(|watches| &watches.read);
    let mut selectors: Vec<_> = watches
        .filter(|watch| asked.watches.contains(&name_of(*watch)))
        .filter_map(|watch| match &watch.spec.node_selector {
            None => Some(Selector::linux()),
            // The check of the object reports one that cannot be read.
            Some(selector) => Selector::new(selector).ok(),
        })
        .collect();
    if asked.watches.is_empty() {
        selectors.push(Selector::linux());
    }
    let is_judged = |node: &&NodeObject| {
        let labels = node.metadata.labels.as_ref();
        let get = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        selectors.iter().any(|selector| selector.matches(get))
    };
    nodes.iter().filter(is_judged).collect()
}

/// Reports whether no object of the query needs a link speed, because it sets the capacity or an
/// absolute threshold.
fn capacity_given(facts: &Facts, asked: &Asked) -> bool {
    let watches = facts.watches.iter().flat_map(|watches| &watches.read);
    let mut of_question =
        watches.filter(|watch| asked.watches.contains(&name_of(*watch))).peekable();
    of_question.peek().is_some()
        && of_question.all(|w| w.spec.capacity.is_some() || w.spec.max_bandwidth.is_some())
}

fn coverage(
    judged: &[&NodeObject],
    without: Vec<String>,
    for_whom: &str,
    asked: &Asked,
    others: &[String],
) -> Check {
    let check = "nodes";
    let all = judged.len();
    if without.is_empty() {
        return Check::ok(check, format!("all {all} nodes have series ({for_whom})"));
    }
    let message =
        format!("{} of {all} nodes have no series ({for_whom}): {}", without.len(), some(&without));
    let mut fix = format!(
        "is the exporter running there and scraped, and do its devices match {:?}?",
        asked.devices
    );
    if !others.is_empty() {
        let others = others.join(", ");
        fix = format!(
            "exporters without a device that matches {:?} have {others}: name theirs in spec.devices",
            asked.devices
        );
    }
    // With fewer than half, nothing is judged at all.
    if (all - without.len()) * 2 < all {
        Check::fail(check, message, fix).with(without)
    } else {
        Check::warn(check, message, fix).with(without)
    }
}

/// Returns the capacity annotation of a node.
fn capacity(node: &NodeObject) -> Option<&str> {
    node.metadata.annotations.as_ref()?.get(CAPACITY_ANNOTATION).map(String::as_str)
}

/// Checks for annotations that are not a quantity: their nodes are Unknown.
fn capacities(judged: &[&NodeObject]) -> Option<Check> {
    let wrong: Vec<_> = judged
        .iter()
        .filter_map(|node| Some((name(node), capacity(node)?)))
        .filter(|(_, text)| !parse_quantity(text).is_ok_and(|capacity| capacity > 0.0))
        .map(|(node, text)| format!("{node} ({text:?})"))
        .collect();
    let first = wrong.first()?.split(' ').next()?.to_owned();
    let message = format!(
        "the annotation {CAPACITY_ANNOTATION} of {} nodes is no quantity: {}",
        wrong.len(),
        some(&wrong)
    );
    let fix = format!("kubectl annotate --overwrite node {first} {CAPACITY_ANNOTATION}=10G");
    Some(Check::warn("link-speed", message, fix).with(wrong))
}

fn speed(
    judged: &[&NodeObject],
    with_series: &BTreeMap<&str, f64>,
    with_speed: &BTreeSet<&str>,
    for_whom: &str,
    capacity_given: bool,
) -> Check {
    let check = "link-speed";
    let unknown: Vec<_> = judged
        .iter()
        .filter(|node| !capacity_given && capacity(node).is_none())
        .map(|node| name(node))
        .filter(|node| with_series.contains_key(node) && !with_speed.contains(node))
        .map(str::to_owned)
        .collect();
    if unknown.is_empty() {
        return Check::ok(
            check,
            format!("known, or set as capacity, for all nodes with series ({for_whom})"),
        );
    }
    let message = format!(
        "unknown for {} nodes, which have traffic ({for_whom}): {}",
        unknown.len(),
        some(&unknown)
    );
    let fix = format!(
        "kubectl annotate node {} traffic.example.com/capacity=10G, or spec.capacity",
        unknown.first().map_or("NAME", String::as_str)
    );
    Check::warn(check, message, fix).with(unknown)
}

fn window(poorest: &BTreeMap<&str, f64>, for_whom: &str, asked: &Asked) -> Check {
    let check = "window";
    let window = span(i64::try_from(asked.window.as_secs()).unwrap_or(i64::MAX));
    let poor: Vec<_> = poorest
        .iter()
        .filter(|(_, count)| **count < MIN_SAMPLES)
        .map(|(node, count)| format!("{node} ({count})"))
        .collect();
    if poor.is_empty() {
        return Check::ok(
            check,
            format!("at least {MIN_SAMPLES} samples within {window} ({for_whom})"),
        );
    }
    let message = format!(
        "{} nodes have fewer than {MIN_SAMPLES} samples within {window} ({for_whom}): {}",
        poor.len(),
        some(&poor)
    );
    // Of exporters that are scraped too rarely, all have few.
    let fix = if poor.len() * 2 > poorest.len() {
        "set spec.window to at least four scrape intervals"
    } else {
        "exporters that have just started, or that missed scrapes: look again after a window"
    };
    Check::warn(check, message, fix).with(poor)
}

/// Checks for devices with more than one series, and shows the labels in which these differ.
fn repeated(asked: &Asked, node_labels: &[String], for_whom: &str) -> Check {
    let check = "duplicates";
    let found = match &asked.duplicates {
        Ok(found) => found,
        Err(error) => return failed(check, error),
    };
    if found.exporters == 0 {
        return Check::ok(check, format!("every device has one series ({for_whom})"));
    }
    let differ = differing(&found.series, node_labels);
    let details: Vec<_> = differ.values().flatten().map(ToString::to_string).collect();
    let labels: BTreeSet<_> = differ.keys().flatten().map(|name| (*name).to_owned()).collect();
    let labels = some(&labels.into_iter().collect::<Vec<_>>());
    let message = format!("{} exporters have devices with several series", found.exporters);
    let message = format!(
        "{message}, which differ in {labels} ({for_whom}): the built-in measurement counts each \
         device once, custom queries may not"
    );
    let fix = "scrape each exporter once, and deduplicate replicas: \
               docs/reference/prometheus.md, Duplicates";
    Check::warn(check, message, fix).with(details)
}

/// Returns the sets of labels in which series of one device differ, each with one example.
fn differing<'a>(
    series: &'a [BTreeMap<String, String>],
    node_labels: &[String],
) -> BTreeMap<BTreeSet<&'a str>, Option<String>> {
    let key = |labels: &'a BTreeMap<String, String>| -> Vec<Option<&'a str>> {
        let names = ["instance", "device"].into_iter();
        let names = names.chain(node_labels.iter().map(String::as_str));
        names.map(|name| labels.get(name).map(String::as_str)).collect()
    };
    let mut groups: BTreeMap<_, Vec<&BTreeMap<String, String>>> = BTreeMap::new();
    for labels in series {
        groups.entry(key(labels)).or_default().push(labels);
    }
    let mut found = BTreeMap::new();
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let names: BTreeSet<&str> =
            group.iter().flat_map(|l| l.keys()).map(String::as_str).collect();
        let differ: BTreeSet<_> = names
            .into_iter()
            .filter(|name| group.iter().any(|l| l.get(*name) != group[0].get(*name)))
            .collect();
        let example = || {
            let first = group.first()?;
            let values = differ.iter().map(|name| {
                let values: BTreeSet<_> =
                    group.iter().map(|l| l.get(*name).map_or("(none)", String::as_str)).collect();
                format!("{name}: {}", values.into_iter().collect::<Vec<_>>().join(", "))
            });
            let of = |name: &str| first.get(name).map_or("", String::as_str);
            let values = values.collect::<Vec<_>>().join("; ");
            Some(format!("instance={} device={}: {values}", of("instance"), of("device")))
        };
        found.entry(differ.clone()).or_insert_with(example);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_the_same_devices_and_window_are_asked_about_once() {
        let watch = |name: &str, window: &str| -> TrafficWatch {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {"maxBandwidthPercent": "60", "window": window}
            }))
            .unwrap()
        };
        let all = [watch("a", "2m"), watch("b", "120s"), watch("c", "5m")];
        let questions = questions(&all.iter().collect::<Vec<_>>());
        let windows: Vec<_> =
            questions.iter().map(|((_, w), who)| (w.as_secs(), who.len())).collect();
        assert_eq!(windows, [(120, 2), (300, 1)]);
    }

    #[test]
    fn without_objects_the_defaults_are_asked_for() {
        let questions = questions(&[]);
        assert_eq!(questions.keys().next().unwrap().0, DEFAULT_DEVICES);
    }
}
