//! The elements of an instant vector, in the form in which Prometheus writes them.
//!
//! Reading them is most of the cost of a judgment: an answer about 5,000 nodes has 20,000.
//! Therefore this module is in a crate that is built for speed, and not next to the client.
//!
//! An element, `{"metric":{"instance":"a","device":"eth0"},"value":[1.5,"8"]}`, is read without
//! allocating. Everything else that is valid (spaces, escapes, histograms, further fields) is
//! [`Stop::Unusual`] and left to a full JSON parser, which decides what is valid.
//!
//! Most elements differ from the previous one only in the values of labels and the number, and most
//! of these values are the same too: the text between the differences is not parsed again, only
//! compared.
use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

use self::form::{BETWEEN, Cursor, END, FEW, Form, Places};

mod form;

pub use form::Stop;

/// One element of an instant vector.
#[derive(Debug)]
pub struct Series<'a> {
    /// The labels, in the order of the answer.
    pub labels: Labels<'a>,
    /// The time at which the server evaluated it, by the server's clock, in Unix seconds. `None`
    /// for a native histogram.
    pub time: Option<f64>,
    /// The value: `NaN` and infinities are values. `None` is a native histogram.
    pub value: Option<f64>,
}

/// Labels borrowed from the answer's text.
#[derive(Debug, Default)]
pub struct Labels<'a> {
    /// The names, and the values that stay, if the element is in a usual form.
    form: Option<&'a Form>,
    /// The text of the element, and the places of the other values in it.
    text: &'a str,
    values: [(usize, usize); FEW],
    /// Used instead if there are more than [`FEW`], or some have escapes.
    many: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Labels<'a> {
    /// Returns the labels of an element in this form, with the places of the values that do not
    /// stay.
    fn of(form: &'a Form, text: &'a str, values: [(usize, usize); FEW]) -> Self {
        Self { form: Some(form), text, values, many: Vec::new() }
    }

    /// Identifies a sequence of names among those of the same [`Elements`]; `None` if it is
    /// not in the usual form. While it stays the same, so do the places of the labels.
    #[must_use]
    pub fn form(&self) -> Option<u64> {
        self.form.map(Form::number)
    }

    /// Like [`Self::form`], but also identifies a set of values that [stay](Self::staying).
    #[must_use]
    pub fn turn(&self) -> Option<u64> {
        self.form.map(Form::turn)
    }

    /// Returns the value at a place of the form, if it stays the same as long as [`Self::turn`]
    /// does; an empty value is "".
    #[must_use]
    pub fn staying(&self, place: usize) -> Option<&'a str> {
        self.form?.staying(place)
    }

    /// Returns the place of a label among those of its form.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.form?.names().position(|known| known == name)
    }

    /// Returns the value at a place of the form; absent and empty are the same in Prometheus.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&'a str> {
        self.value(place).filter(|value| !value.is_empty())
    }

    fn value(&self, place: usize) -> Option<&'a str> {
        if let Some(value) = self.staying(place) {
            return Some(value);
        }
        let (start, end) = *self.values.get(place)?;
        self.text.get(start..end)
    }

    /// Returns the value of one label; absent and empty are the same in Prometheus.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        if let Some(place) = self.place(name) {
            return self.at(place);
        }
        let (_, value) = self.many.iter().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// Iterates over all labels.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.form.into_iter().flat_map(Form::names);
        let value = |place| self.value(place).unwrap_or_default();
        let few = names.enumerate().map(move |(place, name)| (name, value(place)));
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

/// A text, borrowed if the JSON string has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads the elements of one answer, one after the other.
#[derive(Debug, Default)]
pub struct Elements {
    form: Form,
}

impl Elements {
    /// Reads the element at the beginning of `text`, and returns it with its length.
    ///
    /// # Errors
    /// When it is not complete, or in another form than Prometheus' own.
    pub fn read<'a>(&'a mut self, text: &'a str) -> Result<(Series<'a>, usize), Stop> {
        let places = match self.form.find(text) {
            Some(places) => places,
            None => self.learn(text)?,
        };
        let (start, end) = places.number;
        let value = text.get(start..end).and_then(|number| number.parse().ok());
        let value = value.ok_or(Stop::Unusual)?;
        let time = self.form.time();
        let labels = Labels::of(&self.form, text, places.values);
        Ok((Series { labels, time, value: Some(value) }, places.end))
    }

    /// Reads an element of any usual form, which becomes the expected form of the following ones.
    fn learn(&mut self, text: &str) -> Result<Places, Stop> {
        let mut cursor = Cursor { bytes: text.as_bytes(), at: 0 };
        let mut places = Places::default();
        let mut names = [0; FEW];
        let mut count = 0;
        cursor.literal(b"{\"metric\":{")?;
        if !cursor.takes(b'}')? {
            loop {
                cursor.literal(b"\"")?;
                let name = cursor.string()?;
                cursor.literal(&BETWEEN.as_bytes()[1..])?;
                let value = cursor.string()?;
                *names.get_mut(count).ok_or(Stop::Unusual)? = name.len();
                places.values[count] = (value.start, value.end);
                count += 1;
                if cursor.takes(b'}')? {
                    break;
                }
                cursor.literal(b",")?;
            }
        }
        cursor.literal(b",\"value\":[")?;
        let time = cursor.number()?;
        cursor.literal(b",\"")?;
        let number = cursor.string()?;
        cursor.literal(&END[1..])?;
        (places.number, places.end) = ((number.start, number.end), cursor.at);
        let element = text.get(..cursor.at).ok_or(Stop::Unusual)?;
        let time = text.get(time).and_then(|time| time.parse().ok());
        self.form.begin(element, time, &names[..count], &places);
        Ok(places)
    }
}

#[cfg(test)]
mod tests;
