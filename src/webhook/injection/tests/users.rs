//! The user of an agent, and the processes that it may see.
use super::*;

#[test]
fn the_user_is_named_where_nothing_else_makes_it_a_number_that_is_not_root() {
    let user = |pod: &Value, own_image| {
        let recipe = Recipe { own_image, ..recipe() };
        let context = agent(&inject(pod, &recipe))["securityContext"].clone();
        assert_eq!(context["runAsNonRoot"], true);
        (context["runAsUser"].as_i64(), context["runAsGroup"].as_i64())
    };
    let of = |user: i64| with("/spec/securityContext", json!({"runAsUser": user}));
    let nonroot = (Some(65532), Some(65532));
    assert_eq!((user(&plain(), true), user(&plain(), false)), ((None, None), nonroot));
    assert_eq!((user(&of(0), true), user(&of(0), false)), (nonroot, nonroot));
}

fn in_namespace(mut pod: Value, namespace: &str) -> Value {
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// Through `/proc`, a process of the same user can read the files of the application, including its
/// token.
#[test]
fn nobody_else_s_agent_comes_where_processes_are_shared() {
    for field in ["/spec/shareProcessNamespace", "/spec/hostPID"] {
        let shared = with(field, json!(true));
        for (namespace, expected) in [
            ("n", Some(SkipReason::SharedProcesses)),
            // An object in an unknown namespace counts as foreign.
            ("", Some(SkipReason::SharedProcesses)),
            // A user who may write a NetworkProber here adds nothing to the pods of other
            // namespaces.
            ("probing", None),
        ] {
            let pod = in_namespace(shared.clone(), namespace);
            assert_eq!(reason(&pod, &recipe()), expected, "{field} {namespace:?}");
        }
        assert_eq!(reason(&with(field, json!(false)), &recipe()), None);
        assert_eq!(reason(&with(field, json!(null)), &recipe()), None);
    }
}

#[test]
fn the_agent_is_a_user_of_its_own() {
    let user = |pod: &Value, own_image| {
        let context =
            agent(&inject(pod, &Recipe { own_image, ..recipe() }))["securityContext"].clone();
        assert_eq!(context["runAsNonRoot"], true);
        assert_eq!(context["runAsUser"], context["runAsGroup"]);
        context["runAsUser"].as_i64()
    };
    let both = |pod: &Value| (user(pod, true), user(pod, false));
    let of = |user: i64| with("/spec/securityContext", json!({"runAsUser": user}));
    assert_eq!(both(&of(1000)), (Some(65532), Some(65532)));
    assert_eq!(both(&of(65532)), (Some(65533), Some(65533)));
    // A container's own user is not the pod's.
    let container = |users: &[i64]| {
        let containers = users.iter().enumerate().map(
            |(i, user)| json!({"name": format!("c{i}"), "securityContext": {"runAsUser": user}}),
        );
        with("/spec/containers", containers.collect())
    };
    assert_eq!(both(&container(&[1000])), (None, Some(65532)));
    assert_eq!(both(&container(&[65532])), (Some(65533), Some(65533)));
    assert_eq!(both(&container(&[65533, 65532])), (Some(65534), Some(65534)));
}

/// `OpenShift` refuses users outside the range of the namespace, and assigns one to every container
/// that sets none.
#[test]
fn where_the_cluster_assigns_users_none_is_named() {
    let user = |constraint: &str, mut pod: Value, own_image| {
        pod["metadata"]["annotations"]["openshift.io/scc"] = json!(constraint);
        let recipe = Recipe { own_image, ..recipe() };
        agent(&inject(&pod, &recipe))["securityContext"]["runAsUser"].as_i64()
    };
    let of = |user: i64| with("/spec/securityContext", json!({"runAsUser": user}));
    for constraint in ["restricted", "restricted-v2", "one-of-their-own"] {
        assert_eq!(user(constraint, of(1_000_680_000), true), None);
        assert_eq!(user(constraint, of(1_000_680_000), false), None);
        assert_eq!(user(constraint, plain(), false), None);
    }
    // These admit every user, and assign none.
    for constraint in ["anyuid", "hostmount-anyuid", "nonroot", "nonroot-v2", "privileged"] {
        assert_eq!(user(constraint, of(1000), true), Some(65532));
        assert_eq!(user(constraint, plain(), false), Some(65532));
        assert_eq!(user(constraint, of(0), true), Some(65532));
    }
}
