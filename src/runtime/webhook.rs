//! The common part of every process for `NetworkProber`s, which knows the pods; and the webhook's
//! part, which answers the API server and the agents.
use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use reqwest::Url;
use tokio::sync::watch as latest;

use super::{Tasks, admin::Readiness, component::Component, first_ended, kinds::Definition};
use crate::{
    infra::{Api, shutdown::Shutdown},
    metrics::Metrics,
    network_prober::{
        Agents, ClusterInjector, PINGLIST_LIMITS, PINGLIST_PATH, REVIEWS, REVIEWS_OF_ONE_SOURCE,
        settings::Tenancy, snapshot::Setup, state::ClusterState,
    },
    nodes::NodeStore,
    serving::{self as http, Limits},
    webhook::{
        certificates::{CertificateKeeper, Certificates, HTTP1, Lifetimes, NAME, PINGLISTS},
        configuration::Endpoint,
        injection::NATIVE_SIDECARS,
        review::Outcome,
        server::{self, Observer, Server},
    },
};

/// Time after a failure until the API server is queried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// The name of the operator's container in its own pod.
const CONTAINER: &str = "operator";

/// The settings of the webhook.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The URL at which it is reached, if not by its Service.
    pub url: Option<Url>,
    /// The address of the pinglists.
    pub pinglist_address: SocketAddr,
    /// The URL at which those are reached, if not by their Service.
    pub pinglist_url: Option<Url>,
    /// The image of agents.
    pub agent_image: Option<String>,
    /// The name of the operator's own pod, if it runs in one.
    pub pod: Option<String>,
    /// The lifetimes of certificates.
    pub lifetimes: Lifetimes,
    /// The URL of the runbooks of `NetworkProber`s' alerts.
    pub runbooks: Option<Url>,
}

