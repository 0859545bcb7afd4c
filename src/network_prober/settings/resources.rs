//! The agent's resources, checked by the API server's rules for a container: what it refuses in the
//! agent, it refuses together with the whole pod.
use std::collections::BTreeMap;

use super::invalid;
use crate::{api::parse_quantity, controller::Error, extended_resources::is_extended};

/// The resources of containers that have no domain, besides huge pages.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The prefix of the resources of huge pages; the size of a page follows.
const HUGE_PAGES: &str = "hugepages-";

/// The most digits of an amount, so that a comparison of two is exact.
const DIGITS: usize = 15;

type Amounts = BTreeMap<String, String>;

/// Checks requests and limits.
///
/// # Errors
/// The path of the invalid amount, and its error.
pub(super) fn check(requests: &Amounts, limits: &Amounts) -> Result<(), Error> {
    let requested = amounts("requests", requests)?;
    let limited = amounts("limits", limits)?;
    for (name, request) in &requested {
        let Some(limit) = limited.get(name) else {
            if is_overcommitted(name) {
                continue;
            }
            return Err(at("requests", name, "needs an equal limit"));
        };
        let both = || format!("{} and the limit is {}", requests[*name], limits[*name]);
        if !is_overcommitted(name) && request.total_cmp(limit).is_ne() {
            return Err(at(
                "requests",
                name,
                format!("must be equal to the limit: it is {}", both()),
            ));
        }
        if request > limit {
            let text = format!(
                "must not be more than spec.injection.resources.limits.{name}: it is {} (the \
                 defaults are requests of 10m CPU and 16Mi memory, and a limit of 64Mi memory)",
                both()
            );
            return Err(at("requests", name, text));
        }
    }
    for (kind, amounts) in [("requests", &requested), ("limits", &limited)] {
        let pages = amounts.keys().find(|name| name.starts_with(HUGE_PAGES));
        let with = |name| requested.contains_key(name) || limited.contains_key(name);
        if let Some(name) = pages.filter(|_| !with("cpu") && !with("memory")) {
            return Err(at(kind, name, "huge pages need a request or a limit of cpu or memory"));
        }
    }
    Ok(())
}

fn at(kind: &str, name: &str, text: impl std::fmt::Display) -> Error {
    invalid(&format!("injection.resources.{kind}.{name}"), text)
}

/// Reports whether a container may use more than it requests.
fn is_overcommitted(name: &str) -> bool {
    STANDARD.contains(&name)
}

fn amounts<'a>(kind: &str, texts: &'a Amounts) -> Result<BTreeMap<&'a str, f64>, Error> {
    let read = texts.iter().map(|(name, text)| {
        let amount = amount(name, text).map_err(|error| at(kind, name, error))?;
        Ok((&**name, amount))
    });
    read.collect()
}

fn amount(name: &str, text: &str) -> Result<f64, String> {
    let page = name.strip_prefix(HUGE_PAGES);
    if page.is_none() && !STANDARD.contains(&name) && !is_extended_name(name) {
        return Err("is not a resource of containers: cpu, memory, ephemeral-storage, \
                    hugepages-<size>, or an extended resource such as example.com/device"
            .into());
    }
    let amount = quantity(text)?;
    if amount < 0.0 {
        return Err(format!("{text:?} is negative"));
    }
    let unit = match page {
        None if STANDARD.contains(&name) => return Ok(amount),
        None => 1.0,
        Some(page) => quantity(page)?,
    };
    if unit < 1.0 || unit.fract() != 0.0 {
        return Err(format!("{unit} is not the size of a page"));
    }
    if amount % unit != 0.0 {
        return Err(format!("{text:?} is not a multiple of {unit}"));
    }
    Ok(amount)
}

fn quantity(text: &str) -> Result<f64, String> {
    if text.chars().filter(char::is_ascii_digit).count() > DIGITS {
        return Err(format!("has more than {DIGITS} digits"));
    }
    parse_quantity(text).map_err(|error| error.to_string())
}

/// Reports whether it is the name of an extended resource, to which a quota can also refer by
/// `requests.<name>`.
fn is_extended_name(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else { return false };
    let domain_is_good = domain.len() + "requests.".len() <= 253
        && domain.split('.').all(|label| {
            let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            label.starts_with(is_good)
                && label.ends_with(is_good)
                && label.chars().all(|c| is_good(c) || c == '-')
        });
    let is_end = |c: char| c.is_ascii_alphanumeric();
    is_extended(name)
        && domain_is_good
        && (1..=63).contains(&rest.len())
        && rest.starts_with(is_end)
        && rest.ends_with(is_end)
        && rest.chars().all(|c| is_end(c) || matches!(c, '-' | '_' | '.'))
}
