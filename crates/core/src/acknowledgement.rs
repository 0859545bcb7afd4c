//! The signature of a worker's report, so that it cannot be forged: neither by a pod that has taken
//! over its address, nor by a neighbor on the network, nor by an earlier pod with its name, nor by
//! the worker itself with an older answer.
//!
//! The operator writes a key into the `ConfigMap` with the shares, which only workers mount. Its
//! question names the pod that it means and a number that is used once; the answer repeats both and
//! is signed with that key.
use std::fmt;

use ring::{
    hmac::{self, HMAC_SHA256},
    rand::{SecureRandom, SystemRandom},
};

/// The key of the `ConfigMap` that holds the secret, and so the name of the file.
pub const KEY_FILE: &str = "acknowledge.key";

/// Number of hexadecimal digits of the secret: 256 bits, the most that SHA-256 can use.
const KEY_DIGITS: usize = 64;

/// Number of bytes of a number that is used once: among 2^64 requests, two are unlikely to have the
/// same.
const NONCE: usize = 16;

/// Maximum number of characters of a value in a question: a UID has 36, a number 32.
const LONGEST: usize = 128;

/// Prefix of the signed text, so that the signature is valid for nothing else.
const PURPOSE: &str = "traffic-operator acknowledgement 1";

/// The same of a grant.
const GRANT: &str = "traffic-operator grant 1";

/// Maximum number of bytes of the names in a grant: in hexadecimal digits, they fit into the first
/// line of a request.
const LONGEST_GRANT: usize = 4 << 10;

/// A secret that operator and workers of one `Swarm` share.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Reads a key; `None` if the text is not a key.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let good = text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        good.then(|| Self(hmac::Key::new(HMAC_SHA256, text.as_bytes())))
    }
}

/// The text of a new key; `None` if the system has no random numbers.
#[must_use]
pub fn new_key() -> Option<String> {
    random::<{ KEY_DIGITS / 2 }>()
}

/// A number that is used once.
#[must_use]
pub fn nonce() -> Option<String> {
    random::<NONCE>()
}

fn random<const N: usize>() -> Option<String> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}

/// The pod to which the request goes, and the number of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The UID of the pod.
    pub uid: String,
    /// Used once.
    pub nonce: String,
}

impl Question {
    /// Returns the query of the request's URL.
    #[must_use]
    pub fn query(&self) -> String {
        format!("uid={}&nonce={}", self.uid, self.nonce)
    }

    /// Reads a question from the query of a URL; `None` if the query contains none.
    #[must_use]
    pub fn read(query: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(name, _)| *name == key)?;
            // UIDs and numbers need no escapes.
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            let good = (1..=LONGEST).contains(&value.len()) && value.bytes().all(plain);
            good.then(|| value.to_owned())
        };
        Some(Self { uid: value("uid")?, nonce: value("nonce")? })
    }
}

/// The signed content.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a, S> {
    /// The question that it answers.
    pub question: &'a Question,
    /// The name of the worker.
    pub worker: &'a str,
    /// The version of the file that the worker runs.
    pub version: u64,
    /// The streams that the worker runs.
    pub jobs: &'a [S],
}

impl<S: AsRef<str>> Statement<'_, S> {
    /// The signature.
    #[must_use]
    pub fn sign(&self, key: &Key) -> String {
        hex(hmac::sign(&key.0, &self.bytes()).as_ref())
    }

    /// Reports whether that is the signature. Its duration reveals nothing about the right one.
    #[must_use]
    pub fn is_signed(&self, key: &Key, mac: &str) -> bool {
        let mac = unhex(mac).unwrap_or_default();
        hmac::verify(&key.0, &self.bytes(), &mac).is_ok()
    }

    /// Encodes each part with its length in front, so that no two statements have the same bytes.
    fn bytes(&self) -> Vec<u8> {
        let Question { uid, nonce } = self.question;
        let jobs = self.jobs.iter().map(|job| job.as_ref().as_bytes());
        let parts = [PURPOSE.as_bytes(), uid.as_bytes(), nonce.as_bytes(), self.worker.as_bytes()];
        encode(parts.into_iter().chain([&self.version.to_be_bytes()[..]]).chain(jobs))
    }
}

fn encode<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Tells a worker which streams a file has just given to it, before the file arrives. A worker starts
/// only those of which its own file says that they will come, and only until it has a file of that
/// version: a copy that is sent later, or to a later pod, has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The UID of the pod.
    pub uid: String,
    /// The name of the worker.
    pub worker: String,
    /// The version of the file.
    pub version: u64,
    /// The streams.
    pub jobs: Vec<String>,
}