impl WebhookConfig {
    /// Returns the address at which the API server finds the webhook.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        match &self.url {
            Some(url) => Endpoint::Url(url.as_str().to_owned()),
            None => Endpoint::Service,
        }
    }

    /// Returns the URL for agents, outside the cluster: on the webhook's host unless configured.
    fn pinglists(&self) -> Option<Url> {
        if self.pinglist_url.is_some() {
            return self.pinglist_url.clone();
        }
        let mut url = self.url.clone()?;
        // An https URL has a port.
        url.set_port(Some(self.pinglist_address.port())).ok()?;
        Some(url)
    }

    fn pinglist_url(&self, namespace: &str) -> String {
        match self.pinglists() {
            Some(url) => format!("{}{PINGLIST_PATH}", url.as_str().trim_end_matches('/')),
            None => format!("https://{PINGLISTS}.{namespace}.svc{PINGLIST_PATH}"),
        }
    }

    /// Returns the names that the certificate must contain.
    #[must_use]
    pub fn names(&self, namespace: &str) -> Vec<String> {
        let mut names = CertificateKeeper::service_names(namespace);
        for url in [self.url.clone(), self.pinglists()].into_iter().flatten() {
            let host = url.host_str().map(ToOwned::to_owned);
            let new = host.filter(|host| !names.contains(host));
            names.extend(new);
        }
        names
    }

    /// Reads the facts that a replica must know about itself from the API server, until it answers.
    async fn setup(&self, client: &Client, namespace: &str) -> Setup {
        let own_image = match &self.agent_image {
            Some(image) => Some(image.clone()),
            None => self.own_image(client, namespace).await,
        };
        Setup {
            tenancy: Tenancy::of(namespace),
            own_image,
            pinglist_url: self.pinglist_url(namespace),
            native_sidecars: native_sidecars(client).await,
            runbooks: self.runbooks.as_ref().map(ToString::to_string),
        }
    }

    /// The image of the operator's own pod; `None` outside of one.
    async fn own_image(&self, client: &Client, namespace: &str) -> Option<String> {
        let pod = self.pod.as_deref()?;
        let api = Api::<Pod>::namespaced(client.clone(), namespace);
        loop {
            match api.get_opt(pod).await {
                Ok(found) => {
                    let containers = found?.spec?.containers;
                    let ours = containers.into_iter().find(|container| container.name == CONTAINER);
                    return ours?.image;
                }
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    tracing::warn!(%status.message, "the operator's own image is not known");
                    return None;
                }
                Err(error) => tracing::warn!(%error, "reading the own pod failed, trying again"),
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

/// Counts the answers of the webhook.
struct Counted(Metrics);

impl Observer for Counted {
    fn answered(&self, outcome: &Outcome, took: Duration) {
        self.0.injection(outcome.result(), outcome.skip_reason(), took);
    }
}

async fn native_sidecars(client: &Client) -> bool {
    loop {
        match client.apiserver_version().await {
            Ok(version) => {
                // Some vendors append a plus sign.
                let number = |text: &str| {
                    text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok()
                };
                let version = (number(&version.major), number(&version.minor));
                return matches!(version, (Some(a), Some(b)) if (a, b) >= NATIVE_SIDECARS);
            }
            Err(error) => tracing::warn!(%error, "asking for the version failed, trying again"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// A process's knowledge of `NetworkProber`s: nothing until they are served.
pub(super) type Prober = latest::Receiver<Option<ClusterState>>;

/// The tasks of a process for `NetworkProber`s.
pub(super) struct Serving {
    pub(super) component: Component,
    pub(super) config: WebhookConfig,
    pub(super) namespace: String,
    pub(super) client: Client,
    pub(super) metrics: Metrics,
    pub(super) nodes: NodeStore,
    pub(super) readiness: Readiness,
    pub(super) certificates: Certificates,
    pub(super) closing: Shutdown,
}

impl Serving {
    /// Registers the conditions of the process's readiness.
    pub(super) fn expect(component: Component, readiness: &Readiness) {
        readiness.expect("networkprobers");
        if component.answers() {
            readiness.expect("certificate");
        }
    }

    /// Starts it now if the definition is served, otherwise as soon as it is; never if the kind
    /// does not run.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(super) async fn begin(
        self,
        definition: Option<Definition>,
        tasks: &mut Tasks,
    ) -> anyhow::Result<Prober> {
        let (tell, prober) = latest::channel(None);
        match definition {
            None => {}
            Some(definition) if definition.is_served() => {
                tell.send_replace(Some(self.start(tasks).await?));
            }
            Some(definition) => {
                tasks.spawn(async move {
                    definition.served().await;
                    let mut tasks = Tasks::new();
                    tell.send_replace(Some(self.start(&mut tasks).await?));
                    Err(first_ended(&mut tasks).await)
                });
            }
        }
        Ok(prober)
    }

    /// Starts what the process runs, and returns what it knows.
    ///
    /// # Errors
    /// When TLS cannot be set up, or an address cannot be bound.
    async fn start(&self, tasks: &mut Tasks) -> anyhow::Result<ClusterState> {
        Self::expect(self.component, &self.readiness);
        let setup = self.config.setup(&self.client, &self.namespace).await;
        let cluster = ClusterState::new(setup, self.nodes.clone());
        tracing::info!(
            agent_image = cluster.setup().own_image.as_deref().unwrap_or("unknown"),
            native_sidecars = cluster.setup().native_sidecars,
            "knowing NetworkProbers"
        );
        self.know(&cluster, tasks);
        if self.component.answers() {
            self.serve_pinglists(&cluster, tasks).await?;
            self.serve_webhook(&cluster, tasks).await?;
        }
        Ok(cluster)
    }

    /// Follows the pods and the certificates, and reports readiness to the kubelet.
    fn know(&self, cluster: &ClusterState, tasks: &mut Tasks) {
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let follow = cluster.clone().follow(client.clone(), metrics.clone());
        tasks.spawn(async move {
            follow.await;
            Ok("watch of NetworkProbers")
        });
        let (follower, namespace) = (self.certificates.clone(), self.namespace.clone());
        let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
        tasks.spawn(async move {
            let never = follower.follow(client, &namespace, metrics).await;
            match never {}
        });
        let (ready, mut bundle) = (self.readiness.clone(), self.certificates.bundle());
        let (known, metrics, component) = (cluster.clone(), self.metrics.clone(), self.component);
        tasks.spawn(async move {
            known.synced().await;
            ready.reached("networkprobers");
            // Without a Secret, no webhook points here yet; while an older version leads, no
            // replica creates one, and a replica that is never ready would keep it leading. The
            // webhook alone never leads.
            let leads = component.controls() && component.answers();
            if leads && matches!(secrets.get_opt(NAME).await, Ok(None)) {
                ready.reached("certificate");
            }
            loop {
                let published = bundle.borrow_and_update().clone();
                // Only replicas that answer export it: an alert fires if none does.
                if let Some(bundle) = published.filter(|_| component.answers()) {
                    ready.reached("certificate");
                    metrics.certificate_ends("ca", bundle.authority_not_after);
                    metrics.certificate_ends("leaf", bundle.leaf_not_after);
                }
                bundle.changed().await.context("the certificates are gone")?;
            }
        });
    }

    /// Starts the server for the API server.
    async fn serve_webhook(&self, cluster: &ClusterState, tasks: &mut Tasks) -> anyhow::Result<()> {
        let injector = Arc::new(ClusterInjector::new(cluster.clone()));
        let router = server::router(injector, Arc::new(Counted(self.metrics.clone())));
        let address = self.config.address;
        let refused = self.metrics.refused_connections("webhook");
        let server = Server::bind(address, &self.certificates, refused).await;
        let server =
            server.with_context(|| format!("--webhook-address {address}: cannot listen"))?;
        tracing::info!(address = %server.address()?, "serving the webhook");
        let served = server.run(router, self.closing.begun());
        tasks.spawn(
            async move { served.await.context("webhook server").map(|()| "webhook server") },
        );
        Ok(())
    }

    /// Starts the server of pinglists: separate from the webhook, so that agents do not delay the
    /// API server.
    async fn serve_pinglists(
        &self,
        cluster: &ClusterState,
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        // Behind a custom URL there may be a proxy, and its address does not identify agents.
        let by_address = self.config.pinglists().is_none();
        let reviews = if by_address { REVIEWS_OF_ONE_SOURCE } else { REVIEWS };
        let of_one_source =
            if by_address { PINGLIST_LIMITS.of_one_source } else { PINGLIST_LIMITS.connections };
        let limits = Limits { of_one_source, ..PINGLIST_LIMITS };
        let (cluster, client) = (cluster.clone(), self.client.clone());
        let agents =
            Agents::new(cluster, client, self.metrics.clone(), self.closing.clone(), reviews);
        // Agents use HTTP/1; one connection of HTTP/2 would carry many requests at once.
        let tls = self.certificates.server_config(&[HTTP1]).context("TLS for pinglists")?;
        let address = self.config.pinglist_address;
        let refused = self.metrics.refused_connections("pinglists");
        let server = http::Server::bind(address, limits, Some(tls), refused).await;
        let server =
            server.with_context(|| format!("--pinglist-address {address}: cannot listen"))?;
        tracing::info!(address = %server.address()?, "serving pinglists");
        let served = server.run(agents.router(), self.closing.begun());
        tasks.spawn(
            async move { served.await.context("pinglists").map(|()| "server of pinglists") },
        );
        Ok(())
    }
}
