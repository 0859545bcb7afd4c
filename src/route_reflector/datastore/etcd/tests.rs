//! Objects that every decision needs, and new ones.
use super::*;

#[test]
fn a_uid_is_a_uuid_and_differs() {
    let uid = uid();
    let lengths: Vec<_> = uid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
    assert_eq!(&uid[14..15], "4", "{uid}");
    assert!("89ab".contains(&uid[19..20]), "{uid}");
    assert_ne!(uid, super::uid());
}

/// Otherwise one mistake in the text would end all repair until the operator restarts, although
/// it was corrected a minute later.
#[test]
fn an_unreadable_configuration_is_read_again_and_no_mistake_of_the_set() {
    let entry = |value| Entry { name: DEFAULT.into(), value, revision: 1 };
    let read = |entry| {
        let all: Listed = vec![(DEFAULT.into(), entry)];
        default(&all, "BGPConfiguration", Entry::configuration).map(|found| found.as_number())
    };
    assert_eq!(read(Some(entry(json!({"spec": {"asNumber": 65_000}})))).unwrap(), 65_000);
    for (found, text) in [
        (None, "BGPConfiguration default in etcd is no JSON"),
        (Some(entry(json!({"spec": {"asNumber": -1}}))), "BGPConfiguration default in etcd: "),
    ] {
        let error = read(found).unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("CalicoUnreadable", true));
        let error = crate::controller::Error::from(error);
        assert!(error.to_text().starts_with(text), "{error}");
        assert!(error.requeue_after(1).is_some());
    }
}
