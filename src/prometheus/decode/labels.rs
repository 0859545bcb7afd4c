//! The labels of a series, borrowed from the answer's text.
use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

use super::Text;

/// Number of labels that need no allocation: our own queries return five at most.
pub(super) const FEW: usize = 6;

/// Labels borrowed from the answer's text.
#[derive(Debug, Default)]
pub struct Labels<'a> {
    few: [(&'a str, &'a str); FEW],
    count: usize,
    /// Instead of the few, where there are more, or some have escapes.
    many: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Labels<'a> {
    /// Some labels, [`FEW`] at most.
    pub(super) fn few(all: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut labels = Self::default();
        for (place, label) in labels.few.iter_mut().zip(all) {
            *place = label;
            labels.count += 1;
        }
        labels
    }

    /// The value of one label; absent and empty are the same to Prometheus.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        // Every series is searched for some labels that it does not have: lengths exclude most of
        // them.
        for (key, value) in &self.few[..self.count] {
            if key.len() == name.len() && *key == name {
                return (!value.is_empty()).then_some(value);
            }
        }
        let (_, value) = self.many.iter().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let few = self.few[..self.count].iter().copied();
        few.chain(self.many.iter().map(|(name, value)| (name.as_ref(), value.as_ref())))
    }
}

impl std::fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (i, (key, value)) in self.iter().enumerate() {
            write!(f, "{}{key}={value:?}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Labels<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels<'de>, A::Error> {
                let mut many = Vec::with_capacity(map.size_hint().unwrap_or(4));
                while let Some((key, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
                    many.push((key.0, value.0));
                }
                Ok(Labels { many, ..Labels::default() })
            }
        }
        deserializer.deserialize_map(Map)
    }
}
