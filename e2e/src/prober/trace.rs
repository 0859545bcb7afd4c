//! A node drops the probes from the pods of one other node, as a rule of a firewall does. The path is traced, and an
//! event names the last hop that packets reach.

use anyhow::Result;
use lab::Cluster;
use lab::checks::Check;
use lab::cluster::addresses::{node_number, pod_cidr};

use crate::objects::text;
use crate::stage::{PATIENCE, Stage};

const FROM: &str = "node-2";
const TO: &str = "node-3";
/// The port of the agents.
const PORT: &str = "9090";

/// A rule that drops probes, until it is lifted or dropped.
pub struct Rule<'a> {
    cluster: &'a Cluster,
    rule: Vec<String>,
}

impl<'a> Rule<'a> {
    pub fn set(stage: &Stage<'a>) -> Result<Self> {
        let pods = |node| node_number(node).map(pod_cidr).unwrap_or_default();
        let (from, to) = (pods(FROM), pods(TO));
        let words = ["from", &from, "to", &to, "ipproto", "udp", "dport", PORT, "blackhole"];
        let rule = Self { cluster: stage.cluster, rule: words.map(str::to_owned).into() };
        stage.say(&format!("{TO}: ip rule add {}", words.join(" ")));
        rule.change("add")?;
        Ok(rule)
    }

    fn change(&self, verb: &str) -> Result<()> {
        let words: Vec<_> =
            ["rule", verb].into_iter().chain(self.rule.iter().map(String::as_str)).collect();
        self.cluster.in_node(TO, "ip", &words).map(drop)
    }
}

impl Drop for Rule<'_> {
    fn drop(&mut self) {
        // It may have been lifted, or the cluster taken down.
        let _ = self.change("del");
    }
}

/// Waits for the event, and takes the rule away.
pub async fn named(stage: &Stage<'_>, rule: Rule<'_>) -> Result<()> {
    let events = ["events", "--field-selector=reason=PathLost"];
    let path = format!("{FROM} → {TO}");
    let note = stage
        .until("an event about the lost path", PATIENCE, async || {
            let events = stage.list(&events)?;
            let mut notes = events.iter().map(|event| text(&event["message"]));
            Ok(notes.find(|note| note.contains(&path)))
        })
        .await?;
    stage.say(&format!("==> {note}"));
    // The gateway of its pods is the first hop: their own node. The next is the node that drops them.
    let reached = node_number(FROM).map(pod_cidr).unwrap_or_default();
    let reached = reached.trim_end_matches("0/24");
    stage.check(Check::new(
        "lost path: the event names the last hop that packets reach, beside a path that works",
        note.contains(&format!("packets reach {reached}"))
            && note.contains("as it does on a path that works"),
        note.clone(),
    ));
    let others = note.matches('→').count() - 1;
    stage.check(Check::new("lost path: no other path is named", others == 0, note));
    rule.change("del")
}
