//! Changes of Calico's objects in the Kubernetes API, in either group.
use std::{sync::Arc, time::Duration};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    api::DynamicObject,
    discovery::ApiResource,
    runtime::watcher::{self, Event},
};

use super::kubernetes::{Group, Kubernetes};
use crate::infra::{
    Api,
    watch::{self, DeserializeGuard, Metadata},
};

/// Time between two checks for another group, or for Calico where it is missing.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The pause after a failed watch or discovery.
const PAUSE: Duration = Duration::from_secs(5);

/// The time for which events are collected into one: someone may change 15,000 peers in a loop.
const COLLECT: Duration = Duration::from_millis(200);

/// Metadata per page, which is all that is watched.
const PAGE_SIZE: u32 = 500;

type Meta = Metadata<DynamicObject>;
type Events = BoxStream<'static, Result<Event<DeserializeGuard<Meta>>, watcher::Error>>;

/// No `watch::Mirror`: the objects are not kept, but listed again when a pass needs them.
#[derive(Default)]
struct Watch {
    /// The group, and the events of its peers and configurations.
    running: Option<(Group, Events)>,
    /// True if the last item reported readable objects.
    stands: bool,
}

/// An item whenever something may have changed.
pub(super) fn changes(store: Arc<Kubernetes>) -> BoxStream<'static, ()> {
    stream::unfold((Watched(store), Watch::default()), |(store, mut watch)| async move {
        watch.next(&store.0).await;
        Some(((), (store, watch)))
    })
    .boxed()
}

/// Marks the store as unwatched when a watch is dropped.
struct Watched(Arc<Kubernetes>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.cache.watching(false);
    }
}

impl Watch {
    /// Returns at the next change.
    async fn next(&mut self, store: &Kubernetes) {
        loop {
            let group = match store.group().await {
                Ok(group) => group,
                Err(error) => {
                    self.running = None;
                    store.cache.watching(false);
                    tracing::debug!(%error, "Calico's objects are not watched");
                    // Waiters must see that, too; once.
                    if std::mem::take(&mut self.stands) {
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (_, events) = match &mut self.running {
                Some(current) if current.0 == group => current,
                running => running.insert((group, watch_group(store, group))),
            };
            match tokio::time::timeout(LOOK_AGAIN, until_change(events)).await {
                Ok(Ok(())) => {
                    collect(events).await;
                    // In this order: a reader must not get the result of an earlier read now.
                    store.cache.bump();
                    store.cache.watching(true);
                    self.stands = true;
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "watch of Calico's objects failed, trying again");
                    self.running = None;
                    store.cache.watching(false);
                    store.forget_group();
                    tokio::time::sleep(PAUSE).await;
                }
                // Time to look for the group.
                Err(_) => {}
            }
        }
    }
}

fn watch_group(store: &Kubernetes, group: Group) -> Events {
    let events = |resource: &ApiResource| {
        let api: Api<Meta> = store.api(resource);
        watch::follow(api, watch::config().page_size(PAGE_SIZE))
    };
    let peers = events(&group.peers());
    let configurations = events(&group.configurations());
    stream::select(peers, configurations).boxed()
}

/// Returns when something changed, or all was listed (again).
async fn until_change(events: &mut Events) -> Result<(), watcher::Error> {
    while let Some(event) = events.next().await {
        match event? {
            Event::Apply(_) | Event::Delete(_) | Event::InitDone => return Ok(()),
            Event::Init | Event::InitApply(_) => {}
        }
    }
    Ok(())
}

/// Takes what else has come, and comes within a moment. An error shows itself again at the next
/// event.
async fn collect(events: &mut Events) {
    let end = tokio::time::sleep(COLLECT);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return,
            event = events.next() => if event.is_none_or(|event| event.is_err()) { return },
        }
    }
}
