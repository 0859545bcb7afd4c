//! Label selectors, for any object with labels.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::fmt;

use crate::api::reference::is_subdomain;

/// The longest name in a label's key, and the longest value, in bytes: the API server's rule.
const MAX_NAME: usize = 63;

/// A checked selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Selector {
    /// Selects every Linux node: the exporters and their device names are for Linux.
    #[must_use]
    pub fn linux() -> Self {
        Self(vec![Requirement::In("kubernetes.io/os".into(), vec!["linux".into()])])
    }

    /// Checks a selector of a spec. The API server stores any text, and refuses the lists that
    /// select by it.
    ///
    /// # Errors
    /// The path below the selector, and the problem.
    pub fn new(selector: &LabelSelector) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            check("matchLabels", key, std::slice::from_ref(value))?;
            requirements.push(Requirement::In(key.clone(), vec![value.clone()]));
        }
        for (i, e) in selector.match_expressions.iter().flatten().enumerate() {
            let key = e.key.clone();
            let values = e.values.clone().unwrap_or_default();
            let path = format!("matchExpressions[{i}]");
            check(&path, &key, &values)?;
            requirements.push(match (e.operator.as_str(), values.is_empty()) {
                ("In", false) => Requirement::In(key, values),
                ("NotIn", false) => Requirement::NotIn(key, values),
                ("In" | "NotIn", true) => {
                    return Err(format!("{path}.values: {} needs at least one value", e.operator));
                }
                ("Exists", true) => Requirement::Exists(key),
                ("DoesNotExist", true) => Requirement::DoesNotExist(key),
                ("Exists" | "DoesNotExist", false) => {
                    return Err(format!("{path}.values: {} takes no values", e.operator));
                }
                (other, _) => {
                    return Err(format!(
                        "{path}.operator: {other:?} must be In, NotIn, Exists or DoesNotExist"
                    ));
                }
            });
        }
        Ok(Self(requirements))
    }

    /// Reports whether it matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether labels match; `get` looks one up.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.allows(get(requirement.key())))
    }
}

/// Checks a key and the values it is compared with.
fn check(path: &str, key: &str, values: &[String]) -> Result<(), String> {
    if !is_key(key) {
        return Err(format!("{path}: {key:?} is not a label key, e.g. \"example.com/name\""));
    }
    match values.iter().find(|value| !value.is_empty() && !is_name(value)) {
        Some(value) => Err(format!("{path}: {value:?} is not a label value of {key}")),
        None => Ok(()),
    }
}

/// Reports whether a text can be the key of a label.
fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(key),
    }
}

/// Reports whether a text can be the name in a label's key, or a value that is not empty.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= MAX_NAME
        && text.bytes().all(inner)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

impl Requirement {
    fn key(&self) -> &str {
        let (Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::DoesNotExist(key)) =
            self;
        key
    }

    fn allows(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(_, values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Self::NotIn(_, values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
            Self::Exists(_) => value.is_some(),
            Self::DoesNotExist(_) => value.is_none(),
        }
    }
}

/// Formats it as the parameter `labelSelector` of a list or watch.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
                Requirement::Exists(key) => f.write_str(key)?,
                Requirement::DoesNotExist(key) => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    fn expression(operator: &str, values: &[&str]) -> LabelSelector {
        LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "zone".into(),
                operator: operator.into(),
                values: Some(values.iter().map(|&v| v.to_owned()).collect()),
            }]),
            ..LabelSelector::default()
        }
    }

    #[test]
    fn match_expressions_count_as_much_as_match_labels() {
        for (operator, values, in_a, in_none) in [
            ("In", &["a"][..], true, false),
            ("NotIn", &["a"], false, true),
            ("Exists", &[], true, false),
            ("DoesNotExist", &[], false, true),
        ] {
            let selector = Selector::new(&expression(operator, values)).unwrap();
            assert_eq!(selector.matches(|key| (key == "zone").then_some("a")), in_a, "{operator}");
            assert_eq!(selector.matches(|_| None), in_none, "{operator}");
        }
        let labels = LabelSelector {
            match_labels: Some([("zone".into(), "a".into())].into()),
            ..LabelSelector::default()
        };
        assert!(!Selector::new(&labels).unwrap().matches(|_| Some("b")));
        assert!(Selector::new(&LabelSelector::default()).unwrap().matches(|_| None));
    }

    #[test]
    fn is_written_as_the_api_server_reads_it() {
        for (operator, values, text) in [
            ("In", &["a", "b"][..], "zone in (a,b)"),
            ("NotIn", &["a"], "zone notin (a)"),
            ("Exists", &[], "zone"),
            ("DoesNotExist", &[], "!zone"),
        ] {
            assert_eq!(Selector::new(&expression(operator, values)).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_key_or_value_that_no_label_can_have_is_refused() {
        let long = "x".repeat(64);
        for (key, value, good) in [
            ("zone", "a", true),
            ("zone", "", true),
            ("example.com/Zone_1.x", "A-1_b.c", true),
            ("größe/ß", "a", false),
            ("Example.com/zone", "a", false),
            ("a/b/c", "a", false),
            ("/zone", "a", false),
            ("", "a", false),
            ("zone-", "a", false),
            (long.as_str(), "a", false),
            ("zone", "a b", false),
            ("zone", "a,b", false),
            ("zone", long.as_str(), false),
        ] {
            let labels = Some([(key.to_owned(), value.to_owned())].into());
            let by_label = LabelSelector { match_labels: labels, ..LabelSelector::default() };
            let mut by_expression = expression("In", &[value]);
            for e in by_expression.match_expressions.iter_mut().flatten() {
                key.clone_into(&mut e.key);
            }
            for (selector, path) in
                [(by_label, "matchLabels: "), (by_expression, "matchExpressions[0]: ")]
            {
                let checked = Selector::new(&selector);
                assert_eq!(checked.is_ok(), good, "{key} {value}");
                assert!(checked.err().is_none_or(|error| error.starts_with(path)), "{key}");
            }
        }
    }

    #[test]
    fn refuses_what_kubernetes_refuses_and_names_the_path() {
        for (operator, values, path) in [
            ("In", &[][..], "matchExpressions[0].values"),
            ("Exists", &["a"], "matchExpressions[0].values"),
            ("Gt", &["1"], "matchExpressions[0].operator"),
        ] {
            let error = Selector::new(&expression(operator, values)).unwrap_err();
            assert!(error.starts_with(path), "{error}");
        }
    }
}
