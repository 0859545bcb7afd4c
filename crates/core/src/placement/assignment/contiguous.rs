//! Blocks in the order given, as the list is read: a running offset.
use super::{level::rooms, plan::Plan};

/// Of `N` workers for `L` items, the first `L mod N` get one more than the others.
pub(super) fn seat(plan: &mut Plan, balance: bool) {
    let open = plan.open_hosts();
    let newcomers = plan.newcomers(balance);
    let rooms = rooms(plan, &open, newcomers.len(), |host| host);
    let hosts = open.into_iter().flat_map(|host| std::iter::repeat_n(host, rooms[host]));
    for (unit, host) in newcomers.into_iter().zip(hosts) {
        plan.seat(unit, host);
    }
}
