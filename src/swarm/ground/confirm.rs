//! Asks the API server itself whether pods are gone.
//!
//! That a pod is absent or has ended frees its streams: its successor reads a file that does not have
//! them. A watch tells that late at times, and of a pod that lost its labels never: a successor that was
//! there before the file changed may run what it read.
use futures::{StreamExt, TryStreamExt};
use kube::{Api, Client, api::ListParams};

use super::{PodFacts, View, objects::WorkerPod, query};

/// Requests at a time.
const CONCURRENCY: usize = 16;

impl View {
    /// Brings what is known of these pods up to date.
    ///
    /// # Errors
    /// When the API server does not answer: then it is not known.
    pub async fn confirm(
        &mut self,
        client: &Client,
        namespace: &str,
        names: impl IntoIterator<Item = String>,
    ) -> kube::Result<()> {
        let api = Api::<WorkerPod>::namespaced(client.clone(), namespace);
        let asks: Vec<_> = names
            .into_iter()
            .map(|name| {
                let api = api.clone();
                // Without a version in the request the answer is not from a cache.
                async move { api.get_opt(&name).await.map(|pod| (name, pod)) }
            })
            .collect();
        let asks = futures::stream::iter(asks).buffer_unordered(CONCURRENCY);
        let answers: Vec<(String, Option<WorkerPod>)> = asks.try_collect().await?;
        for (name, pod) in answers {
            self.pods.retain(|known| *known.name != *name);
            self.pods.extend(pod.as_ref().map(PodFacts::from));
        }
        self.pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    /// Brings what is known of all pods up to date.
    ///
    /// # Errors
    /// When the API server does not answer: then it is not known.
    pub async fn confirm_all(&mut self, client: &Client, namespace: &str) -> kube::Result<()> {
        let Some(selector) = self.workload.as_ref().and_then(query) else { return Ok(()) };
        let api = Api::<WorkerPod>::namespaced(client.clone(), namespace);
        let pods = api.list(&ListParams::default().labels(&selector)).await?;
        self.pods = pods.iter().map(PodFacts::from).collect();
        self.pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }
}