impl Grant {
    /// Returns what is added to the query of a question; `None` if the names are too long together.
    #[must_use]
    pub fn query(&self, key: &Key) -> Option<String> {
        let jobs = self.jobs.join("\n");
        let mac = hmac::sign(&key.0, &self.bytes());
        let (version, names, mac) = (self.version, hex(jobs.as_bytes()), hex(mac.as_ref()));
        let query = format!("granted={version}&streams={names}&grant={mac}");
        (jobs.len() <= LONGEST_GRANT).then_some(query)
    }

    /// Reads a grant for this pod from the query of a URL; `None` if there is none with this key.
    #[must_use]
    pub fn read(query: &str, uid: &str, worker: &str, key: &Key) -> Option<Self> {
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let mac = unhex(value("grant")?)?;
        let jobs = String::from_utf8(unhex(value("streams")?)?).ok()?;
        let jobs = jobs.split('\n').map(str::to_owned).collect();
        let version = value("granted")?.parse().ok()?;
        let grant = Self { uid: uid.to_owned(), worker: worker.to_owned(), version, jobs };
        hmac::verify(&key.0, &grant.bytes(), &mac).is_ok().then_some(grant)
    }

    fn bytes(&self) -> Vec<u8> {
        let parts = [GRANT.as_bytes(), self.uid.as_bytes(), self.worker.as_bytes()];
        let jobs = self.jobs.iter().map(String::as_bytes);
        encode(parts.into_iter().chain([&self.version.to_be_bytes()[..]]).chain(jobs))
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;

    const JOBS: [&str; 2] = ["a", "b"];

    fn question() -> Question {
        Question { uid: "0a1b-2c".into(), nonce: "77".into() }
    }

    #[test]
    fn a_signature_is_of_one_statement_and_one_key() {
        let (one, other) = (new_key().unwrap(), new_key().unwrap());
        assert_ne!(one, other);
        let (key, other) = (Key::read(&one).unwrap(), Key::read(&other).unwrap());
        let question = question();
        let said = Statement { question: &question, worker: "w-0", version: 7, jobs: &JOBS };
        let mac = said.sign(&key);
        assert!(said.is_signed(&key, &mac));
        assert!(!said.is_signed(&other, &mac));
        for mac in ["", "0", "zz", &mac[2..]] {
            assert!(!said.is_signed(&key, mac), "{mac:?}");
        }
        let changed = [
            Question { uid: "0a1b-2d".into(), ..question.clone() },
            Question { nonce: "78".into(), ..question.clone() },
            // The same characters, divided differently.
            Question { uid: "0a1b-2".into(), nonce: "c77".into() },
        ];
        for question in &changed {
            assert!(!Statement { question, ..said }.is_signed(&key, &mac), "{question:?}");
        }
        assert!(!Statement { version: 8, ..said }.is_signed(&key, &mac));
        assert!(!Statement { worker: "w-1", ..said }.is_signed(&key, &mac));
        for jobs in [&["a"][..], &["b", "a"], &["ab"], &["a", "b", ""], &["a,b"]] {
            assert!(!Statement { jobs, ..said }.is_signed(&key, &mac), "{jobs:?}");
        }
    }

    #[test]
    fn the_signature_is_hmac_sha_256_of_parts_with_lengths() {
        // Computed with Python's hmac: workers by other authors can do the same.
        let key = Key::read(&"0123456789abcdef".repeat(4)).unwrap();
        let question = question();
        let said = Statement { question: &question, worker: "w-0", version: 7, jobs: &JOBS };
        assert_eq!(
            said.sign(&key),
            "f7c57ee36b6dcf529b198ebfd452f5d3a7334ce04ba2e3cf0916e8c35dceb12f"
        );
    }

    #[test]
    fn a_grant_is_for_one_pod_and_of_one_key() {
        let keys = [new_key().unwrap(), new_key().unwrap()].map(|text| Key::read(&text).unwrap());
        let jobs = vec!["stream:a&b".to_owned(), "ü".to_owned()];
        let grant = Grant { uid: "u".into(), worker: "w-0".into(), version: 7, jobs };
        let query = format!("x=1&{}&y", grant.query(&keys[0]).unwrap());
        assert_eq!(Grant::read(&query, "u", "w-0", &keys[0]), Some(grant.clone()));
        for (uid, worker, key) in [("v", "w-0", 0), ("u", "w-1", 0), ("u", "w-0", 1)] {
            assert_eq!(Grant::read(&query, uid, worker, &keys[key]), None, "{uid} {worker} {key}");
        }
        let other = query.replace("granted=7", "granted=8");
        assert_eq!(Grant::read(&other, "u", "w-0", &keys[0]), None);
        for query in ["", "granted=7&streams=61&grant=00", "granted=7&streams=6é&grant=é"] {
            assert_eq!(Grant::read(query, "u", "w-0", &keys[0]), None, "{query}");
        }
        let long = Grant { jobs: vec!["a".repeat(LONGEST_GRANT + 1)], ..grant };
        assert_eq!(long.query(&keys[0]), None);
    }

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let question = Question { uid: "u-1".into(), nonce: nonce().unwrap() };
        assert_eq!(Question::read(&question.query()), Some(question.clone()));
        assert_eq!(Question::read(&format!("x=1&{}&y", question.query())), Some(question));
        let long = "a".repeat(LONGEST + 1);
        for query in [
            "",
            "uid=u",
            "nonce=1",
            "uid=&nonce=1",
            "uid=u&nonce=%41",
            &format!("uid=u&nonce={long}"),
        ] {
            assert_eq!(Question::read(query), None, "{query}");
        }
    }

