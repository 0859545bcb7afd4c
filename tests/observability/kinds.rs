//! An installation that runs only some of the kinds.
use std::collections::BTreeSet;

use traffic_operator::{
    api::{KINDS, KindInfo},
    manifests::{WEBHOOK, is_operators},
};

use crate::{
    files::OPERATOR,
    objects::{name, render},
};

const ONE_KIND: &str = "deploy/overlays/trafficwatch-only";

#[test]
fn one_kind_alone_has_no_rights_of_the_others() {
    let rendered = render(ONE_KIND);
    let expected: BTreeSet<_> = ["", "-trafficwatch"].map(|s| format!("{OPERATOR}{s}")).into();
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let ours = rendered.all(kind).into_iter().map(name).filter(|name| is_operators(name));
        // That role is Prometheus's, and unbound roles are for authors.
        let ours = ours.filter(|name| *name != "traffic-operator-prometheus-k8s");
        let bound = |role: &str| {
            let bindings = rendered.all("ClusterRoleBinding");
            bindings.iter().any(|binding| binding["roleRef"]["name"] == role)
        };
        let ours = ours.filter(|name| kind != "ClusterRole" || bound(name));
        assert_eq!(ours.map(str::to_owned).collect::<BTreeSet<_>>(), expected, "{kind}");
    }
    let roles = rendered.all("Role").into_iter().map(name).filter(|name| is_operators(name));
    assert_eq!(roles.collect::<Vec<_>>(), [OPERATOR]);
    let deployment = rendered.one("Deployment", OPERATOR);
    let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let mut env = env.as_array().expect("env").iter();
    let kinds = env.find(|variable| variable["name"] == "TRAFFIC_OPERATOR_KINDS").expect("kinds");
    let mut kinds: Vec<_> = kinds["value"].as_str().expect("text").split(',').collect();
    kinds.sort_unstable();
    let expected = KINDS.iter().map(KindInfo::name).map(|kind| match &*kind {
        "TrafficWatch" => kind,
        _ => format!("-{kind}"),
    });
    assert_eq!(kinds.iter().map(ToString::to_string).collect::<BTreeSet<_>>(), expected.collect());
    // Without NetworkProbers there are no agents to answer.
    let of_webhook: Vec<_> = rendered.0.iter().filter(|object| name(object) == WEBHOOK).collect();
    assert!(of_webhook.is_empty(), "{of_webhook:?}");
}
