//! An installation that runs some of the kinds.
use std::collections::BTreeSet;

use serde_json::Value;
use traffic_operator::{
    api::{KINDS, KindInfo},
    manifests::{self, WEBHOOK, is_operators},
};

use crate::{
    files::{OPERATOR, files_in, root, yaml},
    objects::{contains, kind, name, render},
};

const ONE_KIND: &str = "deploy/overlays/trafficwatch-only";

#[test]
fn one_kind_alone_has_no_rights_of_the_others() {
    let rendered = render(ONE_KIND);
    let expected: BTreeSet<_> = ["", "-trafficwatch"].map(|s| format!("{OPERATOR}{s}")).into();
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let ours = rendered.all(kind).into_iter().map(name).filter(|name| is_operators(name));
        // That one is Prometheus's; and those that nobody is bound to are for authors.
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
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    for kind in KINDS.iter().map(KindInfo::name).filter(|kind| kind != "TrafficWatch") {
        assert!(contains(args, &format!("--kinds=-{kind}")), "{kind}: {args}");
    }
    assert!(!contains(args, "--kinds=-TrafficWatch"));
    // Without NetworkProbers nobody has to be answered.
    let of_webhook: Vec<_> = rendered.0.iter().filter(|object| name(object) == WEBHOOK).collect();
    assert!(of_webhook.is_empty(), "{of_webhook:?}");
}

/// Each kind can be left out, and with it goes everything that was generated for it alone.
#[test]
fn every_kind_has_a_component_that_leaves_it_out() {
    let all = render("deploy/rbac");
    for kind_ in KINDS {
        let roles = manifests::roles(kind_);
        let dir = format!("deploy/components/without-{}", roles.singular);
        let component: Value = yaml(&root().join(&dir).join("kustomization.yaml"));
        let patches: Vec<Value> = component["patches"]
            .as_array()
            .expect("patches")
            .iter()
            .filter(|patch| patch["target"].is_null())
            .map(|patch| serde_yaml::from_str(patch["patch"].as_str().unwrap_or_default()))
            .collect::<Result<_, _>>()
            .expect("YAML");
        for document in &roles.documents {
            let deleted = patches.iter().any(|patch| {
                patch["$patch"] == "delete"
                    && kind(patch) == kind(document)
                    && name(patch) == name(document)
            });
            assert!(deleted, "{dir} leaves {} {}", kind(document), name(document));
            assert!(all.0.iter().any(|there| name(there) == name(document)));
        }
    }
    let listed = files_in("deploy/rbac", "yaml").len();
    assert_eq!(listed, KINDS.len() + 2, "core.yaml, kustomization.yaml and one for each kind");
}
