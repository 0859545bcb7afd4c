//! Every worker keeps its items, except those that must move for balance.
use std::cmp::Reverse;

use super::{level::rooms, plan::Plan, weight};

pub(super) fn seat(plan: &mut Plan, balance: bool) {
    let open = plan.open_hosts();
    let (mut held, others) = plan.split();
    let by_count = plan.input.has_equal_weights();
    let limits = if balance && by_count {
        // The workers with the most items get the places above the level: taking from them would
        // cost one more move.
        let newcomers = others.len() + held.iter().map(Vec::len).sum::<usize>();
        let input = plan.input;
        rooms(plan, &open, newcomers, |host| {
            (Reverse(plan.taken[host] + held[host].len()), input.hosts[host].hash)
        })
    } else {
        plan.limits()
    };
    let mut queue = plan.keep(&mut held, |host| limits[host]);
    queue.extend(others);
    queue.truncate(plan.room());
    if by_count {
        place(plan, &open, &queue);
    } else {
        weight::place(plan, &open, queue);
        if balance {
            weight::repair(plan, &open, held);
        }
    }
}

/// Places each unit on the worker that it suits best, among those that should have more.
fn place(plan: &mut Plan, open: &[usize], queue: &[usize]) {
    let input = plan.input;
    let mut rooms = rooms(plan, open, queue.len(), |host| input.hosts[host].hash);
    let mut open: Vec<usize> = open.iter().copied().filter(|&host| rooms[host] > 0).collect();
    for &unit in queue {
        let best = (0..open.len()).max_by_key(|&index| input.score(unit, open[index]));
        let Some(index) = best else { return };
        let host = open[index];
        plan.seat(unit, host);
        rooms[host] -= 1;
        if rooms[host] == 0 {
            open.swap_remove(index);
        }
    }
}
