//! An instant vector, read piece by piece as it arrives.
//!
//! An answer about 5,000 nodes has three megabytes: read in this way, none of it is kept, and
//! hardly any work is left when its last byte arrives. An answer that does not begin like those of
//! Prometheus, Thanos, Mimir and `VictoriaMetrics` is kept and read as a whole.
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
    /// The bytes that are not read yet; after the list, the answer without its elements.
    text: Vec<u8>,
    /// An element that did not end is tried again at this length, twice what it had: otherwise one
    /// without an end would be read over and over.
    enough: usize,
}

/// The syntactic position of the next byte.
enum Place {
    Head,
    /// The list that begins after this head, and what may follow.
    List(&'static [u8], Next),
    /// What is read at the end: the answer without its elements, or all of it.
    Rest,
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

impl<F: FnMut(Series<'_>) -> Result<(), QueryError>> Pieces<F> {
    /// Starts to read an answer; its elements go to `take`.
    #[must_use]
    pub fn new(status: u16, content_type: String, take: F) -> Self {
        let json = super::is_json(&content_type);
        let place = if status == 200 && json { Place::Head } else { Place::Rest };
        Self { status, content_type, take, place, text: Vec::new(), enough: 0 }
    }

    /// Returns the number of stored bytes of the answer.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.text.len()
    }

    /// Takes the next piece. [`Self::end`] returns its errors.
    pub fn feed(&mut self, piece: &[u8]) {
        if let Place::Refused(_) = self.place {
            return;
        }
        self.text.extend_from_slice(piece);
        if let Place::Head = self.place {
            if HEADS.iter().any(|head| head.starts_with(&self.text)) {
                return;
            }
            let head = HEADS.into_iter().find(|head| self.text.starts_with(head));
            self.text.drain(..head.map_or(0, <[u8]>::len));
            self.place = head.map_or(Place::Rest, |head| Place::List(head, Next::First));
        }
        if self.text.len() >= self.enough {
            self.read();
        }
    }

    /// Returns the server's warnings when the answer is complete.
    ///
    /// # Errors
    /// As for [`vector`].
    pub fn end(mut self) -> Result<Vec<String>, QueryError> {
        self.read();
        match self.place {
            Place::Refused(error) => Err(error),
            Place::List(..) => {
                let message = "answer is not readable: it ends within its list";
                Err(QueryError::new(Class::BadAnswer, message))
            }
            Place::Head | Place::Rest => {
                vector(self.status, &self.content_type, &self.text, &mut self.take)
            }
        }
    }

    /// Reads the complete elements of the list.
    fn read(&mut self) {
        let Place::List(head, next) = self.place else { return };
        match elements(&self.text, next, &mut self.take) {
            Ok((read, Some(next))) => {
                self.text.drain(..read);
                self.enough = if read == 0 { self.text.len() * 2 } else { 0 };
                self.place = Place::List(head, next);
            }
            Ok((read, None)) => {
                self.text.splice(..read, [head, b"]"].concat());
                self.place = Place::Rest;
            }
            Err(error) => self.place = Place::Refused(error),
        }
    }
}

/// Reads the complete elements at the beginning of some bytes of the list. Returns the number of
/// bytes read, and what may follow; nothing after the end of the list.
fn elements(
    bytes: &[u8],
    mut next: Next,
    take: &mut impl FnMut(Series<'_>) -> Result<(), QueryError>,
) -> Result<(usize, Option<Next>), QueryError> {
    // A number or a character may continue in the next piece; no element ends with either.
    let end = bytes.iter().rposition(|byte| matches!(byte, b'}' | b']')).map_or(0, |at| at + 1);
    let text = std::str::from_utf8(&bytes[..end]).map_err(|error| unreadable(&error))?;
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let read = text.len() - rest.len();
        (next, rest) = match (next, rest.as_bytes().first()) {
            (_, None) => return Ok((read, Some(next))),
            (Next::First | Next::CommaOrEnd, Some(b']')) => return Ok((read + 1, None)),
            (Next::CommaOrEnd, Some(b',')) => (Next::Element, &rest[1..]),
            (Next::CommaOrEnd, _) => {
                return Err(unreadable(&"an element or its end is missing"));
            }
            _ => {
                let mut each = serde_json::Deserializer::from_str(rest).into_iter::<Element<'_>>();
                match each.next() {
                    Some(Ok(element)) => take(element.into())?,
                    Some(Err(error)) if !error.is_eof() => return Err(unreadable(&error)),
                    _ => return Ok((read, Some(next))),
                }
                (Next::CommaOrEnd, &rest[each.byte_offset()..])
            }
        };
    }
}

fn unreadable(why: &dyn std::fmt::Display) -> QueryError {
    QueryError::new(Class::BadAnswer, format!("vector is not readable: {why}"))
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
            r#"{"metric":{"h":"\ud83d\ude00"},"histogram":[-1.5e3,{"count":"1"}]}"#,
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
