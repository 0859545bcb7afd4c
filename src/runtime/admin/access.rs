//! Access to `/metrics`: the API server identifies the token's account (TokenReview) and decides
//! whether it may `get` the URL (SubjectAccessReview), as in controller-runtime.
//!
//! An answer is valid for a short time. Tokens are remembered only by their digest.
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Client, api::PostParams};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use tokio::{sync::Semaphore, time::timeout};

use crate::infra::Api;

/// The time for which a token is admitted without a new review: a revoked right ends within this
/// time.
const ALLOWED: Duration = Duration::from_mins(1);

/// The time for which a confirmed token stays valid while the API server does not answer: these
/// metrics are most needed during its outage.
const ALLOWED_IN_OUTAGE: Duration = Duration::from_mins(10);

/// The time for which a refused token is refused without a new review: shorter, because someone may
/// just be granting the right.
const REFUSED: Duration = Duration::from_secs(10);

/// Maximum number of remembered tokens, separately for admitted and refused ones, so that refused
/// ones do not displace the others. A cluster has a handful of Prometheus servers, each with a new
/// token every hour.
const REMEMBERED: usize = 256;

/// Maximum number of tokens that are reviewed at once.
const REVIEWS: usize = 4;

/// The time for which a request waits for its turn.
const TURN: Duration = Duration::from_secs(2);

/// The time that both reviews of a token may take: within the 10 s after which Prometheus abandons
/// a scrape.
const DEADLINE: Duration = Duration::from_secs(6);

/// The time after a refused token for which other tokens of the same source are not reviewed.
const PAUSE: Duration = Duration::from_secs(1);

/// Time between two log lines about failing reviews.
const SAID: Duration = Duration::from_mins(1);

type Digest = [u8; SHA256_OUTPUT_LEN];

/// The reason for which a client may not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request has no token.
    NoToken,
    /// The token does not belong to this cluster.
    Unauthenticated,
    /// Its account, by name, lacks the right.
    Forbidden(String),
    /// The source just sent a refused token, or too many reviews are running.
    TooMany,
    /// The API server does not answer.
    Unavailable,
}

/// Asks the API server, and remembers its answers.
pub struct Access {
    client: Client,
    path: &'static str,
    known: Mutex<Known>,
    reviews: Semaphore,
}

#[derive(Default)]
struct Known {
    allowed: HashMap<Digest, Instant>,
    refused: HashMap<Digest, (Instant, Refusal)>,
    paused: HashMap<IpAddr, Instant>,
    said: Option<Instant>,
}

impl Access {
    /// Guards one URL.
    #[must_use]
    pub fn to(path: &'static str, client: Client) -> Self {
        Self { client, path, known: Mutex::default(), reviews: Semaphore::new(REVIEWS) }
    }

    /// Succeeds if the bearer of the token in these headers may read.
    ///
    /// # Errors
    /// The reason why not.
    pub async fn check(&self, source: IpAddr, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer(headers).ok_or(Refusal::NoToken)?;
        let key = print(token);
        if let Some(known) = self.known().answer(&key, source, Instant::now()) {
            return known;
        }
        let Ok(Ok(_turn)) = timeout(TURN, self.reviews.acquire()).await else {
            return Err(Refusal::TooMany);
        };
        // Another request may have sent the same token in the meantime.
        if let Some(known) = self.known().answer(&key, source, Instant::now()) {
            return known;
        }
        let review = timeout(DEADLINE, self.review(token)).await;
        let answer = review.unwrap_or(Err(Refusal::Unavailable));
        self.known().learn(key, source, answer, Instant::now())
    }

    async fn review(&self, token: &str) -> Result<(), Refusal> {
        let asked = TokenReview {
            spec: TokenReviewSpec { token: Some(token.to_owned()), audiences: None },
            ..TokenReview::default()
        };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &asked).await;
        let status = review.map_err(|error| self.unavailable(&error))?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let user = user.ok_or(Refusal::Unauthenticated)?;
        let name = user.username.clone().ok_or(Refusal::Unauthenticated)?;
        let asked = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(self.path.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &asked).await;
        let status = review.map_err(|error| self.unavailable(&error))?.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            Ok(())
        } else {
            Err(Refusal::Forbidden(name))
        }
    }

    /// Logs why new clients are refused, but not for every request.
    fn unavailable(&self, error: &kube::Error) -> Refusal {
        let mut known = self.known();
        if known.said.is_none_or(|said| said.elapsed() >= SAID) {
            known.said = Some(Instant::now());
            tracing::warn!(%error, path = self.path, "tokens cannot be reviewed");
        }
        Refusal::Unavailable
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Answers from the cache, without a review.
    fn answer(&self, key: &Digest, source: IpAddr, now: Instant) -> Option<Result<(), Refusal>> {
        let age = |since: &Instant| now.saturating_duration_since(*since);
        if self.allowed.get(key).is_some_and(|since| age(since) < ALLOWED) {
            return Some(Ok(()));
        }
        if let Some((_, refusal)) = self.refused.get(key).filter(|(at, _)| age(at) < REFUSED) {
            return Some(Err(refusal.clone()));
        }
        // A confirmed client does not count as a stranger at the same address.
        let stranger = !self.allowed.contains_key(key);
        let paused = self.paused.get(&source).is_some_and(|since| age(since) < PAUSE);
        (paused && stranger).then_some(Err(Refusal::TooMany))
    }

    /// Remembers the result of a review.
    fn learn(
        &mut self,
        key: Digest,
        source: IpAddr,
        answer: Result<(), Refusal>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let age = |since: &Instant| now.saturating_duration_since(*since);
        self.allowed.retain(|_, since| age(since) < ALLOWED_IN_OUTAGE);
        self.refused.retain(|_, (at, _)| age(at) < REFUSED);
        self.paused.retain(|_, since| age(since) < PAUSE);
        match &answer {
            Ok(()) => {
                self.refused.remove(&key);
                if self.allowed.len() < REMEMBERED || self.allowed.contains_key(&key) {
                    self.allowed.insert(key, now);
                }
            }
            Err(Refusal::Unavailable) if self.allowed.contains_key(&key) => return Ok(()),
            Err(Refusal::Unavailable) => {}
            Err(refusal) => {
                self.allowed.remove(&key);
                if self.refused.len() < REMEMBERED {
                    self.refused.insert(key, (now, refusal.clone()));
                }
                if self.paused.len() < REMEMBERED {
                    self.paused.insert(source, now);
                }
            }
        }
        answer
    }
}

