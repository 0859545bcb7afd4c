//! Custom resources in a file, checked as the API server would check them.
use anyhow::{Context, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{CustomResourceExt, Resource};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    api::{Kind, NetworkProber, RouteReflectorSet, Swarm, TrafficWatch},
    inspect::cluster::name_of,
    manifests,
    network_prober::{self, settings::Tenancy},
    route_reflector, swarm,
    traffic_watch::{Settings, check_deployment},
};

/// The namespace of the documents that name none.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// Its name.
    pub namespace: &'a str,
    /// True if no document may name another one.
    pub only: bool,
}

/// Of commands that need no cluster.
pub const DEFAULT: Home<'static> = Home { namespace: "default", only: false };

/// Reads every `TrafficWatch` in a text of YAML or JSON documents; other kinds are skipped.
///
/// # Errors
/// The path of the field and the problem, as at admission; rules that only the API server can run
/// (CEL) are not checked, but the operator's own validation of the spec is.
pub fn read(text: &str, home: Home<'_>) -> anyhow::Result<Vec<TrafficWatch>> {
    read_kind(text, home, |watch: &TrafficWatch| {
        Settings::of(watch)?;
        check_deployment(watch)?;
        Ok(())
    })
}

/// Reads every `RouteReflectorSet` in the same way.
///
/// # Errors
/// As [`read`].
pub fn read_reflectors(text: &str) -> anyhow::Result<Vec<RouteReflectorSet>> {
    read_kind(text, DEFAULT, |set: &RouteReflectorSet| {
        route_reflector::settings::Settings::of(set)?;
        Ok(())
    })
}

/// Reads every `Swarm` in the same way.
///
/// # Errors
/// As [`read`].
pub fn read_swarms(text: &str, home: Home<'_>) -> anyhow::Result<Vec<Swarm>> {
    read_kind(text, home, |one: &Swarm| {
        // A list in a ConfigMap is read from the cluster.
        if one.spec.streams_from.is_none() {
            swarm::settings::Settings::of(one, None)?;
        }
        Ok(())
    })
}

/// Reads every `NetworkProber` in the same way.
///
/// # Errors
/// As [`read`].
pub fn read_probers(text: &str, home: Home<'_>) -> anyhow::Result<Vec<NetworkProber>> {
    read_kind(text, home, |prober: &NetworkProber| {
        network_prober::settings::Settings::of(prober, &Tenancy::of(manifests::NAMESPACE))?;
        Ok(())
    })
}

/// Returns our kinds in a text of YAML or JSON documents, in the order of their first ones.
///
/// # Errors
/// When a document is no YAML, or none is of our kinds.
pub fn kinds(text: &str) -> anyhow::Result<Vec<String>> {
    let ours = [
        TrafficWatch::kind(&()),
        NetworkProber::kind(&()),
        Swarm::kind(&()),
        RouteReflectorSet::kind(&()),
    ];
    let mut found: Vec<String> = Vec::new();
    for (i, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let object = Value::deserialize(document)
            .with_context(|| format!("document {} is no YAML", i + 1))?;
        let kind = object["kind"].as_str().unwrap_or_default();
        if ours.iter().any(|our| our == kind) && !found.iter().any(|one| one == kind) {
            found.push(kind.to_owned());
        }
    }
    ensure!(!found.is_empty(), "there is no document of the kinds {}", ours.join(", "));
    Ok(found)
}

