//! Extended resources of Kubernetes: names with a prefix outside of its own domain, whose amounts
//! are whole numbers.
use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use crate::api::parse_quantity;

/// The domain whose names are Kubernetes' own; the API server looks for it anywhere in a name.
const NATIVE: &str = "kubernetes.io/";

/// The largest amount that is read or written. Above it a floating point number skips whole
/// numbers; in units of one bit per second it is nine petabit per second.
pub const MOST: u64 = 1 << 53;

/// Reports whether a name is that of an extended resource, by the API server's rule.
#[must_use]
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains(NATIVE) && !name.starts_with("requests.")
}

/// Converts a number to an amount: rounded down, from 0 to [`MOST`]; 0 for what is no number.
#[must_use]
pub fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and makes NaN zero"
    )]
    let amount = number.floor() as u64;
    amount.min(MOST)
}

/// Converts an amount to a number; exact up to [`MOST`].
#[must_use]
pub fn number(amount: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "amounts are at most MOST")]
    let number = amount as f64;
    number
}

/// Amounts of extended resources by name; those of other resources are skipped while they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(Box<[(Box<str>, u64)]>);

impl Amounts {
    /// Returns the amount of one resource.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, amount)| *amount)
    }

    /// Returns each name with its amount.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Amounts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("quantities by the name of a resource")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amounts, A::Error> {
                let mut kept = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if is_extended(&name) {
                        let amount = amount(&map.next_value()?);
                        kept.push((name.into_boxed_str(), amount));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Amounts(kept.into_boxed_slice()))
            }
        }

        deserializer.deserialize_map(Names)
    }
}

/// The amount in a quantity; 0 for what the API server would refuse.
fn amount(quantity: &Value) -> u64 {
    let number = match quantity {
        Value::String(text) => parse_quantity(text).ok(),
        other => other.as_f64(),
    };
    number.map_or(0, whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_extended_by_the_rule_of_the_api_server() {
        for (name, extended) in [
            ("traffic.example.com/egress-mbps", true),
            ("nvidia.com/gpu", true),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/x", false),
            ("node.kubernetes.io/x", false),
            // Its check is for the text, wherever it begins.
            ("notkubernetes.io/x", false),
            ("requests.example.com/x", false),
        ] {
            assert_eq!(is_extended(name), extended, "{name}");
        }
    }

    #[test]
    fn only_amounts_of_extended_resources_are_kept() {
        let amounts: Amounts = serde_json::from_value(json!({
            "cpu": "4", "memory": "8Gi", "example.com/a": "1k", "example.com/b": 7,
            "example.com/c": "much", "example.com/d": null, "example.com/e": "-3",
        }))
        .unwrap();
        let kept: Vec<_> = amounts.iter().collect();
        let expected = [("a", 1000), ("b", 7), ("c", 0), ("d", 0), ("e", 0)];
        let expected = expected.map(|(name, amount)| (format!("example.com/{name}"), amount));
        let expected: Vec<_> = expected.iter().map(|(name, amount)| (&**name, *amount)).collect();
        assert_eq!(kept, expected);
        assert_eq!((amounts.get("example.com/a"), amounts.get("cpu")), (Some(1000), None));
    }

    #[test]
    fn no_number_is_more_than_the_most() {
        assert_eq!([whole(1e300), whole(f64::INFINITY)], [MOST, MOST]);
        assert_eq!([whole(-1.0), whole(f64::NAN), whole(2.9)], [0, 0, 2]);
        assert_eq!(whole(number(MOST)), MOST);
    }
}
