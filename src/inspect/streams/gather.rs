//! Finds the `Swarm` that a stream or a worker belongs to.
use kube::{Client, ResourceExt, api::ListParams};

use super::{Facts, dry_run_with};
use crate::{
    api::Swarm,
    infra::Api,
    inspect::{
        cluster::{self, describe, name_of},
        leader::Place,
    },
    swarm::dry_run,
};

/// Maximum number of names in a message.
const NAMED: usize = 10;

/// The scope of the search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// Only `Swarm`s of this name.
    pub swarm: Option<&'a str>,
}

/// Reads everything about one stream.
///
/// # Errors
/// When no `Swarm` has it, several have it, or the API server refuses. A `Swarm` whose `ConfigMap`s
/// cannot be read is an error only if no other one has the stream.
pub async fn gather_stream(
    client: &Client,
    place: &Place,
    scope: Scope<'_>,
    stream: &str,
) -> anyhow::Result<Facts> {
    let swarms = swarms(client, scope).await?;
    let (mut found, rest): (Vec<_>, Vec<_>) =
        swarms.iter().partition(|swarm| dry_run::is_listed(swarm, stream));
    // A list in a ConfigMap may have it too; a file may still have it when no list does.
    let unlisted = found.is_empty();
    let (mut unread, mut refused) = (Vec::new(), None);
    for swarm in rest {
        if !unlisted && swarm.spec.streams_from.is_none() {
            continue;
        }
        match dry_run::is_written(client, swarm, stream).await.map_err(super::described) {
            Ok(written) => found.extend(written.then_some(swarm)),
            // A stranger's Swarm keeps nobody from an answer about their own.
            Err(error) => {
                unread.push(format!("{}: {error}", name_of(swarm)));
                refused = refused.or(Some(error));
            }
        }
    }
    if let Some(error) = refused.filter(|_| found.is_empty()) {
        return Err(error);
    }
    let swarm = only(&format!("stream {stream:?}"), &found, &swarms, scope)?;
    Ok(Facts { unread, ..facts(client, place, swarm.clone()).await? })
}

/// Reads everything about one `Swarm`.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn gather_swarm(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
) -> anyhow::Result<Facts> {
    let swarm = cluster::read(client, "get Swarm", Some(namespace), name).await?;
    facts(client, place, swarm).await
}

/// Reads everything about one worker.
///
/// # Errors
/// When it is a worker of no `Swarm`, or of several, or the API server refuses.
pub async fn gather_worker(
    client: &Client,
    place: &Place,
    scope: Scope<'_>,
    worker: &str,
) -> anyhow::Result<Facts> {
    let swarms = swarms(client, scope).await?;
    let reports = |swarm: &&Swarm| {
        let workers = swarm.status.iter().flat_map(|status| &status.workers);
        workers.into_iter().any(|one| one.name == worker)
    };
    let mut found: Vec<_> = swarms.iter().filter(reports).collect();
    if found.is_empty() {
        found = swarms.iter().filter(|swarm| dry_run::may_be_of(swarm, worker)).collect();
    }
    let swarm = only(&format!("worker {worker:?}"), &found, &swarms, scope)?;
    facts(client, place, swarm.clone()).await
}

async fn facts(client: &Client, place: &Place, mut swarm: Swarm) -> anyhow::Result<Facts> {
    let (run, live) = dry_run_with(client, place, &mut swarm).await?;
    Ok(Facts { swarm, run, live, unread: vec![] })
}

async fn swarms(client: &Client, scope: Scope<'_>) -> anyhow::Result<Vec<Swarm>> {
    let api = match scope.namespace {
        Some(namespace) => Api::<Swarm>::namespaced(client.clone(), namespace),
        None => Api::<Swarm>::all(client.clone()),
    };
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|error| anyhow::anyhow!(describe("list Swarms", error)))?;
    let read = all.items.into_iter();
    let mut all: Vec<_> =
        read.filter(|swarm| scope.swarm.is_none_or(|name| swarm.name_any() == name)).collect();
    all.sort_by_key(name_of);
    Ok(all)
}

/// Returns the only one that has it, or the reason why there is none.
fn only<'a>(
    what: &str,
    found: &[&'a Swarm],
    all: &[Swarm],
    scope: Scope<'_>,
) -> anyhow::Result<&'a Swarm> {
    let names = |swarms: &[&Swarm]| {
        let mut names: Vec<_> = swarms.iter().take(NAMED).map(|swarm| name_of(*swarm)).collect();
        if swarms.len() > NAMED {
            names.push(format!("{} more", swarms.len() - NAMED));
        }
        names.join(", ")
    };
    let place = match scope.namespace {
        Some(namespace) => format!(" in namespace {namespace:?}"),
        None => String::new(),
    };
    match (found, scope.swarm) {
        ([one], _) => Ok(one),
        ([], Some(name)) if all.is_empty() => {
            anyhow::bail!("there is no Swarm {name:?}{place}: kubectl get swarms -A")
        }
        ([], None) if all.is_empty() => {
            anyhow::bail!("there is no Swarm{place}: kubectl get swarms -A")
        }
        ([], _) => {
            let all: Vec<_> = all.iter().collect();
            anyhow::bail!("no Swarm{place} has {what}; there are {}", names(&all))
        }
        (several, _) => anyhow::bail!(
            "several Swarms have {what}: {}; name one by --namespace and --swarm",
            names(several)
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn swarm(namespace: &str, name: &str) -> Swarm {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"workload": {"name": "w"}, "jobs": ["a"]}
        }))
        .unwrap()
    }

    #[test]
    fn the_swarm_that_is_meant_is_named_or_asked_for() {
        let all = [swarm("n", "s"), swarm("m", "t")];
        let (everywhere, named) =
            (Scope::default(), Scope { swarm: Some("x"), ..Scope::default() });
        let of = |found: &[&Swarm], all: &[Swarm], scope| {
            only("stream \"a\"", found, all, scope).map(name_of).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[&all[0]], &all, everywhere).unwrap(), "n/s");
        let both = of(&[&all[0], &all[1]], &all, everywhere).unwrap_err();
        assert_eq!(
            both,
            "several Swarms have stream \"a\": n/s, m/t; name one by --namespace and --swarm"
        );
        let none = of(&[], &all, everywhere).unwrap_err();
        assert_eq!(none, "no Swarm has stream \"a\"; there are n/s, m/t");
        assert!(of(&[], &[], named).unwrap_err().starts_with("there is no Swarm \"x\": "));
        let here = Scope { namespace: Some("k"), swarm: None };
        assert!(
            of(&[], &[], here).unwrap_err().starts_with("there is no Swarm in namespace \"k\"")
        );
    }

    #[test]
    fn workers_are_known_by_their_names() {
        let mut one = swarm("n", "s");
        for (name, is) in
            [("w-0", true), ("w-10", true), ("w-x", false), ("v-0", false), ("w", false)]
        {
            assert_eq!(dry_run::may_be_of(&one, name), is, "{name}");
        }
        one.spec.workload.kind = crate::api::swarm::WorkloadKind::Deployment;
        for (name, is) in [("w-5d4f-abcde", true), ("w-0", false), ("w-api-5d4f-abcde", false)] {
            assert_eq!(dry_run::may_be_of(&one, name), is, "{name}");
        }
    }
}