fn read_kind<K>(
    text: &str,
    home: Home<'_>,
    check: impl Fn(&K) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<K>>
where
    K: Kind + CustomResourceExt,
{
    let definition = K::crd();
    let wanted = K::kind(&());
    let version = definition.spec.versions.first().context("the definition has no version")?;
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = schema.context("the definition has no schema")?;
    let mut objects: Vec<K> = Vec::new();
    let mut others = Vec::new();
    for (i, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let number = i + 1;
        let mut object = Value::deserialize(document)
            .with_context(|| format!("document {number} is no YAML"))?;
        if object.is_null() {
            continue;
        }
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        if kind != wanted {
            others.push(if kind.is_empty() { format!("document {number}") } else { kind });
            continue;
        }
        let expected = format!("{}/{}", definition.spec.group, version.name);
        ensure!(
            api_version == expected,
            "document {number}: apiVersion: {api_version:?} must be {expected:?}"
        );
        let errors = schema_errors(schema, &object);
        ensure!(errors.is_empty(), "document {number}:\n  {}", errors.join("\n  "));
        let namespaced = definition.spec.scope == "Namespaced";
        complete(&mut object, namespaced.then_some(home.namespace));
        let read: K =
            serde_json::from_value(object).with_context(|| format!("document {number}"))?;
        let name = read.meta().name.as_deref().unwrap_or_default();
        ensure!(!name.is_empty(), "document {number}: metadata.name: is missing");
        let named = read.meta().namespace.as_deref();
        if let Some(named) = named.filter(|named| home.only && *named != home.namespace) {
            let only = home.namespace;
            bail!(
                "document {number}: metadata.namespace: {named:?} is not that of --namespace: {only:?}"
            );
        }
        check(&read).with_context(|| format!("document {number}"))?;
        ensure!(
            !objects.iter().any(|other| name_of(other) == name_of(&read)),
            "document {number}: {} is there twice",
            name_of(&read)
        );
        objects.push(read);
    }
    if objects.is_empty() {
        let others = if others.is_empty() { "nothing".into() } else { others.join(", ") };
        bail!("there is no document of kind {wanted}, but {others}");
    }
    Ok(objects)
}

/// The defaults that the API server adds.
fn complete(object: &mut Value, namespace: Option<&str>) {
    let metadata = &mut object["metadata"];
    if let Some(namespace) = namespace
        && metadata["namespace"].is_null()
    {
        metadata["namespace"] = namespace.into();
    }
    // Owner references need a UID; nothing is written here.
    metadata["uid"] = "00000000-0000-0000-0000-000000000000".into();
}

/// Fields that every object has, with a schema of the API server's own.
const OWN: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// Checks an object against a structural schema: types, ranges, enumerations, and no unknown field.
/// Returns all errors, each with its path.
fn schema_errors(schema: &JSONSchemaProps, object: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let Value::Object(fields) = object else { return vec!["must be an object".into()] };
    let rest = fields.iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
    let rest: Map<_, _> = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    visit(schema, &Value::Object(rest), "", &mut errors);
    errors
}

fn visit(schema: &JSONSchemaProps, value: &Value, path: &str, errors: &mut Vec<String>) {
    if value.is_null() {
        // The API server drops a null that is not allowed if there is no default.
        return;
    }
    let mut wrong = |text: String| errors.push(format!("{path}: {value} {text}"));
    if let Some(type_) = mistyped(schema, value) {
        wrong(format!("must be {type_}"));
        return;
    }
    let excludes = |values: &&Vec<JSON>| !values.iter().any(|allowed| allowed.0 == *value);
    if let Some(values) = schema.enum_.as_ref().filter(excludes) {
        let values: Vec<_> = values.iter().map(|value| value.0.to_string()).collect();
        wrong(format!("must be one of {}", values.join(", ")));
    }
    if let Some(x) = value.as_f64() {
        if let Some(min) = schema.minimum.filter(|min| x < *min) {
            wrong(format!("must be at least {min}"));
        }
        if let Some(max) = schema.maximum.filter(|max| x > *max) {
            wrong(format!("must be at most {max}"));
        }
    }
    if let Some(text) = value.as_str() {
        let len = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_length.filter(|min| len < *min) {
            wrong(format!("must have at least {min} characters"));
        }
        if let Some(max) = schema.max_length.filter(|max| len > *max) {
            wrong(format!("must have at most {max} characters"));
        }
    }
    match value {
        Value::Object(fields) => visit_fields(schema, fields, path, errors),
        Value::Array(items) => {
            if let Some(max) =
                schema.max_items.filter(|max| i64::try_from(items.len()).is_ok_and(|n| n > *max))
            {
                errors.push(format!("{path}: must have at most {max} items"));
            }
            if let Some(JSONSchemaPropsOrArray::Schema(each)) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    visit(each, item, &format!("{path}[{i}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn visit_fields(
    schema: &JSONSchemaProps,
    fields: &Map<String, Value>,
    path: &str,
    errors: &mut Vec<String>,
) {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in schema.required.iter().flatten() {
        if !OWN.contains(&name.as_str()) && fields.get(name).is_none_or(Value::is_null) {
            errors.push(format!("{}: is missing", at(name)));
        }
    }
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, value) in fields {
        let property = schema.properties.as_ref().and_then(|properties| properties.get(name));
        match (property, &schema.additional_properties) {
            (Some(property), _) => visit(property, value, &at(name), errors),
            (None, Some(JSONSchemaPropsOrBool::Schema(each))) => {
                visit(each, value, &at(name), errors);
            }
            (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
            (None, _) if open => {}
            (None, _) => errors.push(format!("{}: unknown field", at(name))),
        }
    }
}

/// Returns the expected type of a value with a different type.
fn mistyped(schema: &JSONSchemaProps, value: &Value) -> Option<&'static str> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return (!value.is_i64() && !value.is_u64() && !value.is_string())
            .then_some("an integer or a string");
    }
    let (fits, name) = match schema.type_.as_deref()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a string (write it in quotes)"),
        "integer" => (value.is_i64() || value.is_u64(), "an integer"),
        "number" => (value.is_number(), "a number"),
        "boolean" => (value.is_boolean(), "true or false"),
        _ => return None,
    };
    (!fits).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(spec: &str) -> anyhow::Result<Vec<TrafficWatch>> {
        let head = "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n";
        read(&format!("{head}metadata: {{name: web}}\nspec: {{{spec}}}\n"), DEFAULT)
    }

    #[test]
    fn several_documents_of_several_kinds() {
        let text = "# a comment\n---\napiVersion: v1\nkind: ConfigMap\n---\n\
                    {\"apiVersion\": \"traffic.example.com/v1alpha1\", \"kind\": \"TrafficWatch\",\
                    \"metadata\": {\"name\": \"a\", \"namespace\": \"ns\"},\
                    \"spec\": {\"maxBandwidthPercent\": \"60\"}}\n---\n";
        let watches = read(text, DEFAULT).unwrap();
        assert_eq!(watches.iter().map(name_of).collect::<Vec<_>>(), ["ns/a"]);
    }

    #[test]
    fn what_admission_refuses_is_refused_with_its_path() {
        for (text, expected) in [
            ("maxBandwidthPercent: \"60\", maxBandwith: 1", "spec.maxBandwith: unknown field"),
            ("maxBandwidthPercent: 60", "spec.maxBandwidthPercent: 60 must be a string"),
            ("maxBandwidthPercent: \"160\"", "spec.maxBandwidthPercent: \"160\" must be a number"),
            (
                "maxBandwidthPercent: \"60\", mode: Enforced",
                "spec.mode: \"Enforced\" must be one of",
            ),
            (
                "maxBandwidthPercent: \"60\", recoverPercent: 0",
                "spec.recoverPercent: 0 must be at least 1",
            ),
            (
                "maxBandwidthPercent: \"60\", consecutive: {fit: 1001}",
                "spec.consecutive.fit: 1001 must be at",
            ),
            ("maxBandwidthPercent: \"60\", interval: 1ms", "spec.interval: must be at least 1s"),
            (
                "maxBandwidthPercent: \"60\", devices: \"\"",
                "spec.devices: \"\" must have at least 1",
            ),
            (
                "maxBandwidthPercent: \"60\", nodeSelector: {matchExpressions: [{key: a, operator: X}]}",
                "spec.nodeSelector.matchExpressions[0].operator",
            ),
        ] {
            let error = format!("{:#}", spec(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_swarm_is_read_into_the_namespace_that_is_meant() {
        let text = |metadata: &str, spec: &str| {
            format!(
                "apiVersion: traffic.example.com/v1alpha1\nkind: Swarm\nmetadata: {metadata}\n\
                 spec: {{workload: {{name: w}}, {spec}}}\n"
            )
        };
        let read = |metadata: &str, spec: &str, only| {
            let home = Home { namespace: "of-context", only };
            let swarms = read_swarms(&text(metadata, spec), home);
            swarms.map(|swarms| name_of(&swarms[0])).map_err(|error| format!("{error:#}"))
        };
        let jobs = "jobs: [a]";
        assert_eq!(read("{name: s}", jobs, false).unwrap(), "of-context/s");
        assert_eq!(read("{name: s, namespace: n}", jobs, false).unwrap(), "n/s");
        for (metadata, spec, expected) in [
            (
                "{name: s, namespace: n}",
                jobs,
                "metadata.namespace: \"n\" is not that of --namespace",
            ),
            ("{name: s}", "jobz: [a]", "spec.jobz: unknown field"),
            ("{name: s}", "jobs: []", "spec.jobs: "),
            ("{name: s}", "policy: Sticky", "spec: exactly one of jobs, streams and streamsFrom"),
            ("{}", jobs, "metadata.name: is missing"),
        ] {
            let error = read(metadata, spec, true).unwrap_err();
            assert!(error.contains(expected), "{spec}: {error}");
        }
        // The contents of its ConfigMap are known only in the cluster.
        let from = "streamsFrom: {configMapKeyRef: {name: m}}";
        assert_eq!(read("{name: s}", from, true).unwrap(), "of-context/s");
    }

    #[test]
    fn a_file_without_a_trafficwatch_says_what_it_has() {
        let error = read("apiVersion: v1\nkind: Pod\n", DEFAULT).unwrap_err().to_string();
        assert!(error.contains("but Pod"), "{error}");
        assert!(read("", DEFAULT).unwrap_err().to_string().contains("but nothing"));
        assert!(read("a: [", DEFAULT).is_err());
        let old = "apiVersion: traffic.example.com/v1\nkind: TrafficWatch\n";
        let error = read(old, DEFAULT).unwrap_err().to_string();
        assert!(error.contains("must be \"traffic.example.com/v1alpha1\""), "{error}");
    }
}
