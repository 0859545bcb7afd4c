//! The key with which workers sign their answers: it is stored next to the file, so that workers
//! get both at once, and stays the same for as long as it is there.
use std::{fmt, sync::Arc};

use super::watches::WorkloadView;
use crate::acknowledgement::{KEY_FILE, Key};

/// The known state of the key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    /// The one that stood in the `ConfigMap` last: answers are held against it.
    pub known: Option<Arc<str>>,
    /// A new one, for the next file of a `ConfigMap` that never had any.
    pub next: Option<Arc<str>>,
}

/// Memories are printed; keys are not.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Secret {
    /// Returns the key for a file that is written now.
    #[must_use]
    pub fn text(&self) -> Option<&Arc<str>> {
        self.known.as_ref().or(self.next.as_ref())
    }

    /// Returns the key with which answers must be signed; `None` before any worker can have it.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        self.known.as_deref().and_then(Key::read)
    }
}

/// The key in the `ConfigMap`, if that is one.
#[must_use]
pub fn standing(view: &WorkloadView) -> Option<&str> {
    let text = view.share.as_ref()?.data.get(KEY_FILE)?;
    Key::read(text).map(|_| text.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::swarm::{
        acknowledge::Answer,
        memory::{Memory, Report},
        watches::{self, MapFacts},
    };

    fn view(key: Option<&str>) -> WorkloadView {
        let data = key.map(|key| (KEY_FILE.to_owned(), key.to_owned()));
        let data: BTreeMap<_, _> = data.into_iter().collect();
        let share = MapFacts { data: Arc::new(data), ..MapFacts::default() };
        WorkloadView { share: Some(share), ..WorkloadView::default() }
    }

    /// If a neighbor reports for every worker that it runs nothing, the first file gives away
    /// everything.
    #[test]
    fn that_a_worker_which_signs_runs_nothing_is_not_believed_before_there_is_a_key() {
        let pod = |said: &str| {
            watches::read_pod(serde_json::json!({"metadata": {
                "name": "w-0", "uid": "u", "annotations": {watches::ACKNOWLEDGEMENTS: said},
            }}))
        };
        let answer = |answer: Answer| {
            let (asked, answer) = (std::time::Instant::now(), Some(Arc::new(answer)));
            let report =
                Report { asked, failures: 0, failing: None, error: None, loaded: None, answer };
            Memory { reports: [("u".into(), report)].into(), ..Memory::default() }
        };
        assert!(!Memory::default().is_idle(&pod("plain")), "it has not reported");
        let mut memory = answer(Answer::default());
        assert!(memory.is_idle(&pod("plain")));
        assert!(!memory.is_idle(&pod("signed")));
        memory.secret.known = Some("1".repeat(64).into());
        assert!(memory.is_idle(&pod("signed")));
        for runs in [
            Answer { version: Some(1), jobs: None, prepared: None },
            Answer { version: None, jobs: Some(vec!["a".into()]), prepared: None },
        ] {
            assert!(!answer(runs).is_idle(&pod("plain")));
        }
    }

    #[test]
    fn the_key_of_the_file_is_the_key_and_a_lost_one_comes_back() {
        let [one, other, new] = ["1", "2", "3"].map(|digit| digit.repeat(64));
        let mut memory = Memory::default();
        // There is none yet: answers cannot be signed, and the next file creates one.
        let make = || Some(Arc::from(new.as_str()));
        memory.knows(&WorkloadView::default(), make);
        assert!(memory.secret.key().is_none());
        assert_eq!(memory.secret.text().map(|text| &**text), Some(&*new));
        memory.knows(&view(None), || unreachable!("one is enough"));
        // The existing one counts, after a restart too.
        memory.knows(&view(Some(&one)), || unreachable!("there is one"));
        assert_eq!(memory.secret.known.as_deref(), Some(&*one));
        for lost in [WorkloadView::default(), view(None), view(Some("rubbish"))] {
            memory.knows(&lost, || unreachable!("it is known"));
            assert_eq!(memory.secret.text().map(|text| &**text), Some(&*one));
            assert!(memory.secret.key().is_some());
        }
        memory.knows(&view(Some(&other)), || unreachable!("there is one"));
        assert_eq!(memory.secret.known.as_deref(), Some(&*other));
        assert!(!format!("{memory:?}").contains(&other), "keys are not logged");
    }
}
