//! The scripts of `make deploy` and `make undeploy`, with a kubectl in front of the real one.
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use lab::newcomer::commands;
use traffic_operator::api::KINDS;

use crate::rendering::{NAMESPACE, id, objects, read, root, run, scratch, tool};

/// Writes a program that answers some commands itself; `$real` is kubectl.
fn kubectl(dir: &Path, cases: &str) -> std::path::PathBuf {
    let path = dir.join("kubectl");
    let real = tool("kubectl");
    let text = format!(
        "#!/bin/sh\ndir='{}'\ncase \"$*\" in\n{cases}\n  kustomize*) exec '{}' \"$@\" ;;\nesac\n",
        dir.display(),
        real.display()
    );
    fs::write(&path, text).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path
}

/// Runs a script with this kubectl, and returns its output, or its standard error if it fails.
fn script(name: &str, kubectl: &Path, variables: &[(&str, &str)]) -> Result<String, String> {
    let mut command = Command::new(root().join("hack").join(name));
    command.env("KUBECTL", kubectl).env_remove("NAMESPACE").env_remove("OVERLAY");
    command.env_remove("IMG").env_remove("IMG_GIVEN").envs(variables.iter().copied());
    run(&mut command)
}

/// Kubectl fails on a kind that the cluster lacks, before it waits for the rest.
#[test]
fn undeploy_leaves_out_what_the_cluster_cannot_have() {
    let answer = |discovery: &str| {
        let dir = scratch("undeploy");
        let cases = format!(
            "  'get crd '*) exit 0 ;;\n  'get --raw '*) {discovery} ;;\n  \
             delete*) cat > \"$dir/deleted.yaml\" ;;"
        );
        let said = script("undeploy", &kubectl(&dir, &cases), &[("OVERLAY", "kube-prometheus")]);
        said.map(|_| objects(&read(&dir.join("deleted.yaml"))))
    };
    let kinds = r#"echo '{"resources":[{"kind":"ServiceMonitor"},{"kind":"PrometheusRule"}]}'"#;
    let all = answer(kinds).expect("deleted");
    let rule = id("PrometheusRule", NAMESPACE, "traffic-operator");
    let monitor = id("ServiceMonitor", NAMESPACE, "traffic-operator");
    assert!(all.contains_key(&rule) && all.contains_key(&monitor));
    for (discovery, missing) in [
        ("echo 'Error from server (NotFound): no' >&2; exit 1", &[&rule, &monitor][..]),
        (r#"echo '{"resources":[{"kind":"ServiceMonitor"}]}'"#, &[&rule]),
    ] {
        let some = answer(discovery).expect("deleted");
        let expected = all.keys().filter(|id| !missing.contains(id));
        assert!(some.keys().eq(expected), "{discovery}");
    }
    // A server that does not answer is no server without these kinds.
    let refused = answer("echo 'connection refused' >&2; exit 1").expect_err("an error");
    assert!(refused.contains("connection refused"), "{refused}");
}

/// The operator removes what it wrote outside of its objects; without it, they keep their
/// finalizers, and nodes their labels.
#[test]
fn undeploy_stops_if_the_server_does_not_say_which_kinds_it_has() {
    let dir = scratch("undeploy-unanswered");
    let undeploy = |crd: &str| {
        let _ = fs::remove_file(dir.join("deleted"));
        let cases = format!(
            "  'get crd '*) {crd} ;;\n  'get --raw '*) echo NotFound >&2; exit 1 ;;\n  \
             delete*) echo \"$*\" >> \"$dir/deleted\"; cat > /dev/null ;;"
        );
        let program = kubectl(&dir, &cases);
        let said = script("undeploy", &program, &[("OVERLAY", "kube-prometheus")]);
        (said, fs::read_to_string(dir.join("deleted")).unwrap_or_default())
    };
    let (said, deleted) = undeploy("echo 'connection refused' >&2; exit 1");
    let said = said.expect_err("an error");
    assert!(said.contains("connection refused"), "{said}");
    assert_eq!(deleted, "");
    let (said, deleted) = undeploy("echo \"customresourcedefinition/$3\"");
    said.expect("deleted");
    let kinds = deleted.lines().filter(|line| line.contains(" --all --all-namespaces ")).count();
    assert_eq!(kinds, KINDS.len(), "{deleted}");
    // The operator goes after its objects.
    assert!(deleted.lines().last().is_some_and(|line| line.contains(" -f -")), "{deleted}");
}

/// A kubelet reports a loaded image up to 40 s later.
#[test]
fn deploy_waits_until_a_node_lists_the_image() {
    let dir = scratch("image-there");
    let image = "registry.invalid/traffic-operator:1";
    let cases = format!("  get*) [ -e \"$dir/asked\" ] && echo '{image}'; touch \"$dir/asked\" ;;");
    let program = kubectl(&dir, &cases);
    let variables = [("IMG", image), ("IMAGE_SECONDS", "60")];
    script("image-there", &program, &variables).expect("an image");
    let none = kubectl(&dir, "  get*) echo other:1 ;;");
    let variables = [("IMG", image), ("IMAGE_SECONDS", "1")];
    let said = script("image-there", &none, &variables).expect_err("a refusal");
    assert_eq!(said.matches("Waiting for 1 s").count(), 1, "{said}");
    assert!(said.contains("is on no node"), "{said}");
}

/// `kubectl apply` does not prune.
#[test]
fn the_page_deletes_what_fewer_kinds_leave_behind() {
    let rendered = |overlay: &str| crate::rendering::overlay(overlay, &[]);
    let (all, one) = (rendered("kube-prometheus"), rendered("trafficwatch-only"));
    let left = all.keys().filter(|id| !one.contains_key(*id));
    let expected =
        left.map(|(kind, namespace, name)| (kind.to_lowercase(), namespace.clone(), name.clone()));
    // The operator has created it, with a key.
    let secret = ["secret", NAMESPACE, "traffic-operator-webhook"].map(str::to_owned);
    let expected: BTreeSet<_> = expected.chain([secret.into()]).collect();
    let steps = commands("docs/operations/install.md", "Some kinds only").expect("commands");
    let mut deleted = BTreeSet::new();
    // The first deletes the objects of the kinds, while the operator runs.
    for step in steps.iter().filter(|step| step.contains(" delete ")).skip(1) {
        let step = step.replace('\\', " ");
        let mut words = step.split_whitespace().skip_while(|word| *word != "delete").skip(1);
        let kinds = words.next().expect("kinds");
        let namespace = if step.contains(&format!("-n {NAMESPACE} ")) { NAMESPACE } else { "" };
        for name in words.filter(|word| !word.starts_with("--")) {
            for kind in kinds.split(',') {
                deleted.insert((kind.to_owned(), namespace.to_owned(), name.to_owned()));
            }
        }
    }
    let difference: Vec<_> = expected.symmetric_difference(&deleted).collect();
    assert!(difference.is_empty(), "{difference:?}");
}
