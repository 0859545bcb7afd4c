//! The kinds that this process runs: the configured ones, each as soon as its CRD is served.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    time::Duration,
};

use futures::future::join_all;
use kube::{Client, CustomResourceExt, Resource, core::ApiResource};

use crate::api::KINDS;

/// Time between two checks for a missing CRD: `GitOps` tools apply the operator before the CRDs,
/// and one small GET in half a minute costs nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Time after a failure until the API server is queried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// One word of `--kinds`: `Swarm`, or `-Swarm` for all but this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    name: String,
    without: bool,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (without, name) = match text.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, text),
        };
        let names: Vec<_> = KINDS.iter().map(crate::api::KindInfo::name).collect();
        match names.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(known) => Ok(Self { name: known.clone(), without }),
            None => Err(format!("no such kind; the kinds are {}", names.join(", "))),
        }
    }
}

/// The configured kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(BTreeSet<String>);

impl Default for Kinds {
    fn default() -> Self {
        Self(KINDS.iter().map(crate::api::KindInfo::name).collect())
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

impl Kinds {
    /// Returns the named kinds, or all, without those with a minus.
    ///
    /// # Errors
    /// When none is left.
    pub fn of(choices: &[Choice]) -> Result<Self, String> {
        let named: BTreeSet<_> =
            choices.iter().filter(|c| !c.without).map(|c| c.name.clone()).collect();
        let mut kinds = if named.is_empty() { Self::default() } else { Self(named) };
        for choice in choices.iter().filter(|choice| choice.without) {
            kinds.0.remove(&choice.name);
        }
        if kinds.0.is_empty() { Err("--kinds leaves none".into()) } else { Ok(kinds) }
    }

    /// Reports whether this kind is among them.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// A configured kind, and whether its CRD was served at startup.
#[derive(Clone)]
pub struct Definition {
    client: Client,
    name: String,
    plural: String,
    group_version: String,
    served: bool,
}

impl Definition {
    /// Checks once whether the CRD of a kind is served; logs it if not. Retries until the API
    /// server answers. `None` when the kind is not configured.
    pub async fn find<K: CustomResourceExt>(client: &Client, kinds: &Kinds) -> Option<Self> {
        Self::look_for(client, kinds, K::api_resource()).await
    }

    async fn look_for(client: &Client, kinds: &Kinds, resource: ApiResource) -> Option<Self> {
        if !kinds.has(&resource.kind) {
            return None;
        }
        let mut found = Self {
            client: client.clone(),
            name: resource.kind,
            plural: resource.plural,
            group_version: resource.api_version,
            served: false,
        };
        found.served = found.look().await;
        if !found.served {
            tracing::warn!(
                kind = found.name,
                "its definition is not installed: off until it is (kubectl apply -k deploy/crds), or \
                 for good with --kinds=-{}; looking again every {} s",
                found.name,
                LOOK_AGAIN.as_secs()
            );
        }
        Some(found)
    }

    /// Reports whether it was served at startup: only then does readiness wait for it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.served
    }

    /// Returns when the definition is served.
    pub async fn served(&self) {
        if self.served {
            return;
        }
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if self.look().await {
                tracing::info!(kind = self.name, "its definition is there now");
                return;
            }
        }
    }

    async fn look(&self) -> bool {
        loop {
            match self.client.list_api_group_resources(&self.group_version).await {
                Ok(list) => return list.resources.iter().any(|r| r.name == self.plural),
                // The API server does not serve the group; the answer is not a Status object, so it
                // has no reason.
                Err(kube::Error::Api(status)) if status.code == 404 => return false,
                Err(error) => {
                    tracing::warn!(%error, kind = self.name, "discovery failed, trying again");
                }
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

/// The CRDs of all configured kinds, by name.
#[derive(Clone)]
pub struct Definitions(BTreeMap<String, Definition>);

impl Definitions {
    /// Looks for each of them once.
    pub async fn find(client: &Client, kinds: &Kinds) -> Self {
        let all = KINDS.iter().map(|kind| Definition::look_for(client, kinds, (kind.resource)()));
        let found = join_all(all).await.into_iter().flatten();
        Self(found.map(|definition| (definition.name.clone(), definition)).collect())
    }

    /// The CRD of one kind; `None` when the kind is not configured.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(&self) -> Option<Definition> {
        self.0.get(&*K::kind(&())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<String, String> {
        let choices = words.iter().map(|w| w.parse()).collect::<Result<Vec<_>, _>>()?;
        Kinds::of(&choices).map(|kinds| kinds.to_string())
    }

    #[test]
    fn words_add_and_take_away() {
        let all = "NetworkProber, RouteReflectorSet, Swarm, TrafficWatch";
        assert_eq!(of(&[]).unwrap(), all);
        assert_eq!(of(&["Swarm", "trafficwatch"]).unwrap(), "Swarm, TrafficWatch");
        assert_eq!(of(&["-Swarm", "-NetworkProber"]).unwrap(), "RouteReflectorSet, TrafficWatch");
        assert_eq!(of(&["Swarm", "TrafficWatch", "-Swarm"]).unwrap(), "TrafficWatch");
        assert!(of(&["Swarm", "-Swarm"]).unwrap_err().contains("none"));
        assert!(of(&["Swarms"]).unwrap_err().contains("TrafficWatch, NetworkProber"));
    }
}
