//! Agents as the operator sees them: each waits for its pinglist, with the token of its own pod.
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kube::Client;
use lab::wait::lock;
use reqwest::{StatusCode, header};
use tokio::task::JoinSet;
use traffic_operator::agent::pinglist::Pinglist;

use crate::{
    member::{Member, authority},
    serving::{NAME, NAMESPACE},
};

/// Time for which an agent waits for a change, in seconds.
const WAIT: u64 = 50;

/// The results that the agents have received.
#[derive(Default)]
struct Board {
    /// By agent: the peers that it probes, and the bytes of the list.
    lists: HashMap<String, (Vec<String>, usize)>,
    /// By pod: the time at which each agent first received it in a list.
    named: HashMap<String, Vec<Instant>>,
    /// By agent: the time of its first list that is not empty.
    probes: HashMap<String, Instant>,
    failures: usize,
}

/// Agents that wait, until this is dropped.
pub struct Agents {
    http: reqwest::Client,
    url: String,
    board: Arc<Mutex<Board>>,
    tasks: JoinSet<()>,
}

impl Agents {
    /// Starts without agents, with a client that trusts the operator's authority.
    pub async fn new(client: &Client, pinglists: SocketAddr) -> anyhow::Result<Self> {
        let roots = reqwest::Certificate::from_pem_bundle(authority(client).await?.as_bytes())?;
        // One connection for each concurrent request, as with that many processes.
        let http = reqwest::Client::builder().tls_certs_only(roots).http1_only().build()?;
        let url = format!("https://{pinglists}/pinglist?prober={NAMESPACE}/{NAME}");
        Ok(Self { http, url, board: Arc::default(), tasks: JoinSet::new() })
    }

    /// Starts one more agent.
    pub fn add(&mut self, member: Member) {
        // Requests are spread over time, so that they do not all come back at once.
        let first = WAIT / 5 + self.tasks.len() as u64 % (WAIT - WAIT / 5);
        let (http, url, board) = (self.http.clone(), self.url.clone(), Arc::clone(&self.board));
        self.tasks.spawn(async move {
            let (mut etag, mut patience) = (None, first);
            loop {
                let request = http.get(format!("{url}&wait={patience}"));
                match ask(request, &member, &mut etag, &board).await {
                    Ok(true) => patience = WAIT,
                    Ok(false) => {}
                    Err(error) => {
                        eprintln!("agent of {}: {error:#}", member.name);
                        lock(&board).failures += 1;
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        });
    }

    pub fn reported(&self) -> usize {
        lock(&self.board).lists.len()
    }

    pub fn has_list(&self, name: &str) -> bool {
        lock(&self.board).lists.contains_key(name)
    }

    /// Returns the number of edges and bytes of all lists.
    pub fn sums(&self) -> (usize, usize) {
        let board = lock(&self.board);
        let each = board.lists.values().map(|(peers, bytes)| (peers.len(), *bytes));
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Returns the time at which this many probers of a pod had received it in their lists.
    pub fn named(&self, name: &str, probers: usize) -> Option<Instant> {
        let board = lock(&self.board);
        board.named.get(name).filter(|all| all.len() >= probers)?.iter().max().copied()
    }

    /// Returns the time at which an agent received its first list that is not empty.
    pub fn probes(&self, name: &str) -> Option<Instant> {
        lock(&self.board).probes.get(name).copied()
    }

    pub fn failures(&self) -> usize {
        lock(&self.board).failures
    }
}

/// Sends one request; returns true if it waited in full without a change.
async fn ask(
    mut request: reqwest::RequestBuilder,
    member: &Member,
    etag: &mut Option<header::HeaderValue>,
    board: &Mutex<Board>,
) -> anyhow::Result<bool> {
    if let Some(etag) = etag.as_ref() {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let answer = request.bearer_auth(&member.token).send().await?.error_for_status()?;
    if answer.status() == StatusCode::NOT_MODIFIED {
        return Ok(true);
    }
    *etag = answer.headers().get(header::ETAG).cloned();
    let body = answer.bytes().await?;
    let at = Instant::now();
    let list: Pinglist = serde_json::from_slice(&body)?;
    let peers: Vec<_> = list.peers.into_iter().map(|peer| peer.name).collect();
    let mut board = lock(board);
    if !peers.is_empty() {
        board.probes.entry(member.name.clone()).or_insert(at);
    }
    let before = board.lists.insert(member.name.clone(), (peers.clone(), body.len()));
    let before = before.unwrap_or_default().0;
    for new in peers.into_iter().filter(|peer| !before.contains(peer)) {
        board.named.entry(new).or_default().push(at);
    }
    Ok(false)
}