fn print(token: &str) -> Digest {
    let mut key = Digest::default();
    key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    key
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        match self {
            Self::NoToken => {
                let text = "Authorization: Bearer <token of a ServiceAccount>\n";
                (StatusCode::UNAUTHORIZED, challenge, text).into_response()
            }
            Self::Unauthenticated => {
                let text = "not a token of this cluster\n";
                (StatusCode::UNAUTHORIZED, challenge, text).into_response()
            }
            Self::Forbidden(user) => {
                let text = format!(
                    "{user} may not get the nonResourceURL /metrics: bind it to a ClusterRole with \
                     {{nonResourceURLs: [/metrics], verbs: [get]}}\n"
                );
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::TooMany => {
                let again = [(header::RETRY_AFTER, "1")];
                (StatusCode::TOO_MANY_REQUESTS, again, "too many unknown tokens\n").into_response()
            }
            Self::Unavailable => {
                let text = "the API server does not review tokens now\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::BROADCAST);

    #[test]
    fn a_token_is_what_follows_the_scheme() {
        let of = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer abc"), Some("abc".into()));
        assert_eq!(of("bearer abc "), Some("abc".into()));
        for none in ["Bearer", "Bearer  ", "Basic abc", "abc"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn answers_stand_for_their_time_and_longer_only_in_an_outage() {
        let (mut known, start) = (Known::default(), Instant::now());
        let (key, at) = (print("a"), |seconds| start + Duration::from_secs(seconds));
        assert_eq!(known.answer(&key, HERE, start), None);
        assert_eq!(known.learn(key, HERE, Ok(()), start), Ok(()));
        assert_eq!(known.answer(&key, HERE, at(59)), Some(Ok(())));
        assert_eq!(known.answer(&key, HERE, at(60)), None, "asked again");
        let outage = || Err(Refusal::Unavailable);
        assert_eq!(known.learn(key, HERE, outage(), at(60)), Ok(()), "valid in an outage");
        assert_eq!(known.answer(&key, HERE, at(61)), None, "but reviewed each time");
        assert_eq!(known.learn(key, HERE, outage(), at(600)), outage(), "but not for ever");
        // A revoked right stays revoked, even in an outage.
        assert_eq!(known.learn(key, HERE, Ok(()), at(700)), Ok(()));
        let gone = || Err(Refusal::Forbidden("x".into()));
        assert_eq!(known.learn(key, HERE, gone(), at(761)), gone());
        assert_eq!(known.answer(&key, HERE, at(762)), Some(gone()));
        assert_eq!(known.learn(key, HERE, outage(), at(772)), outage());
    }

    #[test]
    fn a_source_of_refused_tokens_does_not_make_us_ask_and_hurts_nobody_else() {
        let (mut known, now) = (Known::default(), Instant::now());
        let refused = || Err(Refusal::Unauthenticated);
        known.learn(print("good"), HERE, Ok(()), now).unwrap();
        assert_eq!(known.learn(print("bad"), HERE, refused(), now), refused());
        assert_eq!(known.answer(&print("bad"), THERE, now), Some(refused()));
        assert_eq!(known.answer(&print("other"), HERE, now), Some(Err(Refusal::TooMany)));
        assert_eq!(known.answer(&print("good"), HERE, now), Some(Ok(())));
        assert_eq!(known.answer(&print("other"), THERE, now), None);
        assert_eq!(known.answer(&print("other"), HERE, now + PAUSE), None);
        // At the same address, a token that is due for a review gets it.
        let later = now + ALLOWED;
        assert_eq!(known.learn(print("bad"), HERE, refused(), later), refused());
        assert_eq!(known.answer(&print("good"), HERE, later), None);
        for number in 0..10 * REMEMBERED {
            let source = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            let _ = known.learn(print(&number.to_string()), source, refused(), later);
        }
        assert!(known.refused.len() <= REMEMBERED && known.paused.len() <= REMEMBERED);
        assert!(known.allowed.contains_key(&print("good")));
    }
}
