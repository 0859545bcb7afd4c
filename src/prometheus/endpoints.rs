//! The clients of all endpoints, by name.
use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context;

use super::{Client, config::EndpointsConfig};
use crate::metrics::Metrics;

/// The clients of all endpoints; clones share them.
#[derive(Clone)]
pub struct Endpoints(Arc<BTreeMap<String, Client>>);

impl Endpoints {
    /// A client for each endpoint. Says in the log what is allowed but not safe.
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
        Ok(Self(Arc::new(clients)))
    }

    /// The client of one endpoint.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Client> {
        self.0.get(name)
    }

    /// The client of the endpoint that a field of a spec names.
    ///
    /// # Errors
    /// That there is none, and which there are.
    pub fn named(&self, field: &str, name: &str) -> Result<&Client, String> {
        self.get(name).ok_or_else(|| {
            let known = self.names().collect::<Vec<_>>().join(", ");
            format!(
                "{field}: no endpoint {name:?} is configured (there is {known}); see --prometheus-config"
            )
        })
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
