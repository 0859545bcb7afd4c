//! The outputs: status, conditions, events.
use std::collections::BTreeSet;

use super::{
    children::{ChildKey, ChildKind},
    members::Members,
    observe::{NAMED, Observed},
    settings::Settings,
    snapshot::ProberState,
    watches::Over,
};
use crate::{
    agent::budget,
    api::{
        NetworkProber, NetworkProberStatus,
        network_prober::{Mode, NotInjected, Paused},
    },
    controller::{Notice, Verdict, count, verdict},
    placement::ring::Rotation,
    webhook::{configuration, injection::SkipReason},
};

/// Maximum number of pods in the status, to keep it readable and small.
const LISTED: usize = 100;

/// Prefix of the sentence about refused pods, which shows whether it was already reported.
const REFUSED: &str = "ResourcesRefused:";

/// Before its pods were listed.
pub(super) fn waiting() -> Verdict {
    verdict("Ready", None, "Starting", "the selected pods are not listed yet")
}

/// The verdict when its pods are not watched.
pub(super) fn over_budget(over: &Over) -> Verdict {
    verdict("Ready", Some(false), "OverBudget", over.to_string())
}

fn reason_count(reason: &str, number: usize) -> NotInjected {
    NotInjected { reason: reason.to_owned(), count: count(number) }
}

/// The namespaces in which agents cannot start, as far as a sentence can name them.
fn paused(members: &Members) -> Option<String> {
    named(members.paused.keys())
}

fn named<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> Option<String> {
    let more = if names.len() > NAMED { ", …" } else { "" };
    let names: Vec<_> = names.take(NAMED).map(String::as_str).collect();
    (!names.is_empty()).then(|| format!("{}{more}", names.join(", ")))
}

/// All namespaces in which injection pauses, each with the reason.
fn pauses(members: &Members) -> impl Iterator<Item = Paused> {
    let one = |namespace: &String, reason: &str| Paused {
        namespace: namespace.clone(),
        reason: reason.to_owned(),
    };
    let failing = members.paused.iter().map(move |(namespace, why)| one(namespace, why));
    let refusing = members.refusing.keys().filter(|name| !members.is_paused(name));
    failing.chain(refusing.map(move |name| one(name, SkipReason::AgentRefused.as_str())))
}