    #[test]
    fn only_a_key_is_a_key() {
        let key = new_key().unwrap();
        assert!(Key::read(&format!("{key}\n")).is_some());
        for text in ["", "secret", &key[1..], &format!("{key}0"), &key.replace(&key[..1], "x")] {
            assert!(Key::read(text).is_none(), "{text:?}");
        }
        assert!(!format!("{:?}", Key::read(&key)).contains(&key));
    }

    fn any_question() -> impl Strategy<Value = Question> {
        ("[-0-9a-zA-Z]{1,128}", "[0-9a-f]{1,128}").prop_map(|(uid, nonce)| Question { uid, nonce })
    }

    proptest! {
        #[test]
        fn every_question_is_read_as_it_was_written(
            question in any_question(), before in "([a-z]{1,3}=[a-z]{0,3}&){0,3}",
            after in "(&[a-z]{0,3}){0,3}",
        ) {
            let query = format!("{before}{}{after}", question.query());
            prop_assume!(!before.contains("uid=") && !before.contains("nonce="));
            prop_assert_eq!(Question::read(&query), Some(question));
        }

        #[test]
        fn any_text_is_a_question_of_plain_words_or_none(
            text in ".{0,60}", uid in ".{0,9}", nonce in ".{0,9}",
        ) {
            for text in [&text, &format!("uid={uid}&nonce={nonce}")] {
                let Some(question) = Question::read(text) else { continue };
                for word in [&question.uid, &question.nonce] {
                    prop_assert!((1..=LONGEST).contains(&word.len()), "{text:?}");
                    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                    prop_assert!(word.bytes().all(plain), "{text:?}");
                }
                // It is asked again in the same words.
                prop_assert_eq!(Question::read(&question.query()), Some(question));
            }
        }

        /// Only what was signed is signed, to the last character.
        #[test]
        fn no_other_statement_has_the_signature(
            asked in any_question(), other in any_question(),
            workers in ("[a-z]{0,6}", "[a-z]{0,6}"),
            versions in (0..4_u64, 0..4_u64), jobs in collection::vec("[ab,]{0,2}", 0..4),
            others in collection::vec("[ab,]{0,2}", 0..4), mac in ".{0,70}",
            secret in "[0-9a-f]{64}",
        ) {
            let key = Key::read(&secret);
            prop_assert!(key.is_some());
            let Some(key) = key else { return Ok(()) };
            let (worker, version) = (&*workers.0, versions.0);
            let said = Statement { question: &asked, worker, version, jobs: &jobs[..] };
            let signature = said.sign(&key);
            prop_assert!(said.is_signed(&key, &signature));
            prop_assert!(!said.is_signed(&key, &mac));
            for (what, same, changed) in [
                ("question", asked == other, Statement { question: &other, ..said }),
                ("worker", workers.0 == workers.1, Statement { worker: &workers.1, ..said }),
                ("version", versions.0 == versions.1, Statement { version: versions.1, ..said }),
                ("jobs", jobs == others, Statement { jobs: &others[..], ..said }),
            ] {
                prop_assert_eq!(changed.is_signed(&key, &signature), same, "{}: {:?}", what, said);
            }
        }
    }
}
