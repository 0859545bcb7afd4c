//! Measures the operator and its peers side by side, on a real Prometheus with the series of
//! thousands of nodes.
//!
//! `make bench-peer`; `BENCH_PEER="path,path -flag"` names the peers, `BENCH_ROWS=5000x100` nodes
//! and objects, `BENCH_ROUNDS` the number of rounds. In each round every program judges new nodes
//! of the same size for the same objects, one program after the other. The API server counts their
//! requests in its audit log, and Prometheus its queries. Figures of one run are comparable with
//! each other only. Fails if the operator is above [`LIMITS`].
use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use lab::{ControlPlane, fleet::Fleet};

use crate::{
    ground::{Figure, above, free_address, print, start, wait_for},
    labels::{Labels, bare_loop},
    nodes,
    programs::{self, OURS, Program, programs, rows},
    scraper,
    watches::{self, LABEL},
};

/// Nodes and objects of each row.
const ROWS: [(usize, usize); 1] = [(5000, 100)];

/// Time between two judgments: the default of the objects.
const INTERVAL: Duration = Duration::from_secs(10);

/// The window of rates: four scrapes.
const WINDOW: Duration = Duration::from_mins(1);

/// Intervals that one figure is the mean of.
const INTERVALS: u32 = 12;

/// Time after which the rates no longer show an earlier load: the window and a scrape.
const CALM: Duration = Duration::from_secs(75);

/// The longest wait for all labels: a program that asks for each of 100 objects takes minutes.
const PATIENCE: Duration = Duration::from_mins(15);

/// The API server writes a request to its audit log within a moment.
const RECORDED: Duration = Duration::from_secs(1);

/// Limits of the operator in any row, by name of the figure.
const LIMITS: [(&str, f64); 3] =
    [("queries/interval", 1.1), ("idle node writes/min", 0.0), ("writes/flipped node", 1.0)];

type Figures = [Figure; 14];

pub async fn run(ours: &Path) -> anyhow::Result<()> {
    let programs = programs(ours);
    if programs.len() == 1 {
        eprintln!("LEFT OUT: the peers; BENCH_PEER names none (hack/bench-peer builds one)");
    }
    let rounds = std::env::var("BENCH_ROUNDS").ok().and_then(|text| text.parse::<usize>().ok());
    let rounds = rounds.unwrap_or(1).max(1);
    let (plane, client) = start().await?;
    let mut first = true;
    let mut excess = false;
    for (nodes, watches) in rows(&ROWS) {
        let fleet = Fleet::start(nodes, |node| format!("{}:9100", nodes::address(node))).await?;
        let ground = Ground { plane: &plane, client: &client, fleet: &fleet, nodes, watches };
        let mut all = vec![Vec::<Figures>::new(); programs.len()];
        for round in 1..=rounds {
            // Another one is the first in each round.
            for at in (0..programs.len()).map(|at| (at + round - 1) % programs.len()) {
                let program = &programs[at];
                let figures = ground.measure(program, round).await?;
                let (name, round) = (program.name.clone(), round.to_string());
                let (of, by) = (nodes.to_string(), watches.to_string());
                let row = [("program", name), ("round", round), ("nodes", of)];
                let figures_of_it = figures.map(|(name, figure)| (name, format!("{figure:.1}")));
                let row = [&row[..], &[("TrafficWatches", by)], &figures_of_it].concat();
                print(&row, &mut first);
                if program.name == OURS {
                    excess |= above(&figures, &LIMITS);
                }
                all[at].push(figures);
            }
        }
        compare(&programs, &all, nodes, watches);
    }
    plane.stop().await?;
    ensure!(!excess, "above the limits");
    Ok(())
}

