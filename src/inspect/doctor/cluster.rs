//! Checks of the API server, the definitions, the rights and the operator itself.
use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::ResourceExt;

use super::{Check, Facts, Replicas, Subject, some};
use crate::{
    manifests::{self, Account},
    text::figures::ago,
};

/// The remedy for rights that the operator lacks. Not `kubectl apply -k deploy/rbac`: it names the
/// default namespace, and would bind the roles of an installation elsewhere to accounts there.
pub(super) const APPLY_ROLES: &str = "deploy again as it was installed: make deploy with the same \
    OVERLAY= and NAMESPACE=, or helm upgrade";

pub(super) fn server(facts: &Facts) -> Check {
    let name = "api-server";
    match &facts.server {
        Ok(version) => Check::ok(name, format!("reachable, {version}")),
        Err(error) => Check::fail(
            name,
            format!("not reachable: {error}"),
            "check --kubeconfig and --context; `kubectl get --raw /version` must work",
        ),
    }
}

pub(super) fn definitions(facts: &Facts) -> impl Iterator<Item = Check> {
    facts.definitions.iter().map(|(ours, installed)| definition(ours, installed))
}

fn definition(
    ours: &CustomResourceDefinition,
    installed: &Result<Option<CustomResourceDefinition>, String>,
) -> Check {
    let check = "definition";
    let name = ours.name_any();
    let apply = format!("kubectl apply -f deploy/crds/{name}.yaml (make install)");
    let installed = match installed {
        Ok(Some(installed)) => installed,
        Ok(None) => return Check::fail(check, format!("{name} is not installed"), apply),
        Err(error) => {
            let fix =
                "ask for the right to get customresourcedefinitions, or let an administrator check";
            return Check::warn(check, format!("{name} cannot be looked at: {error}"), fix);
        }
    };
    let version = ours.spec.versions.first().map(|v| v.name.clone()).unwrap_or_default();
    if !installed.spec.versions.iter().any(|v| v.name == version && v.served) {
        return Check::fail(check, format!("{name} does not serve {version}"), apply);
    }
    let conditions = installed.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let established = conditions.clone().any(|c| c.type_ == "Established" && c.status == "True");
    if !established {
        let why: Vec<_> = conditions
            .filter(|c| c.status != "True")
            .map(|c| c.message.clone().unwrap_or_default())
            .collect();
        let message = format!("{name} is not established: {}", why.join("; "));
        return Check::fail(check, message, format!("kubectl describe crd {name}"));
    }
    let (here, there) = (fields(ours, &version), fields(installed, &version));
    let missing: Vec<_> = here.difference(&there).cloned().collect();
    let foreign: Vec<_> = there.difference(&here).cloned().collect();
    if !missing.is_empty() {
        let message = format!("{name} is older than this binary: it lacks {}", some(&missing));
        return Check::fail(check, message, apply).with(missing);
    }
    if !foreign.is_empty() {
        let message = format!("{name} is newer than this binary: it also has {}", some(&foreign));
        return Check::warn(check, message, "use the binary of the operator's version")
            .with(foreign);
    }
    Check::ok(
        check,
        format!("{name} is installed and serves {version} with the fields of this binary"),
    )
}

/// Returns the paths of all properties of one version, down to schemas that allow any value.
fn fields(definition: &CustomResourceDefinition, version: &str) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    let version = definition.spec.versions.iter().find(|v| v.name == version);
    if let Some(schema) =
        version.and_then(|v| v.schema.as_ref()).and_then(|s| s.open_api_v3_schema.as_ref())
    {
        collect(schema, "", &mut fields);
    }
    fields
}

fn collect(schema: &JSONSchemaProps, path: &str, fields: &mut BTreeSet<String>) {
    if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, property) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(property, &path, fields);
        fields.insert(path);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        collect(items, &format!("{path}[]"), fields);
    }
}

