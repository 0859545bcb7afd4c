//! The nodes that a pod's required affinity allows, as far as it matters here: their operating
//! system.
use serde::Deserialize;

/// The label of nodes with their operating system.
const OS: &str = "kubernetes.io/os";

/// The affinity of a pod.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Deserialize)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Terms>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terms {
    node_selector_terms: Option<Vec<Option<Term>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    match_expressions: Option<Vec<Option<Expression>>>,
}

#[derive(Deserialize)]
struct Expression {
    key: Option<Box<str>>,
    operator: Option<Box<str>>,
    values: Option<Vec<Option<Box<str>>>>,
}

impl Affinity {
    /// Reports whether it allows only nodes with this operating system: one of the terms has to
    /// match, and all expressions of it.
    pub(super) fn requires_os(&self, os: &str) -> bool {
        let required = self.node_affinity.as_ref().and_then(|node| node.required.as_ref());
        let terms = required.and_then(|required| required.node_selector_terms.as_deref());
        let terms = terms.unwrap_or_default();
        !terms.is_empty() && terms.iter().all(|term| term.as_ref().is_some_and(|t| t.requires(os)))
    }
}

impl Term {
    fn requires(&self, os: &str) -> bool {
        self.match_expressions.iter().flatten().flatten().any(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            expression.key.as_deref() == Some(OS)
                && expression.operator.as_deref() == Some("In")
                && !values.is_empty()
                && values.iter().all(|value| value.as_deref() == Some(os))
        })
    }
}
