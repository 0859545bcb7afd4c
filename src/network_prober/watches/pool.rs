//! Stores each pod once, however many watches deliver it.
use std::{
    borrow::Borrow,
    collections::HashSet,
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::pods::PodObject;

/// A pod by its UID.
#[derive(Clone, Debug)]
pub struct ByUid(pub Arc<PodObject>);

impl Borrow<str> for ByUid {
    fn borrow(&self) -> &str {
        self.0.uid()
    }
}

impl PartialEq for ByUid {
    fn eq(&self, other: &Self) -> bool {
        self.0.uid() == other.0.uid()
    }
}

impl Eq for ByUid {}

impl Hash for ByUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.uid().hash(state);
    }
}

/// All pods of any watch.
#[derive(Debug, Default)]
pub struct Pool(HashSet<ByUid>);

impl Pool {
    /// The pod of an event as it is known, if this is no news of it.
    pub fn share(&mut self, pod: PodObject) -> ByUid {
        match self.0.get(pod.uid()) {
            Some(known) if !is_newer(&pod, &known.0) => known.clone(),
            _ => self.replace(pod),
        }
    }

    /// The pod of a list, as it is known only if it has the same version. After etcd was restored
    /// from a backup, versions begin again below the known ones: a pod that kept its known state
    /// would stay so until it is deleted.
    pub fn share_listed(&mut self, pod: PodObject) -> ByUid {
        match self.0.get(pod.uid()) {
            Some(known) if !is_newer(&pod, &known.0) && !is_newer(&known.0, &pod) => known.clone(),
            _ => self.replace(pod),
        }
    }

    fn replace(&mut self, pod: PodObject) -> ByUid {
        let pod = ByUid(Arc::new(pod));
        self.0.replace(pod.clone());
        pod
    }

    /// Drops the pods that no watch contains any more; returns the number of the remaining ones.
    pub fn sweep(&mut self) -> usize {
        self.0.retain(|pod| Arc::strong_count(&pod.0) > 1);
        self.0.len()
    }
}

/// One watch may be behind another. Versions are compared as numbers, as Kubernetes allows since
/// 1.35; one that is not a number counts as new.
fn is_newer(pod: &PodObject, known: &PodObject) -> bool {
    let number = |pod: &PodObject| pod.metadata.resource_version.as_deref()?.parse::<u64>().ok();
    match (number(pod), number(known)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    }
}