pub(super) fn rights(facts: &Facts) -> Check {
    let name = "rights";
    let subject = &facts.subject;
    let all = facts.rights.len();
    let unknown: Vec<_> =
        facts.rights.iter().filter_map(|(_, answer)| answer.clone().err()).collect();
    if let Some(error) = unknown.first() {
        let fix = match subject {
            Subject::Caller(_) => {
                "every authenticated user may create selfsubjectaccessreviews: check the credentials"
            }
            Subject::As(_) => "--as needs the right to impersonate that user",
        };
        return Check::fail(
            name,
            format!("the rights of {subject} cannot be looked at: {error}"),
            fix,
        );
    }
    let denied: Vec<_> = facts
        .rights
        .iter()
        .filter(|(_, answer)| *answer == Ok(false))
        .map(|(right, _)| right.to_string())
        .collect();
    if denied.is_empty() {
        return Check::ok(name, format!("{subject} may do all {all} things the operator does"));
    }
    let message = format!("{subject} may not {} ({} of {all})", some(&denied), denied.len());
    match subject {
        // A person need not have the operator's rights.
        Subject::Caller(_) => {
            let operator = format!(
                "these are your own rights; for the operator's: --as {}",
                Account::Controller.user(&facts.namespace)
            );
            Check::warn(name, message, operator)
        }
        Subject::As(_) => Check::fail(name, message, APPLY_ROLES),
    }
    .with(denied)
}

/// Checks the rights of the webhook's account, if the caller may review those of others.
pub(super) fn rights_of_the_webhook(facts: &Facts) -> Option<Check> {
    let name = "rights";
    let rights = &facts.webhook.as_ref()?.rights;
    let answers: Vec<_> = rights
        .iter()
        .map(|(right, answer)| Some((right, *answer.as_ref().ok()?)))
        .collect::<Option<_>>()?;
    let all = answers.len();
    let denied: Vec<_> =
        answers.iter().filter(|(_, may)| !may).map(|(right, _)| right.to_string()).collect();
    let account = Account::Webhook.user(&facts.namespace);
    match denied.len() {
        _ if all == 0 => None,
        0 => Some(Check::ok(name, format!("{account} may do all {all} things the webhook does"))),
        count => {
            let message = format!("{account} may not {} ({count} of {all})", some(&denied));
            Some(Check::fail(name, message, APPLY_ROLES).with(denied))
        }
    }
}

pub(super) fn deployments(facts: &Facts) -> impl Iterator<Item = Check> {
    let place = |account| (&*facts.namespace, account);
    let controller = deployment(&facts.deployment, place(Account::Controller), "");
    let alone = " (a process with --component=all needs none)";
    let webhook = facts.webhook.as_ref();
    let webhook = webhook.map(|w| deployment(&w.deployment, place(Account::Webhook), alone));
    [controller].into_iter().chain(webhook)
}

/// `otherwise`: the alternative that needs no such Deployment.
fn deployment(found: &Replicas, (namespace, account): (&str, Account), otherwise: &str) -> Check {
    let name = "deployment";
    let what = format!("{namespace}/{}", account.name());
    match found {
        Ok(Some((wanted, available))) if available >= wanted && *wanted > 0 => {
            Check::ok(name, format!("{what} has {available} of {wanted} replicas"))
        }
        Ok(Some((0, _))) => Check::fail(
            name,
            format!("{what} is scaled to 0"),
            format!("kubectl -n {namespace} scale deployment {} --replicas 2", account.name()),
        ),
        Ok(Some((wanted, available))) => {
            let message = format!("{what} has {available} of {wanted} replicas");
            let fix = format!("kubectl -n {namespace} describe pods");
            if *available > 0 {
                Check::warn(name, message, fix)
            } else {
                Check::fail(name, message, fix)
            }
        }
        Ok(None) => Check::warn(
            name,
            format!("there is no Deployment {what}"),
            format!("make deploy{otherwise}; if the operator runs elsewhere: --operator-namespace"),
        ),
        Err(error) => Check::warn(
            name,
            format!("{what} cannot be looked at: {error}"),
            "ask for the right to get deployments there",
        ),
    }
}

pub(super) fn leader(facts: &Facts) -> Check {
    let name = "leader";
    let logs = format!("kubectl -n {} logs deployment/{}", facts.namespace, manifests::NAME);
    match &facts.leadership {
        Err(error) => Check::warn(
            name,
            format!("the Lease cannot be looked at: {error}"),
            "ask for the right to get leases there",
        ),
        Ok(None) => Check::fail(name, "no pod leads: no node is judged", logs),
        Ok(Some(lease)) => {
            let since = match lease.renewed {
                Some(at) => format!("renewed {} ago", ago(at, facts.now)),
                None => "never renewed".into(),
            };
            if lease.expired(facts.now) {
                let message = format!("{} led, but the Lease has run out: {since}", lease.holder);
                Check::fail(name, message, logs)
            } else {
                Check::ok(name, format!("{} leads, {since}", lease.holder))
            }
        }
    }
}
