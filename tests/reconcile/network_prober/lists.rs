//! Pinglists: the list of each agent, its delay, and who gets none.
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{selector, served, with};
use crate::bench::{Bench, Operator, eventually};

/// An agent in a pod, as the operator sees it.
pub struct Agent {
    http: reqwest::Client,
    url: String,
    pub token: String,
}

pub struct Answer {
    pub status: StatusCode,
    pub etag: Option<String>,
    list: Value,
}

impl Answer {
    fn peers(&self) -> Vec<String> {
        let peers = self.list["peers"].as_array().into_iter().flatten();
        peers.map(|peer| peer["key"].as_str().unwrap_or("?").to_owned()).collect()
    }
}

impl Agent {
    pub async fn of(bench: &Bench, operator: &Operator, pod: &Pod) -> Self {
        let map = bench.maps("default").get("np").await.expect("ConfigMap");
        let ca = map.data.expect("data")["ca.crt"].clone();
        let roots = reqwest::Certificate::from_pem_bundle(ca.as_bytes()).expect("ca.crt");
        let http = reqwest::Client::builder().tls_certs_only(roots).build().expect("client");
        let token = bench.token(pod, "traffic-operator").await;
        Self { http, url: format!("{}/pinglist", operator.pinglists), token }
    }

    pub async fn ask(&self, prober: &str, wait: u64, etag: Option<&str>) -> Answer {
        let query = [("prober", prober.to_owned()), ("wait", wait.to_string())];
        let mut request = self.http.get(&self.url).query(&query).bearer_auth(&self.token);
        if let Some(etag) = etag {
            request = request.header("If-None-Match", etag);
        }
        let answer = request.timeout(Duration::from_mins(1)).send().await.expect("an answer");
        let status = answer.status();
        let etag = answer.headers().get("etag").map(|v| v.to_str().expect("text").to_owned());
        let text = answer.text().await.expect("body");
        Answer { status, etag, list: serde_json::from_str(&text).unwrap_or_default() }
    }

    /// Waits until the list has these peers.
    pub async fn until(&self, peers: &[&str]) -> Answer {
        let holds = async || {
            let answer = self.ask("default/np", 0, None).await;
            (answer.peers() == peers).then_some(answer)
        };
        eventually(&format!("peers {peers:?}"), holds).await
    }
}

impl Bench {
    /// A token bound to a pod, as the kubelet projects it.
    pub async fn token(&self, pod: &Pod, audience: &str) -> String {
        let namespace = pod.namespace().expect("namespace");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()}},
        });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
        let answer: Value = self.post(&path, &request).await.expect("token");
        answer["status"]["token"].as_str().expect("token").to_owned()
    }

    pub async fn running_pod(&self, name: &str, ip: &str) -> Pod {
        let pod = self.pod("default", name, json!({})).await;
        self.runs("default", name, ip).await;
        pod
    }
}

#[test]
fn an_agent_gets_its_own_list_and_hears_of_a_change_at_once() {
    served(async |bench, operator| {
        bench.node("node-1").await;
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "east"}}});
        let (params, zone) = (PatchParams::default(), Patch::Merge(zone));
        bench.nodes().patch("node-1", &params, &zone).await.expect("label");
        let spec =
            json!({"probes": ["TCP", "UDP"], "pollingPeriod": "5s", "originalMetrics": false});
        bench.prober("np", with(selector(), &spec)).await;
        bench.intercepted("default").await;
        let pod = bench.running_pod("a", "10.1.0.1").await;
        bench.running_pod("b", "10.1.0.2").await;
        let agent = Agent::of(&bench, &operator, &pod).await;
        let first = agent.until(&["b"]).await;
        assert_eq!(first.status, StatusCode::OK);
        let list = &first.list;
        assert_eq!(list["prober"], "default/np");
        assert_eq!((&list["self"]["name"], &list["self"]["node"]), (&json!("a"), &json!("node-1")));
        assert_eq!(
            (&list["self"]["zone"], &list["peers"][0]["zone"]),
            (&json!("east"), &json!("east"))
        );
        assert_eq!((&list["period"], &list["timeout"]), (&json!("5s"), &json!("1s")));
        assert_eq!(
            (&list["probes"], &list["originalMetrics"]),
            (&json!(["TCP", "UDP"]), &json!(false))
        );
        assert_eq!(list["peers"][0]["ips"], json!(["10.1.0.2"]));
        assert_eq!(list["peers"][0]["port"], 22080);
        // An unchanged list is answered with 304 only.
        let etag = first.etag.expect("etag");
        let same = agent.ask("default/np", 1, Some(&etag)).await;
        assert_eq!((same.status, same.etag.as_deref()), (StatusCode::NOT_MODIFIED, Some(&*etag)));
        // A waiting agent receives the change.
        let waiting = agent.ask("default/np", 40, Some(&etag));
        let change = async {
            let waits = async || {
                let agents = operator.metric("traffic_operator_networkprober_pinglist_agents", &[]);
                (agents.await > 0.0).then_some(())
            };
            eventually("the agent to wait", waits).await;
            bench.running_pod("c", "10.1.0.3").await
        };
        let (changed, _) = futures::future::join(waiting, change).await;
        assert_eq!(
            (changed.status, changed.peers()),
            (StatusCode::OK, vec!["b".into(), "c".into()])
        );
        let version = bench.prober_status("np").await["pinglistVersion"].clone();
        bench.pods("default").delete("b", &DeleteParams::default()).await.expect("delete");
        agent.until(&["c"]).await;
        let other =
            async || (bench.prober_status("np").await["pinglistVersion"] != version).then_some(());
        eventually("another version", other).await;
        let answered = operator
            .metric("traffic_operator_networkprober_pinglist_requests_total", &["code=\"304\""])
            .await;
        assert!(answered >= 1.0, "{answered}");
    });
}

#[test]
fn nobody_gets_a_list_that_is_not_its_own() {
    served(async |bench, operator| {
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        let pod = bench.running_pod("a", "10.1.0.1").await;
        let agent = Agent::of(&bench, &operator, &pod).await;
        agent.until(&[]).await;
        assert_eq!(agent.ask("default/other", 0, None).await.status, StatusCode::NOT_FOUND);
        let with_token = async |token: &str| {
            let agent =
                Agent { http: agent.http.clone(), url: agent.url.clone(), token: token.into() };
            agent.ask("default/np", 0, None).await.status
        };
        assert_eq!(with_token("nonsense").await, StatusCode::UNAUTHORIZED);
        // A token for the API server is not valid for the operator.
        let foreign = bench.token(&pod, "https://kubernetes.default.svc").await;
        assert_eq!(with_token(&foreign).await, StatusCode::UNAUTHORIZED);
        let unselected = json!({"metadata": {"labels": {"app": "other"}}});
        let stranger = bench.pod("default", "stranger", unselected).await;
        let stranger = bench.token(&stranger, "traffic-operator").await;
        assert_eq!(with_token(&stranger).await, StatusCode::FORBIDDEN);
        let bare = agent.http.get(&agent.url).send().await.expect("answer").status();
        assert_eq!(bare, StatusCode::UNAUTHORIZED);
    });
}
