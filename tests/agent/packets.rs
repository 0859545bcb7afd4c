//! Effects of a network on packets, simulated by an echo server of the test.
use std::{net::UdpSocket, thread};

use crate::stage::{Agent, config, entry, free_port};

/// Gives each request to `answer` with the requests before it, and sends back the result.
fn echo(answer: impl Fn(&[[u8; 64]]) -> Vec<[u8; 64]> + Send + 'static) -> u16 {
    let port = free_port();
    let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
    thread::spawn(move || {
        let mut requests = Vec::new();
        let mut packet = [0; 64];
        while let Ok((64, from)) = socket.recv_from(&mut packet) {
            requests.push(packet);
            for mut reply in answer(&requests) {
                reply[4] = 1;
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    port
}

#[test]
fn duplicates_reordering_and_loss_are_distinguished() {
    let agent = Agent::start();
    let twice = echo(|requests| vec![requests[requests.len() - 1]; 2]);
    let lost = echo(|_| Vec::new());
    // Every second answer waits for the next one.
    let swapped = echo(|requests| match requests {
        [.., before, last] if requests.len() % 2 == 0 => vec![*last, *before],
        _ => Vec::new(),
    });
    let forged = echo(|requests| {
        let mut reply = requests[requests.len() - 1];
        reply[8] ^= 1;
        vec![reply]
    });
    // Replies come from this address, whichever one was probed.
    let entries = [
        entry("twice", "127.0.0.1", twice),
        entry("lost", "127.0.0.1", lost),
        entry("swapped", "127.0.0.1", swapped),
        entry("forged", "127.0.0.1", forged),
    ];
    agent.publish(&config(300, 250, r#"["UDP"]"#, &entries));
    let of = |page: &crate::stage::Page, metric: &str, name: &str| {
        page.sum(metric, &[("dst_node", &format!("node-{name}"))])
    };
    let duplicates = "netprober_udp_duplicates_total";
    let reordered = "netprober_udp_reordered_total";
    let page = agent.page_with("all of it", |page| {
        of(page, duplicates, "twice") >= 5
            && of(page, reordered, "swapped") >= 5
            && page.failed("lost", "timeout") >= 5
            && page.failed("forged", "timeout") >= 5
    });
    // A duplicate is no second answer, and a late answer still counts as lost.
    assert!(of(&page, duplicates, "twice") <= page.successes("twice"), "{}", page.text);
    assert!(page.failed("swapped", "timeout") >= 5, "{}", page.text);
    assert!(page.successes("swapped") >= 5, "{}", page.text);
    for (metric, name) in
        [(reordered, "twice"), (duplicates, "lost"), (duplicates, "swapped"), (reordered, "forged")]
    {
        assert!(of(&page, metric, name) == 0, "{metric} {name}: {}", page.text);
    }
    assert!(page.successes("lost") == 0 && page.successes("forged") == 0);
}