/// Words of kubelets, as far as a sentence can name them.
fn words(reasons: impl Iterator<Item = impl AsRef<str>>) -> String {
    let all: BTreeSet<_> = reasons.map(|reason| reason.as_ref().to_owned()).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

/// The figures.
pub(super) fn status(settings: &Settings, view: &ProberState) -> NetworkProberStatus {
    let members = &view.members;
    let all = members.members.iter().map(|member| member.key(&settings.namespace));
    let not_injected = members.not_injected.iter();
    NetworkProberStatus {
        observed_generation: None,
        pods: all.take(LISTED).collect(),
        selected: count(members.selected),
        injected: count(members.injected),
        need_restart: count(members.need_restart),
        not_injected: not_injected.map(|(reason, number)| reason_count(reason, *number)).collect(),
        failing: count(members.failures()),
        failing_reasons: members
            .failing
            .iter()
            .map(|(reason, n)| reason_count(reason, *n))
            .collect(),
        paused: pauses(members).take(LISTED).collect(),
        pinglist_version: Some(view.pinglists.version.clone()),
        estimated_series: count(view.pinglists.estimated_series),
        conditions: vec![],
    }
}

/// Ready, Covered, Monitored.
pub(super) fn conditions(
    settings: &Settings,
    view: &ProberState,
    observed: &Observed,
) -> Vec<Verdict> {
    vec![ready(settings, view, observed), covered(view), monitored(settings, observed)]
}

fn ready(settings: &Settings, view: &ProberState, observed: &Observed) -> Verdict {
    if settings.mode == Mode::Sidecar && !observed.configuration {
        let text = format!(
            "the MutatingWebhookConfiguration {} is missing, so new pods get no agent. To restore \
             it: {}",
            configuration::OBJECT,
            configuration::RESTORE
        );
        return verdict("Ready", Some(false), "WebhookMissing", text);
    }
    let members = &view.members;
    if let Some(namespaces) = paused(members) {
        let text = format!(
            "agents of the image {} cannot start ({}) in {namespaces}: no further pod gets one there \
             until they run, are gone, or the spec changes",
            view.recipe.as_ref().map_or("", |recipe| &recipe.image),
            words(members.paused.values()),
        );
        return verdict("Ready", Some(false), "AgentFailing", text);
    }
    if let Some(refused) = agents_refused(members, observed) {
        return refused;
    }
    if observed.bundle.is_none() {
        let text = "the webhook has no certificate yet";
        return verdict("Ready", None, "CertificatePending", text);
    }
    if settings.mode == Mode::Sidecar && view.scope.allowed().is_empty() {
        let text = "no namespace is selected: see spec.namespaceSelector and the annotation \
                    probes.bigmikes.io/allow";
        return verdict("Ready", Some(false), "NoNamespace", text);
    }
    if let Some(number) = members.not_injected.get(SkipReason::NotCalled.as_str()) {
        let text = format!(
            "the API server does not call the webhook: {number} selected pods were created since it \
             should, and none of them was seen by it. Either no replica of the webhook answers, or a \
             firewall or the pod network keeps the control plane from port 9443 of its pods: \
             `kubectl traffic doctor` tries it"
        );
        return verdict("Ready", Some(false), "NotCalled", text);
    }
    let mut text = String::from(match settings.mode {
        Mode::Sidecar => "new pods get an agent, and agents their peers",
        Mode::DaemonSet => "nodes have an agent, and agents their peers",
    });
    if !members.failing.is_empty() {
        let words = words(members.failing.keys());
        for part in ["; some agents cannot start (", &words, "): see status.failing"] {
            text.push_str(part);
        }
    }
    if let Some(turns) = turns(settings, view) {
        text.push_str(&turns);
    }
    let only = settings.targets_in.as_ref().filter(|_| !settings.targets.is_empty());
    if let Some(only) = only
        && !members.members.iter().any(|member| member.namespace == *only)
    {
        text.push_str("; no agent probes spec.targets: only those in namespace ");
        text.push_str(only);
        text.push_str(" do");
    }
    verdict("Ready", Some(true), "Serving", text)
}

/// The verdict while namespaces refuse pods because of their agents.
fn agents_refused(members: &Members, observed: &Observed) -> Option<Verdict> {
    let namespaces = named(members.refusing.keys())?;
    let why = observed.failed_creates.iter().map(|(name, why)| format!("; {name}: {why}"));
    let text = format!(
        "pods with an agent are refused in {namespaces}, so that new pods there get none, for an hour or \
         until the spec changes: allow the agent there, or change it \
         (docs/reference/networkprober.md#when-pods-are-refused){}",
        why.collect::<String>()
    );
    Some(verdict("Ready", Some(false), "AgentRefused", text))
}

/// Returns the namespaces in which new pods get no agent, because they would be refused with one.
fn refused(view: &ProberState) -> Option<String> {
    let each = view.refused.iter().take(NAMED).map(|(name, why)| format!("{name} ({why})"));
    let each: Vec<_> = each.collect();
    let more = if view.refused.len() > NAMED { ", …" } else { "" };
    let names = each.join(", ");
    (!each.is_empty()).then(|| format!("{REFUSED} new pods get no agent in {names}{more}"))
}

/// Reports that agents have more peers than they may probe at a time.
fn turns(settings: &Settings, view: &ProberState) -> Option<String> {
    let lists = &view.pinglists;
    let Rotation { members, wanted, epochs } = lists.rotation;
    (members > 0).then(|| {
        let turn = budget::turn(settings.period);
        let all = turn.saturating_mul(u32::try_from(epochs).unwrap_or(u32::MAX));
        format!(
            "; {members} lists would have up to {wanted} peers by zones and spec.neighbors: their \
             agents probe {} at a time ({} series each), in turns of {}, all within {}",
            lists.most,
            budget::SERIES,
            humantime::format_duration(turn),
            humantime::format_duration(all),
        )
    })
}

fn covered(view: &ProberState) -> Verdict {
    let mut covered = coverage(view);
    let waiting = view.members.unschedulable;
    if waiting > 0 {
        let text = format!(
            "; {waiting} pods with an agent find no node: if they fill one by themselves, there is no room \
             for the agent's request (spec.injection.resources), and the annotation \
             probes.bigmikes.io/inject: \"false\" keeps the agent out"
        );
        covered.message.push_str(&text);
    }
    if let Some(refused) = refused(view) {
        covered.message.push_str("; ");
        covered.message.push_str(&refused);
    }
    covered
}

fn coverage(view: &ProberState) -> Verdict {
    let members = &view.members;
    if members.selected == 0 {
        let text = "no pod is selected; pods in other namespaces count only if these consent with \
                    the annotation probes.bigmikes.io/allow";
        return verdict("Covered", None, "NoPods", text);
    }
    if members.uncovered() == 0 {
        let text = "every selected pod has an agent";
        return verdict("Covered", Some(true), "AllInjected", text);
    }
    let reasons = members.not_injected.iter().map(|(reason, count)| format!("{count} {reason}"));
    let reasons: Vec<_> = reasons.collect();
    let mut text = format!(
        "{} of {} selected pods have no agent: {}",
        members.uncovered(),
        members.selected,
        reasons.join(", ")
    );
    if members.not_injected.contains_key("CreatedBefore") {
        text.push_str("; CreatedBefore: a restart (kubectl rollout restart) gives them one");
    }
    verdict("Covered", Some(false), "NotInjected", text)
}

/// The verdict while another client changes objects that are wanted again and again.
pub(super) fn contested(observed: &Observed, wanted: &BTreeSet<ChildKey>) -> Option<Verdict> {
    let contested = observed.contests.keys().filter(|key| wanted.contains(*key));
    let names: Vec<_> = contested.take(NAMED).map(ToString::to_string).collect();
    let text = format!(
        "another client changes {} again and again, and the operator restores it ever less often, at \
         least every 5 minutes: metadata.managedFields names the client",
        names.join(", ")
    );
    (!names.is_empty()).then(|| verdict("Ready", None, "Contested", text))
}

fn monitored(settings: &Settings, observed: &Observed) -> Verdict {
    let monitoring = &settings.monitoring;
    let wanted = [
        (monitoring.pod_monitor, ChildKind::PodMonitor, "podMonitor"),
        (monitoring.prometheus_rule, ChildKind::PrometheusRule, "prometheusRule"),
    ];
    let wanted: Vec<_> = wanted.into_iter().filter(|(wanted, ..)| *wanted).collect();
    if wanted.is_empty() {
        let text = "spec.monitoring switches PodMonitor and PrometheusRule off";
        return verdict("Monitored", Some(false), "SwitchedOff", text);
    }
    let absent: Vec<_> =
        wanted.iter().filter(|(_, kind, _)| !observed.monitoring.contains(kind)).collect();
    if absent.is_empty() {
        let text = "a PodMonitor and a PrometheusRule of this name configure Prometheus";
        return verdict("Monitored", Some(true), "Applied", text);
    }
    let kinds: Vec<_> = absent.iter().map(|(_, kind, _)| kind.as_str()).collect();
    let fields: Vec<_> =
        absent.iter().map(|(.., field)| format!("spec.monitoring.{field}: false")).collect();
    let text = format!(
        "the API server does not serve {}: install the prometheus-operator, or scrape the port \
         np-prometheus in another way and set {}",
        kinds.join(" and "),
        fields.join(", ")
    );
    verdict("Monitored", Some(false), "KindAbsent", text)
}

/// Returns the changes since the status was written.
pub(super) fn notices(prober: &NetworkProber, view: &ProberState) -> Vec<Notice> {
    let before = prober.status.clone().unwrap_or_default();
    let members = &view.members;
    let mut notices = Vec::new();
    let (reported, now) = (before.need_restart, count(members.need_restart));
    if now > reported {
        notices.push(Notice {
            warning: false,
            reason: "NeedRestart",
            note: format!(
                "{now} pods have an agent of an earlier spec (image, ports, delivery or resources); \
                 restart them when it suits you: kubectl rollout restart"
            ),
            node: None,
        });
    }
    let known = |reason: &str| before.not_injected.iter().any(|one| one.reason == reason);
    for (reason, number) in members.not_injected.iter().filter(|(reason, _)| !known(reason)) {
        notices.push(Notice {
            warning: true,
            reason: "NotInjected",
            note: format!("selected pods without an agent: {number} {reason}"),
            node: None,
        });
    }
    let said = before.conditions.iter().any(|condition| condition.message.contains(REFUSED));
    if let Some(note) = refused(view).filter(|_| !said) {
        notices.push(Notice { warning: true, reason: "ResourcesRefused", note, node: None });
    }
    if before.failing == 0 && !members.failing.is_empty() {
        let (number, words) = (members.failures(), words(members.failing.keys()));
        let note = format!("{number} agents cannot start: {words}");
        notices.push(Notice { warning: true, reason: "AgentFailing", note, node: None });
    }
    if before.paused.is_empty()
        && let Some(namespaces) = paused(members)
    {
        let note = format!("no further pod gets an agent in {namespaces} until those there start");
        notices.push(Notice { warning: true, reason: "InjectionPaused", note, node: None });
    }
    let known = |paused: &Paused| paused.reason == SkipReason::AgentRefused.as_str();
    if !before.paused.iter().any(known)
        && let Some(namespaces) = named(members.refusing.keys())
    {
        let note =
            format!("no further pod gets an agent in {namespaces}: it would be refused with one");
        notices.push(Notice { warning: true, reason: "InjectionPaused", note, node: None });
    }
    notices
}