/// Prints the medians of all rounds, and the ratio of each peer's to ours.
fn compare(programs: &[Program], all: &[Vec<Figures>], nodes: usize, watches: usize) {
    let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
    println!("\n{nodes} nodes, {watches} TrafficWatches: medians, and how many times ours\n");
    println!("| figure | {} |", names.join(" | "));
    println!("|---{}|", "|---".repeat(names.len()));
    for (at, (figure, _)) in all[0].iter().flatten().take(14).enumerate() {
        let medians: Vec<_> = all.iter().map(|rounds| median(rounds, at)).collect();
        let ours = medians[0];
        let cells = medians.iter().enumerate().map(|(program, median)| match program {
            0 => format!("{median:.1}"),
            _ if ours > 0.0 => format!("{median:.1} ({:.1}×)", median / ours),
            _ => format!("{median:.1}"),
        });
        println!("| {figure} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    println!();
}

/// The median of one figure; the upper one of an even number of rounds.
fn median(rounds: &[Figures], at: usize) -> f64 {
    let mut figures: Vec<_> = rounds.iter().map(|figures| figures[at].1).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The surroundings that all programs of a row share.
struct Ground<'a> {
    plane: &'a ControlPlane,
    client: &'a Client,
    fleet: &'a Fleet,
    nodes: usize,
    watches: usize,
}

impl Ground<'_> {
    async fn measure(&self, program: &Program, round: usize) -> anyhow::Result<Figures> {
        self.fleet.set_busy(0);
        let (prepared, ()) = tokio::join!(self.prepare(), tokio::time::sleep(CALM));
        prepared?;
        let (started, since) = (Instant::now(), Timestamp::now());
        let admin = free_address()?.to_string();
        let args = ["--prometheus-url", self.fleet.url(), "--admin-address", &admin];
        let run = format!("{}-{}-{round}", self.nodes, self.watches);
        let operator = program.start(self.plane, &run, &args)?;
        let scraper = scraper::Scraper::start(format!("http://{admin}/metrics"));
        let labels = Labels::follow(self.client, LABEL);
        let all = async || (labels.count(false) == self.nodes).then_some(());
        wait_for("all labels", PATIENCE, all).await?;
        let first = started.elapsed();
        let asked_first = self.requests(program, since).await?.len();

        // Wait until the work that follows the first labels is over.
        tokio::time::sleep(INTERVAL * 2).await;
        let before = (operator.cpu()?, self.fleet.cpu()?, self.fleet.queries().await?);
        let since = Timestamp::now();
        tokio::time::sleep(INTERVAL * INTERVALS).await;
        let cpu = operator.cpu()? - before.0;
        let cpu_of_prometheus = self.fleet.cpu()? - before.1;
        let queries = self.fleet.queries().await? - before.2;
        let idle = self.requests(program, since).await?;
        let idle_writes = programs::writes(&idle, |_| true);
        let idle_node_writes = programs::writes(&idle, |event| event.resource == "nodes");

        let half = self.nodes / 2;
        let bare = bare_loop(self.client, half, "before").await?;
        let since = Timestamp::now();
        self.fleet.set_busy(half);
        let flipped = async || (labels.count(true) == half).then_some(());
        wait_for("half to be unfit", PATIENCE, flipped).await?;
        let flip = self.requests(program, since).await?;
        let flip_writes = programs::writes(&flip, |event| event.resource == "nodes");
        let marked: Vec<_> = (0..half).filter_map(|node| labels.marked(node)).collect();
        let (earliest, last) =
            marked.iter().min().zip(marked.iter().max()).context("not marked")?;
        let bare = (bare + bare_loop(self.client, half, "after").await?) / 2;

        let (rss, peak) = operator.memory()?;
        let page = scraper.end().await?;
        let intervals = f64::from(INTERVALS);
        let per_minute =
            |count: u32| f64::from(count) * 60.0 / (INTERVAL.as_secs_f64() * intervals);
        Ok([
            ("first labels s", first.as_secs_f64()),
            ("API requests until then", f64::from(u32::try_from(asked_first)?)),
            ("RSS MiB", rss),
            ("peak MiB", peak),
            ("CPU ms/interval", cpu / intervals),
            ("Prometheus CPU ms/interval", cpu_of_prometheus / intervals),
            ("queries/interval", queries / intervals),
            ("idle API requests/min", per_minute(u32::try_from(idle.len())?)),
            ("idle writes/min", per_minute(idle_writes)),
            ("idle node writes/min", per_minute(idle_node_writes)),
            ("writes/flipped node", f64::from(flip_writes) / f64::from(u32::try_from(half)?)),
            ("first to last label s", last.saturating_duration_since(*earliest).as_secs_f64()),
            ("bare loop s", bare.as_secs_f64()),
            ("largest page MB", page),
        ])
    }

    /// Replaces all nodes and objects by new ones.
    async fn prepare(&self) -> anyhow::Result<()> {
        watches::clean(self.client).await?;
        nodes::create(self.client, (0..self.nodes).map(nodes::node)).await?;
        let (count, interval) = (u32::try_from(self.watches)?, INTERVAL.as_secs());
        let window = |_| format!("{}s", WINDOW.as_secs());
        watches::create(self.client, count, 1, &format!("{interval}s"), window).await
    }

    /// Returns the requests of a program since then, as soon as all are recorded.
    async fn requests(
        &self,
        program: &Program,
        since: Timestamp,
    ) -> anyhow::Result<Vec<lab::AuditEvent>> {
        tokio::time::sleep(RECORDED).await;
        program.requests(self.plane, since)
    }
}
