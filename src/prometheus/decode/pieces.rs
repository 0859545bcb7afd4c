//! An instant vector, read piece by piece as it arrives.
//!
//! An answer about 5,000 nodes has three megabytes: read in this way, none of it is kept, and
//! hardly any work is left when its last byte arrives. An answer that does not begin like those of
//! Prometheus, Thanos, Mimir and `VictoriaMetrics` is kept and read as a whole.
use traffic_operator_core::series::{Elements, Stop};

use super::{Element, Series, vector};
use crate::prometheus::{Class, QueryError};

/// Prefixes of the answers that are read in pieces.
const HEADS: [&[u8]; 2] = [
    br#"{"status":"success","data":{"resultType":"vector","result":["#,
    br#"{"status":"success","isPartial":false,"data":{"resultType":"vector","result":["#,
];

/// The reader of one answer.
pub struct Pieces<F> {
    status: u16,
    content_type: String,
    take: F,
    place: Place,
    elements: Elements,
    /// The answer without its elements; all of it if it is read as a whole.
    envelope: Vec<u8>,
    /// The beginning of an element that continues in the next piece.
    begun: Vec<u8>,
    nesting: Nesting,
}

/// The syntactic position of the next byte.
enum Place {
    Head,
    /// The list, and what may follow.
    List(Next),
    Tail,
    Whole,
    /// The answer is refused, and nothing more is read.
    Refused(QueryError),
}

#[derive(Clone, Copy, PartialEq)]
enum Next {
    /// An element, or the end of a list that has none.
    First,
    Element,
    CommaOrEnd,
}

/// The element found at the beginning of some bytes of the list.
enum Found {
    /// This many bytes are read, and this may follow them.
    Read(usize, Next),
    /// The end of the list, after this many bytes.
    End(usize),
    /// The bytes end within an element.
    Incomplete,
}

impl<F: FnMut(Series<'_>) -> Result<(), QueryError>> Pieces<F> {
    /// Starts to read an answer; its elements go to `take`.
    #[must_use]
    pub fn new(status: u16, content_type: String, take: F) -> Self {
        let json = super::is_json(&content_type);
        let place = if status == 200 && json { Place::Head } else { Place::Whole };
        let (envelope, begun, nesting) = (Vec::new(), Vec::new(), Nesting::default());
        let elements = Elements::default();
        Self { status, content_type, take, place, elements, envelope, begun, nesting }
    }

    /// Returns the number of stored bytes of the answer.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.envelope.len() + self.begun.len()
    }

    /// Takes the next piece. [`Self::end`] returns its errors.
    pub fn feed(&mut self, mut piece: &[u8]) {
        if let Place::Head = self.place {
            piece = self.head(piece);
        }
        while let (Place::List(next), false) = (&self.place, piece.is_empty()) {
            piece = self.list(*next, piece);
        }
        if matches!(self.place, Place::Tail | Place::Whole) {
            self.envelope.extend_from_slice(piece);
        }
    }

    /// Returns the server's warnings when the answer is complete.
    ///
    /// # Errors
    /// As for [`vector`].
    pub fn end(mut self) -> Result<Vec<String>, QueryError> {
        match self.place {
            Place::Refused(error) => return Err(error),
            Place::List(_) => {
                return Err(unreadable("answer is not readable: it ends within its list"));
            }
            Place::Head | Place::Tail | Place::Whole => {}
        }
        vector(self.status, &self.content_type, &self.envelope, &mut self.take)
    }

    /// Reads to the beginning of the list, and returns the rest.
    fn head<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let before = self.envelope.len();
        self.envelope.extend_from_slice(piece);
        if HEADS.iter().any(|head| head.starts_with(&self.envelope)) {
            return &[];
        }
        let Some(head) = HEADS.iter().find(|head| self.envelope.starts_with(head)) else {
            self.place = Place::Whole;
            return &[];
        };
        self.envelope.truncate(head.len());
        self.place = Place::List(Next::First);
        &piece[head.len() - before..]
    }

    /// Reads some of the list, and returns the rest.
    fn list<'p>(&mut self, next: Next, piece: &'p [u8]) -> &'p [u8] {
        if self.begun.is_empty() {
            let (end, rest) = self.elements(next, piece);
            if let Place::List(_) = self.place {
                self.begun.extend_from_slice(&piece[end..]);
                self.nesting = Nesting::default();
                // It does not end here.
                self.nesting.end(&self.begun);
            }
            return rest;
        }
        let Some(end) = self.nesting.end(piece) else {
            self.begun.extend_from_slice(piece);
            return &[];
        };
        self.begun.extend_from_slice(&piece[..end]);
        let mut element = std::mem::take(&mut self.begun);
        self.place = match self.element(&element) {
            Ok(()) => Place::List(Next::CommaOrEnd),
            Err(error) => Place::Refused(error),
        };
        element.clear();
        self.begun = element;
        &piece[end..]
    }

    /// Reads the complete elements. Returns the state after them, and the bytes that are left.
    fn elements<'p>(&mut self, mut next: Next, piece: &'p [u8]) -> (usize, &'p [u8]) {
        let (mut at, text) = (0, valid(piece));
        loop {
            match self.one(next, &piece[at..], text.get(at..).unwrap_or_default()) {
                Ok(Found::Read(len, then)) => (at, next) = (at + len, then),
                Ok(Found::End(len)) => return (at, self.ended(&piece[at + len..])),
                Ok(Found::Incomplete) => {
                    self.place = Place::List(next);
                    return (at, &[]);
                }
                Err(error) => {
                    self.place = Place::Refused(error);
                    return (at, &[]);
                }
            }
        }
    }

    fn ended<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        self.place = Place::Tail;
        self.envelope.push(b']');
        rest
    }

    /// Reads the next part of the list: these bytes, which begin with this text.
    fn one(&mut self, next: Next, bytes: &[u8], text: &str) -> Result<Found, QueryError> {
        match (next, bytes.first()) {
            (_, None) => Ok(Found::Incomplete),
            (_, Some(b' ' | b'\t' | b'\n' | b'\r')) => Ok(Found::Read(1, next)),
            (Next::First | Next::CommaOrEnd, Some(b']')) => Ok(Found::End(1)),
            (Next::CommaOrEnd, Some(b',')) => Ok(Found::Read(1, Next::Element)),
            (Next::First | Next::Element, Some(b'{')) => {
                let stop = match self.elements.read(text) {
                    Ok((series, len)) => {
                        (self.take)(series)?;
                        return Ok(Found::Read(len, Next::CommaOrEnd));
                    }
                    Err(stop) => stop,
                };
                let end = match stop {
                    Stop::Incomplete if text.len() == bytes.len() => None,
                    _ => Nesting::default().end(bytes),
                };
                let Some(len) = end else { return Ok(Found::Incomplete) };
                self.element(&bytes[..len])?;
                Ok(Found::Read(len, Next::CommaOrEnd))
            }
            _ => Err(unreadable("vector is not readable: an element or its end is missing")),
        }
    }

    /// Reads an element that is completely in memory, in any form.
    fn element(&mut self, bytes: &[u8]) -> Result<(), QueryError> {
        if let Ok((series, len)) = self.elements.read(valid(bytes))
            && len == bytes.len()
        {
            return (self.take)(series);
        }
        let element = serde_json::from_slice::<Element<'_>>(bytes);
        let element =
            element.map_err(|error| unreadable(&format!("vector is not readable: {error}")))?;
        (self.take)(element.into())
    }
}

