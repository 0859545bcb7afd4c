//! Writes the plan, whichever cluster a pass works on.
use super::{
    cluster::{Cluster, Eviction},
    handover::Refresh,
    memory::{Memories, Pinned},
    plan::{Desired, Publish},
};
use crate::{
    api::Swarm,
    controller::{Error, Key, Notice},
};
use futures::StreamExt;
use std::sync::Arc;

/// Number of workers that get the word at the same time.
const CONCURRENCY: usize = 64;

/// Writes the file: the head first, and then its parts. Returns false if another writer of a part
/// was faster.
async fn write(
    cluster: &impl Cluster,
    memories: &Memories,
    key: &Key,
    publish: &Publish,
) -> Result<bool, Error> {
    // Of two writers, the slower decides again on the new state.
    let Some(metadata) = cluster.publish(publish).await? else { return Err(Error::Outpaced) };
    cluster.published(&metadata, publish);
    memories.change(key, |memory| {
        memory.published = Some(Arc::clone(&publish.published));
        let snapshot = Arc::make_mut(&mut memory.snapshot);
        for (reason, count) in &publish.moves {
            *snapshot.counters.moves.entry(reason).or_default() += count;
        }
    });
    for part in &publish.parts {
        // A part that is not written now is behind its head, and is repaired before the next
        // decision.
        if !cluster.part(part).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the plan: the file first, and changes of pods only once the file is written.
pub(super) async fn apply(
    cluster: &impl Cluster,
    swarm: &Swarm,
    memories: &Memories,
    desired: Desired,
) -> Result<Vec<Notice>, Error> {
    let key = swarm.key();
    if let Some(memory) = desired.memory {
        for gap in desired.gaps {
            memory.snapshot.counters.gaps.observe(gap.as_secs_f64());
        }
        memories.put(key.clone(), memory);
    }
    let mut notices = Vec::new();
    if let Some(publish) = desired.publish {
        let written = write(cluster, memories, &key, &publish).await;
        memories.change(&key, |memory| memory.written(&written, cluster.now()));
        notices.extend(publish.notices);
        if !written? {
            return Ok(notices);
        }
        let secret = memories.read(&key, |memory| memory.secret.key());
        let version = publish.published.epoch;
        let grants = publish.grants.iter();
        let grants = grants.map(|handed| cluster.grant(handed, version, secret.as_ref()));
        let grants: Vec<_> = grants.collect();
        futures::stream::iter(grants).buffer_unordered(CONCURRENCY).collect::<()>().await;
    }
    if let Some(immutable) = desired.immutable {
        let epoch = immutable.epoch;
        cluster.pin(immutable).await?;
        memories.change(&key, |memory| memory.pinned = Some(Pinned { epoch, maps: vec![] }));
    }
    for refresh in desired.refresh {
        let (notice, counted) = match &refresh {
            Refresh::Evict { worker, uid } => match cluster.evict(worker, uid).await? {
                Eviction::Done => {
                    let note = format!("evicted pod {worker} so that it reads its new list");
                    (Some((false, "WorkerRefreshed", note)), Some("evicted"))
                }
                // Another pod of that name, or none: this one is gone already. Or the next pass
                // tries again.
                Eviction::Gone | Eviction::Deferred => (None, None),
                Eviction::Refused(why) => {
                    let note = format!("pod {worker} stays: {why}");
                    (Some((true, "EvictionRefused", note)), Some("refused"))
                }
            },
            Refresh::Nudge { worker, uid, epoch } => {
                let nudged = cluster.nudge(worker, uid, *epoch).await?;
                (None, nudged.then_some("reloaded"))
            }
        };
        memories.change(&key, |memory| memory.refreshed(&refresh, counted, cluster.now()));
        notices.extend(notice.map(|(warning, reason, note)| Notice {
            warning,
            reason,
            note,
            node: None,
        }));
    }
    if let Some(scale) = desired.scale {
        cluster.scale(scale).await?;
        let workload = &swarm.spec.workload;
        let note = format!("{} {} scaled to {}", workload.kind.as_str(), workload.name, scale.to);
        notices.push(Notice { warning: false, reason: "Scaled", note, node: None });
    }
    for name in &desired.obsolete {
        cluster.unpin(name).await?;
    }
    Ok(notices)
}
