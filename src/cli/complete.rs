//! Completion in a shell, also of names that are in the cluster.
use std::{
    ffi::{OsStr, OsString},
    fmt::Write,
    path::Path,
    time::Duration,
};

use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCompleter, CompletionCandidate, complete},
};
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use tokio::time::timeout;

use super::output;
use crate::{infra::Api, inspect::cluster::Access};

/// The deadline for the API server: a person waits for the completion.
const DEADLINE: Duration = Duration::from_secs(2);

/// Maximum number of objects to choose from.
const LISTED: u32 = 500;

/// The name by which kubectl calls a plugin to complete `kubectl traffic …`.
const FOR_KUBECTL: &str = "kubectl_complete-traffic";

/// kubectl's directive after the candidates: nothing else, such as names of files, may follow.
const NO_FILES: &str = ":4";

/// Answers a shell, or kubectl, that asks what may follow; returns false if none does.
pub(super) fn answer(command: impl Fn() -> clap::Command) -> anyhow::Result<bool> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let program = words.first().and_then(|program| Path::new(program).file_name());
    if program == Some(OsStr::new(FOR_KUBECTL)) {
        let last = words.len() - 1;
        let mut text = String::new();
        for candidate in complete(&mut command(), words, last, None)? {
            let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
            let help = help.lines().next().unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}\t{help}", candidate.get_value().display());
        }
        output::text(&format!("{text}{NO_FILES}\n"))?;
        return Ok(true);
    }
    Ok(CompleteEnv::with_factory(command).try_complete(words, None)?)
}

/// Completes names of Nodes.
pub(super) fn nodes() -> ArgValueCompleter {
    names::<k8s_openapi::api::core::v1::Node>(false)
}

/// Completes names of the objects of a kind.
pub(super) fn names<K: kube::Resource<DynamicType = ()>>(namespaced: bool) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let kind = ApiResource::erase::<K>(&());
        let names = output::block_on(async {
            timeout(DEADLINE, listed(&kind, namespaced)).await.unwrap_or(Ok(vec![]))
        });
        // Without a cluster there is nothing to choose from.
        let mut names = names.unwrap_or_default();
        names.retain(|name| typed.to_str().is_some_and(|typed| name.starts_with(typed)));
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

async fn listed(kind: &ApiResource, namespaced: bool) -> anyhow::Result<Vec<String>> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    let access = Access {
        kubeconfig: given(&words, &["--kubeconfig"]).map(Into::into),
        context: given(&words, &["--context"]),
    };
    let namespace = given(&words, &["-n", "--namespace"]);
    let namespace =
        if namespaced { Some(access.namespace(namespace.as_deref()).await?) } else { None };
    let api = Api::<DynamicObject>::dynamic(access.reading().await?, kind, namespace.as_deref());
    let all = api.list(&ListParams::default().limit(LISTED)).await?;
    Ok(all.iter().map(ResourceExt::name_any).collect())
}

/// The value of a flag among the words that are typed.
fn given(words: &[String], flags: &[&str]) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
        Some((flag, value)) if flags.contains(&flag) => Some(value.to_owned()),
        None if flags.contains(&word.as_str()) => words.get(at + 1).cloned(),
        _ => None,
    })
}
