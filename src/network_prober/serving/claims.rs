//! The claims in a token. None of them is trusted before the API server has confirmed it: they only
//! decide which tokens are worth a review.
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;

use super::{AUDIENCE, Refusal};

/// Tolerance after a token's expiry, in seconds, within which it is still reviewed: clocks differ.
const LATE: i64 = 60;

/// The claims of a token that Kubernetes issues.
#[derive(Deserialize)]
struct Claims {
    aud: Audience,
    exp: i64,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<Kubernetes>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct Kubernetes {
    pod: Option<Bound>,
}

#[derive(Deserialize)]
struct Bound {
    uid: String,
}

/// The UID of the pod that a token claims to be bound to.
pub(super) fn pod(token: &str, now: i64) -> Result<String, Refusal> {
    let nonsense = Refusal::Unauthorized("not a token of a service account\n");
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(nonsense);
    };
    let Ok(payload) = BASE64_URL_SAFE_NO_PAD.decode(payload) else { return Err(nonsense) };
    let Ok(claims) = serde_json::from_slice::<Claims>(&payload) else { return Err(nonsense) };
    let for_us = match &claims.aud {
        Audience::One(audience) => audience == AUDIENCE,
        Audience::Several(audiences) => audiences.iter().any(|audience| audience == AUDIENCE),
    };
    if !for_us {
        return Err(Refusal::Unauthorized("the token is not for this service\n"));
    }
    if claims.exp.saturating_add(LATE) < now {
        return Err(Refusal::Unauthorized("the token has expired\n"));
    }
    let bound = claims.kubernetes.and_then(|kubernetes| kubernetes.pod);
    let unbound = Refusal::Unauthorized("the token is not bound to a pod\n");
    bound.map(|pod| pod.uid).filter(|uid| !uid.is_empty()).ok_or(unbound)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn token(claims: &Value) -> String {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(&json!({"alg": "RS256"})), part(claims))
    }

    fn read(claims: &Value) -> Option<String> {
        pod(&token(claims), 1000).ok()
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
            prop_assert!(pod(&text, 1000).is_err());
            let _ = pod(&format!("{text}{}", ".e30".repeat(dots)), 1000);
        }
    }
}
