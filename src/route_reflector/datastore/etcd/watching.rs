//! The watch of Calico's objects in etcd.
use std::{sync::Arc, time::Duration};

use etcd_client::{Client, WatchOptions, WatchStream};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};

use super::{CONFIGURATIONS, Etcd, NODES, PEERS, explain, prefix};

/// The pause after a failed watch.
const PAUSE: Duration = Duration::from_secs(5);

/// The time for which changes are collected into one.
const COLLECT: Duration = Duration::from_millis(200);

/// The watched kinds: peers, configuration, and the Nodes, which hold the cluster ids.
const WATCHED: [&str; 3] = [PEERS, CONFIGURATIONS, NODES];

/// An item whenever something may have changed.
pub(in super::super) fn changes(store: Arc<Etcd>) -> BoxStream<'static, ()> {
    stream::unfold((Watched(store), None), |(store, mut watch)| async move {
        next(&store.0, &mut watch).await;
        Some(((), (store, watch)))
    })
    .boxed()
}

/// Marks the store as unwatched when a watch is dropped.
struct Watched(Arc<Etcd>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.cache.watching(false);
    }
}

/// Returns at the next change, and when a watch is established (again).
async fn next(store: &Etcd, watch: &mut Option<WatchStream>) {
    loop {
        let Some(events) = watch else {
            match store.connection.call(begin).await {
                Ok(begun) => {
                    *watch = Some(begun);
                    store.cache.bump();
                    store.cache.watching(true);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "Calico's objects are not watched");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
        };
        if let Err(error) = until_change(events).await {
            tracing::warn!(error, "watch of Calico's objects failed, trying again");
            *watch = None;
            store.cache.watching(false);
            store.connection.close().await;
            continue;
        }
        let end = tokio::time::sleep(COLLECT);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                // An error shows itself again at the next event.
                changed = until_change(events) => if changed.is_err() { break },
            }
        }
        store.cache.bump();
        return;
    }
}

/// Watches everything; returns when all watches are open.
async fn begin(client: Client) -> Result<WatchStream, etcd_client::Error> {
    let options = || Some(WatchOptions::new().with_prefix());
    let mut stream = client.watch_client().watch(prefix(WATCHED[0]), options()).await?;
    for plural in &WATCHED[1..] {
        stream.watch(prefix(plural), options()).await?;
    }
    let mut standing = 0;
    while standing < WATCHED.len() {
        match stream.message().await? {
            Some(message) if message.canceled() => {
                return Err(etcd_client::Error::WatchError(message.cancel_reason().into()));
            }
            Some(message) => standing += usize::from(message.created()),
            None => return Err(etcd_client::Error::WatchError("etcd ended the watch".into())),
        }
    }
    Ok(stream)
}

async fn until_change(events: &mut WatchStream) -> Result<(), String> {
    loop {
        match events.message().await {
            Ok(Some(message)) if message.canceled() => {
                return Err(message.cancel_reason().to_owned());
            }
            Ok(Some(message)) if message.events().is_empty() => {}
            Ok(Some(_)) => return Ok(()),
            Ok(None) => return Err("etcd ended it".into()),
            Err(error) => return Err(explain(&error).0),
        }
    }
}
