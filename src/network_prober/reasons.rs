//! Why a pod has no agent, in a sentence, and what to do about it.
use crate::webhook::injection::SkipReason;

/// Returns the meaning of a reason of status and metrics; unknown reasons are returned by name.
#[must_use]
pub fn meaning(reason: &str) -> &str {
    match known(reason) {
        Some((_, meaning, _)) => meaning,
        None => reason,
    }
}

/// The advice.
#[must_use]
pub fn remedy(reason: &str) -> Option<&'static str> {
    let (_, _, remedy) = known(reason)?;
    Some(remedy)
}

fn known(reason: &str) -> Option<(SkipReason, &'static str, &'static str)> {
    let reason = SkipReason::ALL.into_iter().find(|one| one.as_str() == reason)?;
    let (meaning, remedy) = words(reason);
    Some((reason, meaning, remedy))
}

const fn words(reason: SkipReason) -> (&'static str, &'static str) {
    match reason {
        SkipReason::HostNetwork => (
            "it uses the network of its node, where two agents would share their ports",
            "leave it as it is, or measure nodes with mode: DaemonSet",
        ),
        SkipReason::OptedOut => (
            "an annotation of the pod or its namespace keeps agents out",
            "nothing, or remove probes.bigmikes.io/inject: \"false\" or netprober-container-deployed",
        ),
        SkipReason::PortTaken => (
            "one of its containers declares a port of the agent, or is probed on it",
            "set spec.httpPort and spec.httpPrometheusPort to unused ports",
        ),
        SkipReason::NameTaken => (
            "one of its containers or volumes is named net-prober or net-prober-vol",
            "rename that container or volume",
        ),
        SkipReason::SharedProcesses => (
            "its containers share their processes, and the NetworkProber is in another namespace: its \
             container could read what the application reads",
            "leave it as it is, or measure it by a NetworkProber in its namespace",
        ),
        SkipReason::Windows => ("it runs on Windows, the agent on Linux", "leave it"),
        SkipReason::MirrorPod => ("the kubelet runs it from a file", "leave it"),
        SkipReason::JobOnOldServer => (
            "its Job would not end without native sidecars (API server and all kubelets 1.29)",
            "leave it, or upgrade the cluster",
        ),
        SkipReason::NoClusterDns => (
            "its dnsPolicy resolves no Service of the cluster, and so not where agents get their lists",
            "set dnsPolicy: ClusterFirst, or spec.delivery: ConfigMap, which needs no DNS",
        ),
        SkipReason::OtherProber => {
            ("an older NetworkProber has it", "narrow one of the two selectors")
        }
        SkipReason::AlreadyInjected => ("it has an agent", "nothing"),
        SkipReason::AgentFailing => (
            "agents of this spec do not start, so no further pod gets one",
            "repair the image (kubectl describe pod shows why it does not start); then restart the pod",
        ),
        SkipReason::AgentRefused => (
            "the API server refuses pods of its owner with an agent",
            "allow the agent in the policy that refuses it, or change spec.injection: the condition Ready \
             of the NetworkProber has the words of the API server; then restart the pod",
        ),
        SkipReason::NamespaceExcluded => (
            "its namespace is kube-system or the operator's, which are never selected",
            "exclude it in spec.podSelector, or accept that it is not measured",
        ),
        SkipReason::NamespaceNotConsenting => (
            "its namespace does not consent to this NetworkProber, or not to its image",
            "kubectl annotate namespace NAMESPACE probes.bigmikes.io/allow=NAMESPACE/NAME of the \
             NetworkProber",
        ),
        SkipReason::ResourcesRefused => (
            "a LimitRange or ResourceQuota of its namespace would refuse it with the agent",
            "set spec.injection.resources within their limits, or make room: the condition Covered of \
             the NetworkProber names the object",
        ),
        SkipReason::OverBudget => (
            "the pods of its NetworkProber are not watched: it is over a budget",
            "kubectl describe networkprober: the condition Ready names the limit and what to do",
        ),
        SkipReason::CreatedBefore => (
            "nothing shows that the webhook was called: it is older than the NetworkProber, or no \
             replica answered",
            "restart it at a convenient time: kubectl rollout restart; if it is new, `doctor` checks the webhook",
        ),
        SkipReason::NotCalled => (
            "it is younger than the webhook's entry, and the API server has not called the webhook for it",
            "open port 9443 from the control plane to the nodes, or run the webhook on the host network: \
             docs/runbooks/TrafficOperatorWebhookNotCalled.md; then restart it",
        ),
        SkipReason::Stripped => (
            "another webhook has removed the agent, or its restartPolicy",
            "look for webhooks that rewrite pods after ours (managedFields of the pod), and upgrade them",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_sentence_and_a_remedy() {
        for reason in SkipReason::ALL {
            assert_ne!(meaning(reason.as_str()), reason.as_str());
            assert!(remedy(reason.as_str()).is_some(), "{reason}");
        }
        assert_eq!((meaning("Unheard"), remedy("Unheard")), ("Unheard", None));
    }
}
