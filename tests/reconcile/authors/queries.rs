//! An author's own PromQL: only for authors who may use the endpoint.
use serde_json::{Value, json};

use super::{Author, Kind, SET, SWARM, WATCH, bind_everywhere, cluster_role, kinds, refused, rule};
use crate::bench::{Bench, eventually, run};

fn endpoint(name: &str) -> Value {
    json!({"apiGroups": ["traffic.example.com"], "resources": ["prometheusendpoints"],
        "resourceNames": [name], "verbs": ["use"]})
}

fn right(user: &str, endpoint: &str) -> String {
    format!(
        "user '{user}' has no right to use prometheusendpoints.traffic.example.com {endpoint} in \
         namespace team-a, which own PromQL needs; grant it with: kubectl create \
         rolebinding 'own-queries:{user}' -n team-a --clusterrole=traffic-operator-own-queries \
         --user='{user}'"
    )
}

fn criteria(queries: &[&str]) -> Value {
    let criterion =
        |(i, query): (usize, &&str)| json!({"name": format!("c-{i}"), "query": query, "max": 1});
    queries.iter().enumerate().map(criterion).collect()
}

#[test]
fn a_tenant_asks_prometheus_nothing_of_its_own() {
    run(async |bench| {
        let jane = Author::tenant(&bench, "jane-queries").await;
        let query = json!({"query": "secrets", "window": null});
        let elsewhere = json!({"criteria": criteria(&["secrets"]), "prometheus": "thanos"});
        let weights = json!({"weights": {"query": "secrets"}});
        for (kind, spec, field, endpoint) in [
            (WATCH, query, "spec.query: ", "default"),
            (WATCH, json!({"criteria": criteria(&["secrets"])}), "spec.criteria: ", "default"),
            (WATCH, elsewhere, "spec.criteria: ", "thanos"),
            (SWARM, weights, "spec.weights.query: ", "default"),
            (
                SWARM,
                json!({"weights": {"query": "x", "prometheus": "thanos"}}),
                "spec.weights.query: ",
                "thanos",
            ),
        ] {
            let right = right("jane-queries", endpoint);
            refused(jane.try_create(kind, spec.clone()).await, &[field, &right]);
            // Observe queries as well.
            let mut observe = spec;
            observe["mode"] = "Observe".into();
            refused(jane.try_create(kind, observe).await, &[field, &right]);
        }
        // The built-in measurement is no secret, at any endpoint; nor are weights in a list.
        jane.try_create(WATCH, json!({"prometheus": "thanos"})).await.expect("the built-in query");
        jane.try_create(WATCH, json!({"criteria": []})).await.expect("no query");
        jane.try_create(SWARM, json!({})).await.expect("no weights");
        let root = Author::administrator(&bench, "root-queries").await;
        for (kind, spec) in [
            (WATCH, json!({"query": "x", "window": null, "criteria": criteria(&["y"])})),
            (SWARM, json!({"weights": {"query": "x", "prometheus": "thanos"}})),
            (SET, json!({"transition": {"query": "x", "prometheus": "thanos"}})),
        ] {
            root.try_create(kind, spec).await.unwrap_or_else(|e| panic!("{}: {e}", kind.name));
        }
    });
}

#[test]
fn who_may_use_an_endpoint_asks_it_and_no_other() {
    run(async |bench| {
        let thanos = endpoint("thanos");
        let ann = Author::with_rules(&bench, "ann", &[kinds(), thanos.clone()]).await;
        ann.until_granted(&bench, &thanos).await;
        asks(&ann, "thanos", "default").await;
        // The same through a binding for the whole cluster.
        let bob = Author::with_rules(&bench, "bob", &[kinds()]).await;
        everywhere(&bench, "bob-queries", "bob", endpoint("default")).await;
        bob.until_granted(&bench, &endpoint("default")).await;
        asks(&bob, "default", "thanos").await;
    });
}

async fn everywhere(bench: &Bench, name: &str, user: &str, rule: Value) {
    cluster_role(bench, name, &[rule]).await;
    bind_everywhere(bench, name, user, name).await;
}

async fn asks(author: &Author, mine: &str, other: &str) {
    let watch = |endpoint: &str| json!({"criteria": criteria(&["x"]), "prometheus": endpoint});
    let swarm = |endpoint: &str| json!({"weights": {"query": "x", "prometheus": endpoint}});
    for (kind, of) in [(WATCH, &watch as &dyn Fn(&str) -> Value), (SWARM, &swarm)] {
        author.try_create(kind, of(mine)).await.unwrap_or_else(|e| panic!("{}: {e}", kind.name));
        refused(author.try_create(kind, of(other)).await, &[&right(&author.user, other)]);
    }
}

