//! Lists from the operator: a long poll that is answered as soon as the list changes.
use std::{
    fs,
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use http::{
    Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, ETAG, HeaderValue, IF_NONE_MATCH},
};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::Refresh;
use crate::{client::Client, pinglist::Pinglist};

/// The time for which the operator may hold a request: most proxies and load balancers cut a silent
/// connection after a minute.
const WAIT: Duration = Duration::from_secs(50);

/// The time that an answer may take beyond that: the deadline of every request.
const GRACE: Duration = Duration::from_secs(10);

/// The longest wait for a connection: a lost SYN is sent again after a second.
const CONNECT: Duration = Duration::from_secs(5);

/// The minimum time between two requests, whatever the operator answers: it serves a thousand
/// agents and more.
const GAP: Duration = Duration::from_secs(1);

/// Wait after the first failure: half a second, doubled after each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// The longest wait: agents find an operator that is back within this time.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// The longest list that is read: some three thousand peers.
const MOST: usize = 1 << 20;

/// The address and credentials of requests.
#[derive(Clone, Debug)]
pub struct Pull {
    /// URL at which the operator serves lists.
    pub url: Uri,
    /// The `NetworkProber`, as `<namespace>/<name>`.
    pub prober: String,
    /// The CA certificates for the operator's certificate, in PEM form.
    pub ca_file: PathBuf,
    /// The token of the pod's service account.
    pub token_file: PathBuf,
}

/// Polls for as long as the receiver exists.
///
/// # Errors
/// None: failed requests are retried.
pub async fn watch(pull: Pull, to: mpsc::Sender<Refresh>) -> anyhow::Result<()> {
    let mut operator = Operator { pull, client: None, etag: None };
    let mut failures = 0;
    loop {
        let started = Instant::now();
        let refresh = match operator.ask().await {
            Ok(refresh) => {
                if failures > 0 {
                    tracing::info!(failures, "the operator answers");
                }
                failures = 0;
                refresh
            }
            Err(error) => {
                // Logged once, when failures begin: the following ones are the same.
                if failures == 0 {
                    let url = &operator.pull.url;
                    tracing::warn!(%url, error = format!("{error:#}"), "no list from the operator");
                }
                failures += 1;
                Refresh::Error
            }
        };
        let failed = refresh == Refresh::Error;
        if to.send(refresh).await.is_err() {
            return Ok(());
        }
        if failed {
            sleep(backoff(failures, RandomState::new().hash_one(failures))).await;
        } else {
            sleep_until(started + GAP).await;
        }
    }
}

/// Returns between half and all of the doubled wait, so that agents that failed together do not
/// retry together.
fn backoff(failures: u32, random: u64) -> Duration {
    let doubled = FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(8));
    let longest = doubled.min(LONGEST_BACKOFF);
    let part = u32::try_from(random % 1024).unwrap_or_default();
    longest / 2 + longest / 2 * part / 1024
}

struct Operator {
    pull: Pull,
    /// The client, and the certificates it was built with.
    client: Option<(Vec<u8>, Client)>,
    etag: Option<HeaderValue>,
}

impl Operator {
    async fn ask(&mut self) -> anyhow::Result<Refresh> {
        let Pull { ca_file, token_file, .. } = self.pull.clone();
        // Both change at run time: the kubelet renews the token, the operator its CA.
        let (ca, token) = tokio::task::spawn_blocking(move || {
            let ca = fs::read(&ca_file).with_context(|| ca_file.display().to_string())?;
            let token = fs::read_to_string(&token_file)
                .with_context(|| token_file.display().to_string())?;
            anyhow::Ok((ca, token))
        })
        .await
        .context("reading CA and token")??;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .context("the token is not one line of text")?;
        bearer.set_sensitive(true);
        // Without a list there is no change to wait for.
        let wait = if self.etag.is_some() { WAIT } else { Duration::ZERO };
        let url = address(&self.pull.url, &self.pull.prober, wait)?;
        let mut request = Request::get(url).header(AUTHORIZATION, bearer);
        if let Some(etag) = &self.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(Full::default())?;
        let client = self.client(ca)?;
        timeout(wait + GRACE, self.exchange(&client, request)).await.context("no answer in time")?
    }

    async fn exchange(
        &mut self,
        client: &Client,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Refresh> {
        let response = client.send(request).await?;
        match response.status() {
            StatusCode::NOT_MODIFIED if self.etag.is_some() => Ok(Refresh::Unchanged),
            StatusCode::OK => {
                let etag = response.headers().get(ETAG).cloned();
                let body = body(response).await?;
                let list: Pinglist = serde_json::from_slice(&body).context("the list")?;
                self.etag = etag;
                Ok(Refresh::Changed(Box::new(list.sane())))
            }
            status => {
                let text = body(response).await.unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                let line = text.lines().next().unwrap_or_default();
                bail!("HTTP {status}: {}", line.chars().take(200).collect::<String>())
            }
        }
    }

    /// Returns the client for these certificates: the previous one if they are the same.
    fn client(&mut self, ca: Vec<u8>) -> anyhow::Result<Client> {
        if let Some((before, client)) = &self.client
            && *before == ca
        {
            return Ok(client.clone());
        }
        let client = Client::trusting(&ca, CONNECT)
            .with_context(|| format!("{}: no certificates", self.pull.ca_file.display()))?;
        self.client = Some((ca, client.clone()));
        Ok(client)
    }
}

/// Returns the URL of a list.
fn address(url: &Uri, prober: &str, wait: Duration) -> anyhow::Result<Uri> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("prober", prober).append_pair("wait", &wait.as_secs().to_string());
    let before = url.query().map(|query| format!("{query}&")).unwrap_or_default();
    let path = format!("{}?{before}{}", url.path(), query.finish());
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(parts)?)
}

async fn body(response: Response<Incoming>) -> anyhow::Result<Vec<u8>> {
    let mut frames = response.into_body();
    let mut body = Vec::new();
    while let Some(frame) = frames.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue };
        ensure!(body.len() + chunk.len() <= MOST, "the answer is longer than {MOST} bytes");
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_is_asked_for_by_name_behind_whatever_the_address_says() {
        let of = |url: &str| {
            address(&url.parse().unwrap(), "a/b", Duration::from_secs(50)).unwrap().to_string()
        };
        assert_eq!(of("https://o:9444/pinglist"), "https://o:9444/pinglist?prober=a%2Fb&wait=50");
        assert_eq!(of("https://o"), "https://o/?prober=a%2Fb&wait=50");
        assert_eq!(of("https://o/?x=y"), "https://o/?x=y&prober=a%2Fb&wait=50");
    }

    proptest! {
        #[test]
        fn backoff_grows_to_ten_seconds_and_is_never_nothing(failures in 1u32.., random: u64) {
            let wait = backoff(failures, random);
            prop_assert!(wait >= FIRST_BACKOFF / 2 && wait <= LONGEST_BACKOFF);
            prop_assert!(failures < 6 || wait >= LONGEST_BACKOFF / 2);
        }
    }
}
