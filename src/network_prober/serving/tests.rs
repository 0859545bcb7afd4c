//! What an agent asks for, and which tokens are worth a review.
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod floods;

#[test]
fn a_request_says_whose_list_and_how_long() {
    let request = |query: &str| {
        let Request { prober: (namespace, name), wait } = Request::of(query);
        (namespace, name, wait.as_secs())
    };
    assert_eq!(request("prober=a%2Fnp&wait=20"), ("a".into(), "np".into(), 20));
    assert_eq!(request("prober=a/np&wait=9999"), ("a".into(), "np".into(), 50));
    assert_eq!(request("wait=-1&prober=np"), (String::new(), String::new(), 0));
}

fn token(claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", part(&json!({"alg": "RS256"})), part(claims))
}

fn read(claims: &Value) -> Option<String> {
    claimed_pod(&token(claims), 1000).ok()
}

#[test]
fn only_tokens_for_us_of_a_pod_are_worth_a_question() {
    let bound = json!({"namespace": "a", "pod": {"name": "p", "uid": "u"}});
    let good = json!({"aud": ["traffic-operator"], "exp": 2000, "kubernetes.io": bound});
    assert_eq!(read(&good).as_deref(), Some("u"));
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        read(&claims)
    };
    assert_eq!(with("aud", json!("traffic-operator")).as_deref(), Some("u"));
    // Clocks differ a little.
    assert_eq!(with("exp", json!(950)).as_deref(), Some("u"));
    for (key, value) in [
        ("aud", json!(["https://kubernetes.default.svc"])),
        ("aud", json!([])),
        ("aud", json!(null)),
        ("exp", json!(900)),
        ("exp", json!(i64::MIN)),
        ("kubernetes.io", json!({"serviceaccount": {"uid": "u"}})),
        ("kubernetes.io", json!({"pod": {"uid": ""}})),
        ("kubernetes.io", json!(null)),
    ] {
        assert_eq!(with(key, value.clone()), None, "{key}: {value}");
    }
}

proptest! {
    #[test]
    fn no_text_counts_as_a_token_and_none_breaks_us(text in ".{0,400}", dots in 0usize..4) {
        prop_assert!(claimed_pod(&text, 1000).is_err());
        let _ = claimed_pod(&format!("{text}{}", ".e30".repeat(dots)), 1000);
    }
}
