//! Queries one Prometheus for the series that it has.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Asked, Duplicates, Endpoint, Exporter};
use crate::{
    api::{TrafficWatch, traffic_watch::DEFAULT_DEVICES},
    inspect::{cluster::name_of, measures},
    prometheus::{
        Client, Exporters, QueryError, decode,
        exporters::{LinkExporter, Links, job_of, note_job, other_jobs},
        promql::{duration, string},
    },
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
    let watches: Vec<_> =
        watches.iter().filter(|watch| measures::endpoint(watch) == name).collect();
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
