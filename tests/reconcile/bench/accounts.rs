//! The accounts with which a test calls the API server.
use std::path::PathBuf;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use lab::fault::Proxy;
use traffic_operator::manifests;

use super::Bench;

/// The account under which the operator writes; one process does everything under it, unless a test
/// decides otherwise.
pub const ACCOUNT: &str = "system:serviceaccount:traffic-operator-system:traffic-operator";

/// The name under which the webhook alone reads.
pub const WEBHOOK_ACCOUNT: &str =
    "system:serviceaccount:traffic-operator-system:traffic-operator-webhook";

const GROUPS: [&str; 2] = ["system:serviceaccounts", "system:authenticated"];

impl Bench {
    pub fn kubeconfig_of(&self, account: &str) -> PathBuf {
        self.plane.kubeconfig_for(account, &GROUPS).expect("kubeconfig")
    }

    /// A client with the rights of the operator, for a test's own requests under its account.
    pub async fn as_operator(&self) -> Client {
        Client::try_from(self.operators_config().await).expect("client")
    }

    /// A client for the operator's own code in this process: its requests count as the operator's.
    pub async fn operators_code(&self) -> Client {
        let mut config = self.operators_config().await;
        let agent = traffic_operator::USER_AGENT.parse().expect("header");
        config.headers.push((http::header::USER_AGENT, agent));
        // Like the operator's own client, it fails at once if a server cannot answer.
        config.default_retry = false;
        Client::try_from(config).expect("client")
    }

    /// A proxy with faults, whose clients are the operator for the API server.
    pub async fn proxy(&self) -> Proxy {
        Proxy::before_api_server(self.plane, ACCOUNT, &GROUPS).await.expect("proxy")
    }

    /// A client of any user; RBAC decides what it may do.
    pub async fn as_user(&self, user: &str, groups: &[&str]) -> Client {
        Client::try_from(self.config_of(user, groups).await).expect("client")
    }

    async fn operators_config(&self) -> kube::Config {
        self.config_of(ACCOUNT, &GROUPS).await
    }

    async fn config_of(&self, user: &str, groups: &[&str]) -> kube::Config {
        let path = self.plane.kubeconfig_for(user, groups).expect("kubeconfig");
        let file = kube::config::Kubeconfig::read_from(path).expect("kubeconfig");
        let options = kube::config::KubeConfigOptions::default();
        kube::Config::from_custom_kubeconfig(file, &options).await.expect("config")
    }
}

impl Bench {
    /// Takes these verbs for a resource from the operator's roles, which it returns as they were.
    pub async fn deny(&self, resource: &str, verbs: &[&str]) -> Vec<ClusterRole> {
        let roles = Api::<ClusterRole>::all(self.client.clone());
        let mut granted = roles.list(&ListParams::default()).await.expect("roles").items;
        granted.retain(|role| manifests::is_operators(&role.name_any()));
        let mut denied = granted.clone();
        for rules in denied.iter_mut().filter_map(|role| role.rules.as_mut()) {
            for rule in rules.iter_mut() {
                if rule.resources.as_ref().is_some_and(|all| all.iter().any(|r| r == resource)) {
                    rule.verbs.retain(|verb| !verbs.contains(&verb.as_str()));
                }
            }
            rules.retain(|rule| !rule.verbs.is_empty());
        }
        self.grant(denied).await;
        granted
    }

    /// Replaces roles.
    pub async fn grant(&self, roles: Vec<ClusterRole>) {
        let api = Api::<ClusterRole>::all(self.client.clone());
        for mut role in roles {
            let name = role.name_any();
            let now = api.get(&name).await.expect("role");
            role.metadata.resource_version = now.metadata.resource_version;
            api.replace(&name, &PostParams::default(), &role).await.expect("replace");
        }
    }
}
