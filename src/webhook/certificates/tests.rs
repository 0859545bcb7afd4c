//! Rotation with any clock, and Secrets that others may have changed.
use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use proptest::prelude::*;

use super::*;

/// 2026-01-01T00:00:00Z.
const START: UnixSeconds = 1_767_225_600;

fn names() -> Vec<String> {
    CertificateKeeper::service_names("traffic-operator-system")
}

fn lifetimes(authority: u64, leaf: u64) -> Lifetimes {
    Lifetimes { authority: Duration::from_secs(authority), leaf: Duration::from_secs(leaf) }
}

fn at(state: Option<&State>, now: UnixSeconds, lifetimes: Lifetimes) -> State {
    next(state, now, lifetimes, &names()).unwrap().or_else(|| state.cloned()).unwrap()
}

fn secret(data: BTreeMap<String, ByteString>) -> Secret {
    Secret { data: Some(data), ..Secret::default() }
}

fn read(state: &State) -> State {
    State::from_secret(&secret(state.to_data().unwrap())).unwrap()
}

#[test]
fn a_year_of_the_defaults() {
    let day = 86_400;
    let lifetimes = Lifetimes::default();
    let first = at(None, START, lifetimes);
    assert_eq!(first.authorities[0].not_after, START + 365 * day);
    assert_eq!(first.leaf.not_after, START + 90 * day);
    assert_eq!(first.due_at(), START + 60 * day);
    assert_eq!(next(Some(&first), START + 60 * day - 1, lifetimes, &names()).unwrap(), None);
    let renewed = at(Some(&first), START + 60 * day, lifetimes);
    assert_eq!(renewed.authorities, first.authorities);
    assert_ne!(renewed.leaf, first.leaf);
    // Two thirds of a year: a second authority, which does not sign yet.
    let due = first.authorities[0].due_at();
    let second = at(Some(&renewed), due, lifetimes);
    assert_eq!((second.authorities.len(), &second.leaf.authority), (2, &first.authorities[0].name));
    let signing = at(Some(&second), second.authorities[1].signs_from(), lifetimes);
    assert_eq!(signing.leaf.authority, second.authorities[1].name);
    assert_eq!(signing.bundle().matches("BEGIN CERTIFICATE").count(), 2);
    let last = at(Some(&signing), START + 365 * day, lifetimes);
    assert_eq!(last.authorities, second.authorities[1..]);
}

#[test]
fn the_overlap_is_bounded_on_both_sides() {
    let overlap = |life: u64| {
        let state = at(None, START, lifetimes(life, life));
        state.authorities[0].signs_from() - START
    };
    assert_eq!(overlap(365 * 86_400), 315_360);
    assert_eq!(overlap(90), 10);
    assert_eq!(overlap(30), 5);
}

#[test]
fn other_names_are_another_certificate_of_the_same_authority() {
    let state = at(None, START, Lifetimes::default());
    let more = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let next = next(Some(&state), START, Lifetimes::default(), &more).unwrap().unwrap();
    assert_eq!((next.authorities.clone(), &next.leaf.names), (state.authorities, &more));
    assert_eq!(read(&next), next);
}

#[test]
fn a_clock_that_was_set_back_makes_what_is_valid_then() {
    let state = at(None, START, Lifetimes::default());
    let half_an_hour = at(Some(&state), START - 1800, Lifetimes::default());
    assert_eq!(half_an_hour, state);
    let year = at(Some(&state), START - 365 * 86_400, Lifetimes::default());
    assert_eq!((year.authorities.len(), year.leaf.issued), (2, START - 365 * 86_400));
    // And only once.
    let again = at(Some(&year), START - 365 * 86_400 + 1, Lifetimes::default());
    assert_eq!(again, year);
    assert!(next(None, -5_000, Lifetimes::default(), &names()).is_err());
}

