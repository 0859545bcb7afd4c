//! The messages to the owner: status, conditions, events.
mod conditions;
mod events;
mod numbers;
mod status;

pub(super) use conditions::{
    SCRAPES_NEEDED, conditions, contested, lower, problems, refused, scrapes, settled,
};
pub(super) use events::{FewNotices, changes, news, window_too_short};
pub(super) use status::{is_due, status};