/// Returns the valid text at the beginning of some bytes.
fn valid(bytes: &[u8]) -> &str {
    let text = std::str::from_utf8(bytes);
    text.or_else(|error| std::str::from_utf8(&bytes[..error.valid_up_to()])).unwrap_or_default()
}

/// The nesting depth within an object, piece by piece.
#[derive(Clone, Copy, Default)]
struct Nesting {
    depth: usize,
    quoted: bool,
    escaped: bool,
}

impl Nesting {
    /// Returns the number of these bytes that belong to the object; `None` if it continues after
    /// them.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            match (self.quoted, byte) {
                (true, _) if self.escaped => self.escaped = false,
                (true, b'\\') => self.escaped = true,
                (_, b'"') => self.quoted = !self.quoted,
                (false, b'{' | b'[') => self.depth += 1,
                (false, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

fn unreadable(message: &str) -> QueryError {
    QueryError::new(Class::BadAnswer, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = Result<(Vec<(String, Option<String>)>, Vec<String>), Class>;

    /// Reads a body in pieces that end at multiples of `size`.
    fn pieces(body: &[u8], size: usize) -> Read {
        let mut all = Vec::new();
        let mut reader = Pieces::new(200, "application/json".into(), |one: Series<'_>| {
            all.push((one.labels.to_string(), one.value.map(|value| value.to_string())));
            Ok(())
        });
        body.chunks(size).for_each(|piece| reader.feed(piece));
        let warnings = reader.end().map_err(|error| error.class)?;
        Ok((all, warnings))
    }

    /// Reads a body as a whole.
    fn whole(body: &[u8]) -> Read {
        let mut all = Vec::new();
        let warnings = vector(200, "application/json", body, |one| {
            all.push((one.labels.to_string(), one.value.map(|value| value.to_string())));
            Ok(())
        });
        Ok((all, warnings.map_err(|error| error.class)?))
    }

    fn answer(elements: &str) -> String {
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{elements}]}},"warnings":["w"]}}"#
        )
    }

    const USUAL: &str =
        r#"{"metric":{"instance":"10.0.0.1:9100","measure":"age"},"value":[1700000000.123,"3.2"]}"#;

    #[test]
    fn pieces_of_every_size_give_what_the_whole_gives() {
        let elements = [
            USUAL,
            r#"{"metric":{},"value":[1,"NaN"]}"#,
            r#"{"metric":{"a":"\u0030\"}"},"value":[1,"+Inf"]}"#,
            r#" { "metric" : {"ä":"ö"}, "value":[-1e3, "-8"], "future": [{}] } "#,
            r#"{"metric":{"a":"1","b":"2","c":"3","d":"4","e":"5","f":"6","g":"7","h":"8","i":"9"},"value":[1,"1"]}"#,
            r#"{"metric":{"h":"x"},"histogram":[1,{"count":"1"}]}"#,
        ];
        let partial = answer(USUAL).replace("\"data\"", "\"isPartial\":false,\"data\"");
        let other = answer(USUAL).replace("{\"status\"", "{ \"status\"");
        for body in [answer(&elements.join(",")), answer(""), answer(" "), partial, other] {
            let expected = whole(body.as_bytes());
            assert!(expected.is_ok(), "{body}");
            for size in (1..200).chain([1 << 20]) {
                assert_eq!(pieces(body.as_bytes(), size), expected, "{size} of {body}");
            }
        }
    }

    #[test]
    fn what_is_no_answer_as_a_whole_is_none_in_pieces() {
        let truncated = answer(USUAL).replace("[\"w\"]", "[\"results truncated\"]");
        let bodies = [
            truncated,
            answer(&format!("{USUAL},")),
            answer(&format!(",{USUAL}")),
            answer(&format!("{USUAL}{USUAL}")),
            answer("1"),
            answer("{}"),
            answer(r#"{"metric":{"a":"b"},"value":[1,"x"]}"#),
            answer(r#"{"metric":{"a":1},"value":[1,"1"]}"#),
            answer("{\"metric\":{\"a\":\"\n\"},\"value\":[1,\"1\"]}"),
            answer(USUAL).replace("1700000000.123", "1700000000.1.23"),
            answer(USUAL).replace("]},", "],"),
            answer(USUAL) + "}",
            "{\"status\":\"succ".into(),
        ];
        for body in bodies {
            assert_eq!(whole(body.as_bytes()), Err(Class::BadAnswer), "{body}");
            for size in [1, 7, 64, 1 << 20] {
                assert_eq!(pieces(body.as_bytes(), size), Err(Class::BadAnswer), "{body}");
            }
        }
        let body = answer(USUAL);
        for cut in 0..body.len() {
            assert_eq!(pieces(&body.as_bytes()[..cut], 50), Err(Class::BadAnswer), "{cut}");
        }
    }

    #[test]
    fn an_element_without_an_end_is_not_read_over_and_over() {
        let started = std::time::Instant::now();
        let head = r#"{"status":"success","data":{"resultType":"vector","result":["#;
        for begun in [r#"{"metric":{"a":""#, r#"{"metric":{"a":"\n"#, r#"{ "metric":{"a":""#] {
            let body = format!("{head}{begun}{}", "x".repeat(8 << 20));
            assert_eq!(pieces(body.as_bytes(), 16 << 10), Err(Class::BadAnswer));
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn only_what_is_not_complete_is_kept() {
        let body = answer(&vec![USUAL; 10_000].join(","));
        let mut reader = Pieces::new(200, "application/json".into(), |_: Series<'_>| Ok(()));
        for piece in body.as_bytes().chunks(1000) {
            reader.feed(piece);
            assert!(reader.kept() < 1000, "{}", reader.kept());
        }
        assert_eq!(reader.end(), Ok(vec!["w".to_owned()]));
    }

    proptest! {
        #[test]
        fn mutated_answers_are_read_alike(
            cut in 0usize..200, insert in ".{0,4}", size in 1usize..80,
        ) {
            let body = answer(USUAL);
            let cut = body.floor_char_boundary(cut.min(body.len()));
            let mutated = format!("{}{insert}{}", &body[..cut], &body[cut..]);
            prop_assert_eq!(pieces(mutated.as_bytes(), size), whole(mutated.as_bytes()));
        }

        #[test]
        fn never_panics_on_any_bytes(bytes: Vec<u8>, size in 1usize..40) {
            let mut body = answer("").into_bytes();
            body.truncate(body.len() - 18);
            body.extend(&bytes);
            let _ = pieces(&body, size);
            let _ = pieces(&bytes, size);
        }
    }
}
