//! Reads what a pod serves on its own loopback, by a port-forward as kubectl makes one.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::net::TcpListener;

use super::Cluster;

/// The deadline of a request, which passes the API server, the kubelet and the container runtime.
const LIMIT: Duration = Duration::from_secs(10);

/// Gets a path from a port of a pod.
pub async fn get(
    client: &Client,
    (namespace, pod, port): (&str, &str, u16),
    path: &str,
) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let what = || format!("forwarding port {port} of pod {namespace}/{pod}");
    let mut forward = pods.portforward(pod, &[port]).await.with_context(what)?;
    let mut inside = forward.take_stream(port).with_context(what)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}{path}", listener.local_addr()?);
    let relay = async {
        let (mut outside, _) = listener.accept().await?;
        tokio::io::copy_bidirectional(&mut outside, &mut inside).await?;
        // The answer may still be on its way through the client.
        std::future::pending::<Result<()>>().await
    };
    let ask = async {
        let http = reqwest::Client::builder().timeout(LIMIT).no_proxy().build()?;
        anyhow::Ok(http.get(url).send().await?.error_for_status()?.text().await?)
    };
    let answer = tokio::select! {
        answer = ask => answer,
        ended = relay => ended.map(|()| String::new()),
    };
    forward.abort();
    answer.with_context(what)
}

impl Cluster {
    /// Gets a path from a port of a pod, which may listen on loopback only.
    pub async fn get_in_pod(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> Result<String> {
        get(&self.client()?, (namespace, pod, port), path).await
    }
}
