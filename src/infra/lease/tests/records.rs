//! Records of any writer: whatever is in one, it is read, waited for and replaced.
use k8s_openapi::jiff::Timestamp;
use proptest::{option, prelude::*};

use super::*;

/// Any record that the API server could return.
fn record() -> impl Strategy<Value = LeaseSpec> {
    let holder = option::of(prop_oneof![Just(String::new()), Just("one".to_owned()), ".{1,20}"]);
    // Every time that an API server writes down: years of four digits.
    let time = -62_135_596_800_000_000_i64..=253_402_207_200_000_000;
    let time =
        option::of(time.prop_map(|time| MicroTime(Timestamp::from_microsecond(time).unwrap())));
    (holder, option::of(any::<i32>()), option::of(any::<i32>()), time.clone(), time).prop_map(
        |(holder_identity, lease_duration_seconds, lease_transitions, acquire_time, renew_time)| {
            LeaseSpec {
                holder_identity,
                lease_duration_seconds,
                lease_transitions,
                acquire_time,
                renew_time,
                ..LeaseSpec::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn any_record_is_waited_for_no_longer_than_an_hour_and_replaced_by_a_whole_one(
        spec in option::of(record()), version in option::of("[0-9]{1,20}"),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let line = Line::new();
            let client = Server::default().client(&line);
            let config = LeaseConfig {
                namespace: "ns".into(),
                name: "operator".into(),
                identity: "two".into(),
                duration: DURATION,
            };
            let mut two = Candidate::new(client, config, Fence::default());
            let mut lease = two.named();
            lease.metadata.resource_version = version;
            lease.spec = spec;
            let text = serde_json::to_string(&lease).unwrap();
            let lease: Lease = serde_json::from_str(&text).unwrap();
            let there = lease.spec.clone().unwrap_or_default();
            let released = there.holder_identity.as_deref().unwrap_or_default().is_empty()
                && there.lease_duration_seconds == Some(RELEASED_SECONDS);
            // A record of our own name may be what is left of the process before us.
            let ours = there.holder_identity.as_deref() == Some("two");
            prop_assert_eq!(two.holder(&lease).is_none(), released || ours);
            tokio::time::advance(LONGEST_CLAIM).await;
            prop_assert_eq!(two.holder(&lease), None, "it has not changed for an hour");
            let claim = two.claim(Some(lease)).spec.unwrap();
            prop_assert_eq!(claim.holder_identity.as_deref(), Some("two"));
            prop_assert_eq!(claim.lease_duration_seconds, Some(15));
            prop_assert!(claim.acquire_time.is_some() && claim.acquire_time == claim.renew_time);
            Ok::<(), TestCaseError>(())
        })?;
    }
}
