//! Asks the API server for the account of a token, within a tolerable rate, and caches the answer.
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Client, api::PostParams};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use tokio::time::timeout;

use super::{AUDIENCE, Refusal};
use crate::{infra::Api, serving::budget::Budget};

/// The time for which a token is accepted after a review: agents return every 50 s, and a deleted
/// pod has no list whatever its token.
const BELIEVED: Duration = Duration::from_mins(5);

/// The time for which it is accepted while the API server cannot be asked, or others use up the
/// reviews: agents matter most during an outage. A token lives an hour.
const BELIEVED_IN_OUTAGE: Duration = Duration::from_mins(30);

/// The most tokens that are remembered: twice the largest cluster.
const TOKENS: usize = 10_000;

/// Maximum number of concurrent token reviews.
pub const REVIEWS: usize = 16;

/// Maximum number of these for one address. Agents may come from behind the address of their node:
/// those of a starting node are reviewed within a quarter of a second.
pub const REVIEWS_OF_ONE_SOURCE: usize = 4;

/// The time for which an agent waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// The time for which an address may present no further token of a pod for which it has presented a
/// wrong one.
const PAUSE: Duration = Duration::from_secs(1);

/// Time between two log lines about tokens that cannot be reviewed.
const SAID: Duration = Duration::from_mins(1);

/// A pod by its UID, as its token proves it.
pub(super) struct Proven {
    pub(super) uid: String,
    /// True if the API server could not be asked: this replica may be cut off from it.
    pub(super) in_outage: bool,
}

/// The print of a token: it is a secret, and a hundred times as long.
type Print = [u8; SHA256_OUTPUT_LEN];

/// A client at this address that claims to be this pod, by UID.
type Claimant = (IpAddr, String);

/// The known tokens.
pub(super) struct Tokens {
    client: Client,
    memory: Mutex<Memory>,
    reviews: Budget<IpAddr>,
    claimants: Budget<Claimant>,
}

#[derive(Default)]
struct Memory {
    /// The pod, and the time of the API server's answer.
    known: HashMap<Print, (String, Instant)>,
    /// The senders of wrong tokens, with the time.
    wrong: HashMap<Claimant, Instant>,
    said: Option<Instant>,
}

impl Tokens {
    pub(super) fn new(client: Client, of_one_source: usize) -> Self {
        Self {
            client,
            memory: Mutex::default(),
            reviews: Budget::new(REVIEWS, of_one_source),
            claimants: Budget::new(usize::MAX, 1),
        }
    }

    /// Returns the pod of a token, if the API server has confirmed it recently.
    pub(super) fn believed(&self, token: &str) -> Option<Proven> {
        self.memory().known(&print(token), BELIEVED).map(Proven::now)
    }

    /// Asks the API server about a token that claims to belong to the pod `claimed`.
    pub(super) async fn review(
        &self,
        token: &str,
        source: IpAddr,
        claimed: String,
    ) -> Result<Proven, Refusal> {
        let key = print(token);
        let claimant = (source, claimed);
        let pause = || {
            let wrong = self.memory().wrong.get(&claimant).copied();
            wrong.is_some_and(|at| at.elapsed() < PAUSE)
        };
        let turn = async {
            let own = self.claimants.wait(claimant.clone(), 1).await;
            (own, self.reviews.wait(source, 1).await)
        };
        let stranger = Refusal::Unauthorized("not a token of this cluster for this service\n");
        if pause() {
            return Err(stranger);
        }
        let Ok(_turn) = timeout(TURN, turn).await else {
            let busy = Refusal::Unavailable("too many unknown tokens at once\n".into());
            return self.memory().known_in_outage(&key).ok_or(busy);
        };
        // Meanwhile the same token may have been presented, or a wrong one.
        if let Some(uid) = self.memory().known(&key, BELIEVED) {
            return Ok(Proven::now(uid));
        }
        if pause() {
            return Err(stranger);
        }
        match self.ask(token).await {
            Ok(status) if pod(&status).is_some_and(|uid| *uid == claimant.1) => {
                self.memory().learn(key, &claimant);
                Ok(Proven::now(claimant.1))
            }
            Ok(_) => {
                self.memory().refuse(&key, claimant);
                Err(stranger)
            }
            Err(error) => {
                let mut memory = self.memory();
                memory.say(&error);
                let text = "the API server does not review tokens now\n";
                let unavailable = Refusal::Unavailable(text.into());
                memory.known_in_outage(&key).ok_or(unavailable)
            }
        }
    }

    async fn ask(&self, token: &str) -> kube::Result<TokenReviewStatus> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let api = Api::<TokenReview>::all(self.client.clone());
        Ok(api.create(&PostParams::default(), &review).await?.status.unwrap_or_default())
    }

    /// Makes everything that is known older, if this machine has run for as long.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) -> bool {
        let mut memory = self.memory();
        memory.known.values_mut().all(|(_, at)| {
            let Some(earlier) = at.checked_sub(by) else { return false };
            *at = earlier;
            true
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proven {
    fn now(uid: String) -> Self {
        Self { uid, in_outage: false }
    }
}

impl Memory {
    fn known_in_outage(&self, key: &Print) -> Option<Proven> {
        let uid = self.known(key, BELIEVED_IN_OUTAGE)?;
        Some(Proven { uid, in_outage: true })
    }

    fn known(&self, key: &Print, within: Duration) -> Option<String> {
        let (uid, at) = self.known.get(key)?;
        (at.elapsed() < within).then(|| uid.clone())
    }

    fn learn(&mut self, key: Print, claimant: &Claimant) {
        self.wrong.remove(claimant);
        if self.known.len() >= TOKENS {
            self.known.retain(|_, (_, at)| at.elapsed() < BELIEVED);
        }
        if self.known.len() < TOKENS || self.known.contains_key(&key) {
            self.known.insert(key, (claimant.1.clone(), Instant::now()));
        }
    }

    fn refuse(&mut self, key: &Print, claimant: Claimant) {
        self.known.remove(key);
        if self.wrong.len() >= TOKENS {
            self.wrong.retain(|_, at| at.elapsed() < PAUSE);
        }
        if self.wrong.len() < TOKENS {
            self.wrong.insert(claimant, Instant::now());
        }
    }

    fn say(&mut self, error: &kube::Error) {
        if self.said.is_none_or(|said| said.elapsed() >= SAID) {
            self.said = Some(Instant::now());
            tracing::warn!(%error, "tokens of agents cannot be reviewed");
        }
    }
}

fn print(token: &str) -> Print {
    let mut print = Print::default();
    print.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    print
}

/// The UID of the pod that an answer of the API server is about.
fn pod(status: &TokenReviewStatus) -> Option<&String> {
    let for_us = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
    if status.authenticated != Some(true) || !for_us {
        return None;
    }
    let extra = status.user.as_ref()?.extra.as_ref()?;
    extra.get("authentication.kubernetes.io/pod-uid")?.first()
}
