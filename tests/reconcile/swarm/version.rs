//! The endpoint `GET /internal/version` of every worker.
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::fake_kubelet::{Inner, State};
use traffic_operator::acknowledgement::{Grant, Key, Question, Statement};

/// Returns the query of the request, with the question that the answer must sign.
fn query(request: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(request).ok()?.lines().next()?;
    Some(line.split(' ').nth(1)?.split_once('?')?.1)
}

/// Starts streams that a newer file than the worker's gives to it.
fn follow(state: &mut State, ip: Ipv4Addr, query: &str) -> Option<()> {
    let (uid, pod) = state.pods.iter().find(|(_, pod)| pod.ip == ip)?;
    let key = Key::read(state.keys.get(&pod.map()?)?)?;
    let grant = Grant::read(query, uid, &pod.name, &key)?;
    let starts = grant.jobs.iter().filter(|job| pod.next().contains(job));
    for job in starts.filter(|_| grant.version > pod.loaded) {
        state.ledger.start(job, uid);
    }
    Some(())
}

pub async fn serve(inner: Arc<Inner>, listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let inner = Arc::clone(&inner);
        tokio::spawn(async move { answer(&inner, stream).await });
    }
}

/// Does not answer at an address without a pod.
async fn answer(inner: &Inner, mut stream: TcpStream) -> Option<()> {
    let IpAddr::V4(ip) = stream.local_addr().ok()?.ip() else { return None };
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    if let Some(query) = query(&request) {
        inner.change(|state| follow(state, ip, query));
    }
    let body = {
        let state = inner.state();
        let (uid, pod) = state.pods.iter().find(|(_, pod)| pod.ip == ip)?;
        let controls = &state.controls;
        if !pod.runs || controls.mute.contains(&pod.name) {
            return None;
        }
        let map = pod.map().unwrap_or_default();
        if controls.forged.contains(&pod.name) {
            let version = state.maps.get(&map).and_then(|all| all.last()).map(|file| file.version);
            json!({"jobs": [], "version": version, "worker": pod.name}).to_string()
        } else {
            let running = state.ledger.running().iter();
            let jobs: Vec<_> =
                running.filter(|(_, pods)| pods.contains(uid)).map(|(s, _)| s).collect();
            let version = pod.loaded;
            let worker = &*pod.name;
            let mut answer = json!({"jobs": jobs, "version": version, "worker": worker});
            if controls.prepare {
                let next = if controls.unprepared.contains(worker) { &[] } else { pod.next() };
                answer["prepared"] = json!(next);
            }
            let question = query(&request).and_then(Question::read);
            let question = question.filter(|question| question.uid == *uid);
            let head = map.split("-part-").next().unwrap_or_default();
            let key = state.keys.get(head).and_then(|key| Key::read(key));
            if let (Some(question), Some(key)) = (&question, key) {
                let mac = Statement { question, worker, version, jobs: &jobs }.sign(&key);
                answer["uid"] = json!(uid);
                answer["nonce"] = json!(question.nonce);
                answer["mac"] = json!(mac);
            }
            answer.to_string()
        }
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}