#[test]
fn route_reflector_sets_ask_with_a_right_of_the_cluster() {
    run(async |bench| {
        let net = Author::of(&bench, "net").await;
        let sets = rule("traffic.example.com", "routereflectorsets", &["*"]);
        everywhere(&bench, "net-sets", "net", sets).await;
        let allowed = async || net.try_create(SET, json!({})).await.ok();
        eventually("the rights of the author", allowed).await;
        let own = json!({"transition": {"query": "x", "prometheus": "thanos"}});
        let right = "spec.transition.query: user 'net' has no right to use \
            prometheusendpoints.traffic.example.com thanos, which own PromQL needs; grant \
            it with: kubectl create clusterrolebinding 'own-queries:net' \
            --clusterrole=traffic-operator-own-queries --user='net'";
        refused(net.try_create(SET, own.clone()).await, &[right]);
        net.try_create(SET, json!({"transition": {"prometheus": "thanos"}}))
            .await
            .expect("built in");
        // Only changes are checked.
        let root = Author::administrator(&bench, "root-sets").await;
        root.create(SET, "main", with_mode(own.clone())).await.expect("main");
        net.patch(SET, "main", json!({"spec": {"count": {"max": 9}}}))
            .await
            .expect("another field");
        let other = json!({"spec": {"transition": {"query": "y"}}});
        refused(net.patch(SET, "main", other.clone()).await, &[right]);
        let elsewhere = json!({"spec": {"transition": {"prometheus": "default"}}});
        let text = "no right to use prometheusendpoints.traffic.example.com default, which";
        refused(net.patch(SET, "main", elsewhere).await, &[text]);
        everywhere(&bench, "net-queries", "net", endpoint("thanos")).await;
        let allowed = async || net.patch(SET, "main", other.clone()).await.ok();
        eventually("the right to the endpoint", allowed).await;
        net.delete(SET, "main").await.expect("delete");
    });
}

/// No operator reconciles it here.
fn with_mode(mut spec: Value) -> Value {
    spec["mode"] = "Observe".into();
    spec
}

#[test]
fn queries_that_are_there_already_may_stay_or_go() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-there").await;
        let jane = Author::tenant(&bench, "jane-there").await;
        let spec = json!({"query": "a", "window": null, "criteria": criteria(&["b", "c"])});
        root.create(WATCH, "web", spec).await.expect("web");
        let right = right("jane-there", "default");
        let mut max = criteria(&["b", "c"]);
        max[0]["max"] = 2.into();
        for spec in [
            json!({"maxBandwidthPercent": "70"}),
            json!({"criteria": max}),
            json!({"criteria": criteria(&["c", "b"])}),
        ] {
            jane.change("web", spec.clone()).await.unwrap_or_else(|e| panic!("{spec}: {e}"));
        }
        for spec in [
            json!({"query": "d"}),
            json!({"criteria": criteria(&["b", "c", "d"])}),
            json!({"criteria": criteria(&["b "])}),
            json!({"mode": "Observe", "query": "d"}),
        ] {
            refused(jane.change("web", spec).await, &[&right]);
        }
        let elsewhere = json!({"prometheus": "thanos"});
        refused(
            jane.change("web", elsewhere).await,
            &["prometheusendpoints.traffic.example.com thanos"],
        );
        jane.change("web", json!({"criteria": criteria(&["b"])})).await.expect("less");
        refused(jane.change("web", json!({"criteria": criteria(&["c"])})).await, &[&right]);
        jane.change("web", json!({"query": null, "criteria": null})).await.expect("none");
        // The same for a Swarm.
        let weights = json!({"weights": {"query": "a"}, "mode": "Observe"});
        let swarm: Kind = SWARM;
        root.create(swarm, "streams", weights).await.expect("streams");
        jane.patch(swarm, "streams", json!({"spec": {"jobs": ["stream:2"]}}))
            .await
            .expect("another");
        let query = json!({"spec": {"weights": {"query": "b"}}});
        refused(jane.patch(swarm, "streams", query).await, &["spec.weights.query: ", &right]);
        jane.patch(swarm, "streams", json!({"spec": {"weights": null}})).await.expect("none");
        jane.delete(swarm, "streams").await.expect("delete");
    });
}
