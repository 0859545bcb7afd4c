//! The API server, as the person at the terminal reaches it.
use std::path::PathBuf;

use anyhow::Context;
use kube::{
    Client, ResourceExt,
    api::ListParams,
    config::{Config, KubeConfigOptions, Kubeconfig},
};

use crate::{
    api::Kind,
    controller::Error,
    infra::{Api, client, lease::Fence, watch::Metadata},
    metrics::Metrics,
};

/// Maximum number of objects that a message names.
const NAMED: usize = 5;

/// The cluster and the identity.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// A kubeconfig instead of those of the environment.
    pub kubeconfig: Option<PathBuf>,
    /// A context instead of the current one.
    pub context: Option<String>,
}

impl Access {
    /// Returns a client that cannot write: the fence that every write must pass is closed.
    ///
    /// # Errors
    /// When there is no such cluster in the configuration.
    pub async fn reading(&self) -> anyhow::Result<Client> {
        client::with_config(self.config().await?, Fence::default(), Metrics::new())
    }

    /// Returns a client that may create reviews of permissions, as `user` if there is one.
    ///
    /// # Errors
    /// When there is no such cluster in the configuration.
    pub async fn asking(&self, user: Option<&str>) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        if let Some(user) = user {
            config.auth_info.impersonate = Some(user.to_owned());
        }
        client::with_config(config, Fence::open(), Metrics::new())
    }

    /// Returns the given namespace, or that of the context.
    ///
    /// # Errors
    /// When there is no such cluster in the configuration.
    pub async fn namespace(&self, given: Option<&str>) -> anyhow::Result<String> {
        match given {
            Some(namespace) => Ok(namespace.to_owned()),
            None => Ok(self.config().await?.default_namespace),
        }
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("--kubeconfig {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .with_context(|| format!("--kubeconfig {}", path.display()))
            }
            None if self.context.is_some() => {
                Config::from_kubeconfig(&options).await.context("--context")
            }
            None => Config::infer()
                .await
                .context("no cluster: set KUBECONFIG or --kubeconfig, or run in a pod"),
        }
    }
}

/// Describes an error of the API server in one line, with the server's message if there is one.
#[must_use]
pub fn describe(action: &'static str, error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            format!("{action}: {}", status.message)
        }
        error => Error::kube(action)(error).to_text(),
    }
}

/// Returns the object of this name, if it exists.
///
/// The account of the operator, which runs commands in a pod of it, may list objects of its kinds
/// but not get one by name: a list of one name needs no further right.
///
/// # Errors
/// The error of the API server; if it refuses both, that of the read by name.
pub async fn find<K: Kind>(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
) -> kube::Result<Option<K>> {
    let api: Api<K> = K::api(client.clone(), namespace);
    let refused = match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => kube::Error::Api(status),
        answer => return answer,
    };
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    match api.list(&only).await {
        Ok(found) => Ok(found.items.into_iter().next()),
        Err(_) => Err(refused),
    }
}

/// Reads one object; `action` names the refused operation in an error.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn read<K: Kind>(
    client: &Client,
    action: &'static str,
    namespace: Option<&str>,
    name: &str,
) -> anyhow::Result<K> {
    let found = find(client, namespace, name).await;
    match found.map_err(|error| anyhow::anyhow!(describe(action, error)))? {
        Some(object) => Ok(object),
        None => anyhow::bail!(no_such::<K>(client, namespace, name).await),
    }
}

/// Every object of a kind that can be read, and the names of those that cannot, with the reason.
#[derive(Debug)]
pub struct Listed<K> {
    /// Objects that this version can read, by namespace and name.
    pub read: Vec<K>,
    /// The others.
    pub unreadable: Vec<(String, String)>,
}

/// Lists the objects of all namespaces.
///
/// # Errors
/// The error of the API server.
pub async fn list<K: Kind>(client: &Client) -> kube::Result<Listed<K>> {
    let api = Api::<K>::all(client.clone());
    let mut listed = Listed { read: vec![], unreadable: vec![] };
    for object in api.each().list(&ListParams::default()).await? {
        let name = name_of(&object);
        match object.0 {
            Ok(object) => listed.read.push(object),
            Err(invalid) => listed.unreadable.push((name, invalid.error)),
        }
    }
    listed.read.sort_by_key(name_of);
    Ok(listed)
}

/// Returns the message for an object that does not exist, with the existing ones of its kind.
async fn no_such<K: Kind>(client: &Client, namespace: Option<&str>, name: &str) -> String {
    let kind = K::kind(&());
    let place = namespace.map_or_else(String::new, |ns| format!(" in namespace {ns:?}"));
    // Without the permission to list, there is nothing to suggest.
    let all = Api::<Metadata<K>>::all(client.clone()).list(&ListParams::default()).await;
    let all: Vec<_> = all.iter().flatten().map(name_of).collect();
    let mut elsewhere = all.iter().filter_map(|other| other.split_once('/'));
    let hint = match elsewhere.find(|(_, other)| *other == name) {
        Some((other, _)) => format!("there is one in namespace {other}: -n {other}"),
        None if all.is_empty() => "there is none, or you may not list them".into(),
        None => {
            format!("there are {}", all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "))
        }
    };
    format!("there is no {kind} {name:?}{place}; {hint}")
}

/// Returns `namespace/name`, or only the name if there is no namespace.
#[must_use]
pub fn name_of<K: ResourceExt>(object: &K) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}
