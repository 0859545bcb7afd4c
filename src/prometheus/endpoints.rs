//! The clients of all endpoints, by name.
use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context;

use super::{Budget, Client, Late, Payer, Permit, QueryError, config::EndpointsConfig};
use crate::metrics::Metrics;

/// The clients of all endpoints, and their common budget; clones share them.
#[derive(Clone)]
pub struct Endpoints {
    clients: Arc<BTreeMap<String, Client>>,
    budget: Budget,
}

impl Endpoints {
    /// Creates a client for each endpoint. Logs settings that are allowed but unsafe.
    ///
    /// # Errors
    /// When a client cannot be built.
    #[allow(clippy::needless_pass_by_value, reason = "a handle, kept by each client")]
    pub fn new(config: &EndpointsConfig, metrics: Metrics) -> anyhow::Result<Self> {
        let mut clients = BTreeMap::new();
        for endpoint in config.iter() {
            let name = endpoint.name();
            let client = Client::new(endpoint, metrics.clone())
                .with_context(|| format!("endpoint {name} of Prometheus"))?;
            let url = client.url();
            if endpoint.exposes_credentials() {
                tracing::warn!(endpoint = name, url, "credentials are sent unencrypted: use https");
            }
            if client.insecure() {
                tracing::warn!(endpoint = name, url, "certificate is not verified: use tls.caFile");
            }
            clients.insert(name.to_owned(), client);
        }
        let budget = Budget::new(clients.len());
        Ok(Self { clients: Arc::new(clients), budget })
    }

    /// Returns the client of one endpoint.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Client> {
        self.clients.get(name)
    }

    /// Returns the client of the endpoint that a field of a spec names. An object without a
    /// namespace, which only an administrator can create, may use all of them.
    ///
    /// # Errors
    /// When the name is unknown (the message lists the known ones), or not allowed for this
    /// namespace.
    pub fn named(
        &self,
        field: &str,
        name: &str,
        namespace: Option<&str>,
    ) -> Result<&Client, String> {
        let allowed = |client: &&Client| namespace.is_none_or(|namespace| client.allows(namespace));
        match self.get(name) {
            Some(client) if allowed(&client) => Ok(client),
            Some(_) => Err(format!(
                "{field}: endpoint {name:?} is not for objects in namespace {}: its allowedNamespaces in \
                 --prometheus-config do not list it",
                namespace.unwrap_or_default()
            )),
            None => {
                // The names of endpoints for other namespaces are not shown.
                let known = self.clients.values().filter(allowed).map(Client::name);
                let known = known.collect::<Vec<_>>().join(", ");
                Err(format!(
                    "{field}: no endpoint {name:?} is configured (there is {known}); see --prometheus-config"
                ))
            }
        }
    }

    /// Waits for the permission to make one request to one of them.
    pub fn permit(&self, endpoint: &str, payer: &Payer) -> impl Future<Output = Permit> {
        self.budget.permit(endpoint, payer)
    }

    /// Returns the error for an object that has no answer of an endpoint, and counts the request
    /// if it was not sent.
    #[must_use]
    pub fn late(&self, endpoint: &str, late: Late, payer: &Payer) -> QueryError {
        let error = late.error(payer);
        if late == Late::Permit
            && let Some(client) = self.get(endpoint)
        {
            client.not_asked(&error);
        }
        error
    }

    /// Iterates over the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.clients.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::prometheus::Class;
    use crate::prometheus::testing::{Directory, provider};

    #[test]
    fn an_object_without_an_answer_counts_a_request_only_if_none_was_sent() {
        provider();
        let config = EndpointsConfig::load(None, None, Duration::from_secs(1)).unwrap();
        let metrics = Metrics::new();
        let endpoints = Endpoints::new(&config, metrics.clone()).unwrap();
        let refused = || {
            let page = metrics.encode().unwrap();
            page.lines().filter(|line| line.contains("OverBudget") && line.ends_with(" 1")).count()
        };
        let payer = Payer::Own("a".into());
        let error = endpoints.late("default", Late::Answer, &payer);
        assert_eq!((error.class.reason(), refused()), (Class::Timeout.reason(), 0));
        let error = endpoints.late("default", Late::Permit, &payer);
        assert_eq!((error.class.reason(), refused()), ("OverBudget", 1));
    }

    #[test]
    fn an_endpoint_is_for_the_namespaces_it_lists() {
        provider();
        let directory = Directory::new();
        let file = directory.write(
            "endpoints.yaml",
            "endpoints:\n  edge: {url: 'http://e', allowedNamespaces: [team-a, team-b]}\n  \
             nobody: {url: 'http://n', allowedNamespaces: []}\n  \
             all: {url: 'http://a', allowedNamespaces: ['*']}\n",
        );
        let config = EndpointsConfig::load(Some(&file), None, Duration::from_secs(1)).unwrap();
        let endpoints = Endpoints::new(&config, Metrics::new()).unwrap();
        let named =
            |name, namespace| endpoints.named("spec.prometheus", name, namespace).map(Client::name);
        assert_eq!(named("edge", Some("team-b")), Ok("edge"));
        assert_eq!(named("default", Some("team-c")), Ok("default"));
        assert_eq!(named("all", Some("team-c")), Ok("all"));
        // For cluster-scoped objects.
        assert_eq!(named("edge", None), Ok("edge"));
        assert_eq!(named("nobody", None), Ok("nobody"));
        for (name, namespace) in [("edge", "team-c"), ("edge", ""), ("nobody", "team-a")] {
            let error = named(name, Some(namespace)).unwrap_err();
            let words =
                format!("spec.prometheus: endpoint {name:?} is not for objects in namespace");
            assert!(error.starts_with(&words), "{error}");
        }
        let error = named("edges", Some("team-c")).unwrap_err();
        assert!(error.contains("there is all, default)"), "{error}");
    }
}