#[test]
fn what_someone_did_to_the_secret_is_seen() {
    let (state, other) =
        (at(None, START, Lifetimes::default()), at(None, START, Lifetimes::default()));
    let (data, foreign) = (state.to_data().unwrap(), other.to_data().unwrap());
    assert_eq!(State::from_secret(&secret(data.clone())).unwrap(), state);
    assert!(matches!(State::from_secret(&Secret::default()), Err(Defect::Missing(_))));
    for key in ["ca.crt", "ca.key", "tls.crt", "tls.key", "times.json"] {
        let mut missing = data.clone();
        missing.remove(key);
        assert!(State::from_secret(&secret(missing)).is_err(), "{key} missing");
        for text in
            ["", "nonsense", "{}", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            let mut broken = data.clone();
            broken.insert(key.into(), ByteString(text.into()));
            assert!(State::from_secret(&secret(broken)).is_err(), "{key} = {text:?}");
        }
        let mut mixed = data.clone();
        mixed.insert(key.into(), foreign[key].clone());
        assert!(State::from_secret(&secret(mixed)).is_err(), "{key} of another");
    }
    // A whole foreign pair, with our times: keys match, the chain does not.
    let mut swapped = data.clone();
    for key in ["tls.crt", "tls.key"] {
        swapped.insert(key.into(), foreign[key].clone());
    }
    assert!(matches!(State::from_secret(&secret(swapped)), Err(Defect::Chain(_))));
    // Times beyond the validity of the certificate.
    let mut later = data;
    let times = String::from_utf8(later["times.json"].0.clone()).unwrap();
    let times =
        times.replace(&state.leaf.not_after.to_string(), &(START + 999_999_999).to_string());
    later.insert("times.json".into(), ByteString(times.into()));
    assert!(matches!(State::from_secret(&secret(later)), Err(Defect::Chain(_))));
}

#[test]
fn keys_are_not_printed() {
    let certificates = Certificates::default();
    certificates.install(&at(None, START, Lifetimes::default())).unwrap();
    assert!(!format!("{certificates:?}").contains("PRIVATE"));
}

/// Checks the state after every step: `from_secret` has verified the chain, the names and the keys.
fn check(before: Option<&State>, state: &State, now: UnixSeconds) -> Result<(), TestCaseError> {
    prop_assert_eq!(&read(state), state);
    let leaf = &state.leaf;
    prop_assert!(leaf.issued - BACKDATED <= now && now < leaf.not_after);
    let signer = state.authorities.iter().find(|a| a.name == leaf.authority).unwrap();
    prop_assert!(leaf.not_after <= signer.not_after && now < signer.not_after);
    prop_assert!(state.authorities.iter().all(|authority| now < authority.not_after));
    if before.is_none_or(|before| before.leaf != *leaf) && signer.signs_from() > now {
        // If none has been published for long enough, the oldest signs.
        let mut valid = state.authorities.iter().filter(|authority| authority.is_valid(now));
        prop_assert!(valid.all(|a| a.signs_from() > now && a.created >= signer.created));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_certificate_is_valid_and_its_authority_known_by_any_clock(
        steps in prop::collection::vec((0_u8..20, 0_i64..400), 1..25),
        authority in 30_u64..400,
        leaf in 5_u64..500,
    ) {
        let lifetimes = lifetimes(authority, leaf);
        let (mut now, mut state) = (START, None::<State>);
        for (kind, step) in steps {
            now += match kind {
                // A long absence, a clock that is set back a little or by hours; mostly a small
                // step.
                0 => step * 100,
                1 => -step,
                2 => -step * 30,
                _ => step / 8,
            };
            let next = at(state.as_ref(), now, lifetimes);
            check(state.as_ref(), &next, now)?;
            prop_assert_eq!(&at(Some(&next), now, lifetimes), &next);
            state = Some(next);
        }
    }

    #[test]
    fn who_wakes_at_the_given_time_misses_nothing(authority in 30_u64..2000, leaf in 5_u64..3000) {
        let lifetimes = lifetimes(authority, leaf);
        let (mut now, mut state) = (START, at(None, START, lifetimes));
        for _ in 0..40 {
            let due = state.due_at();
            prop_assert!(due > now, "{due} {now}");
            // Nothing is due before.
            prop_assert_eq!(&at(Some(&state), due - 1, lifetimes), &state);
            now = due;
            let next = at(Some(&state), now, lifetimes);
            prop_assert_ne!(&next, &state);
            // A clock that is set back keeps later authorities until they expire.
            prop_assert!(next.authorities.len() <= 4);
            check(Some(&state), &next, now)?;
            let signer = next.authorities.iter().find(|a| a.name == next.leaf.authority).unwrap();
            prop_assert!(signer.created == START || signer.signs_from() <= next.leaf.issued);
            state = next;
        }
    }
}
