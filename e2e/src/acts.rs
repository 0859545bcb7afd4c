//! The acts, in the order of the tour.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use futures::future::{LocalBoxFuture, join_all};
use lab::Cluster;
use lab::checks::Check;

use crate::report::{Act, Report};
use crate::stage::Stage;
use crate::{all, monitoring, newcomers, prober, swarm, traffic_watch as watch, upgrading};

/// What an act may be played beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    /// Acts of the other lanes: it loads links, or judges nodes, one after the other.
    Links,
    /// Acts of the other lanes: it has pods of its own.
    Pods,
    /// Acts of the other lanes: it has a swarm of its own.
    Streams,
    /// Nobody: it takes the operator, Prometheus, a node or a kubelet away.
    Nobody,
    /// Nobody: it is about the whole product, its installation included. These have one more cluster.
    Whole,
}

/// One act.
pub struct Scene {
    pub name: &'static str,
    with: With,
    play: for<'a> fn(&'a Stage<'a>) -> LocalBoxFuture<'a, Result<()>>,
}

macro_rules! scenes {
    ($($name:literal $with:ident $play:path,)*) => {
        &[$(Scene { name: $name, with: With::$with, play: |stage| Box::pin($play(stage)) }),*]
    };
}

/// All acts on clusters. Those that remove the operator are the last.
pub const ALL: &[Scene] = scenes![
    "traffic-watch" Links watch::tour::play,
    "judging" Links watch::judging::play,
    "exporters" Links watch::exporters::play,
    "prober" Links prober::play,
    "reserving-rest" Links watch::reserving::rest,
    "dashboards" Links monitoring::dashboards,
    "all-kinds" Whole all::play,
    "prober-pods" Pods prober::pods::play,
    "rules" Pods monitoring::rules,
    "swarm-verbatim" Streams swarm::verbatim::play,
    "swarm" Nobody swarm::play,
    "autoscaling" Nobody watch::autoscaling::play,
    "prober-outage" Nobody prober::without_the_operator,
    "kubelets" Nobody watch::kubelets::play,
    "reserving-faults" Nobody watch::reserving::faults,
    "reserving-herd" Nobody watch::reserving::herd,
    "prober-broken" Nobody prober::broken::play,
    "upgrading" Whole upgrading::play,
    "readme" Whole newcomers::readme,
    "helm" Whole newcomers::helm,
];

/// Plays some of the acts: the lanes beside each other, then the others one after the other.
pub async fn play(cluster: &Cluster, report: &Report, operator: &Path, wanted: &[&Scene]) {
    let lane = |with: With| wanted.iter().filter(move |scene| scene.with == with);
    let lanes = [With::Links, With::Pods, With::Streams].map(|with| async move {
        for scene in lane(with) {
            scene.perform(cluster, report, operator).await;
        }
    });
    join_all(lanes).await;
    for scene in lane(With::Nobody).chain(lane(With::Whole)) {
        scene.perform(cluster, report, operator).await;
    }
}

/// Divides acts into those of each cluster, which are played beside each other.
pub fn by_cluster(wanted: Vec<&'static Scene>) -> [Vec<&'static Scene>; 3] {
    let mut clusters = [const { Vec::new() }; 3];
    for scene in wanted {
        let cluster = match scene.with {
            With::Links | With::Pods | With::Streams => 0,
            With::Nobody => 1,
            With::Whole => 2,
        };
        clusters[cluster].push(scene);
    }
    clusters
}

impl Scene {
    /// Plays the act, and removes what it leaves.
    async fn perform(&self, cluster: &Cluster, report: &Report, operator: &Path) {
        let act = Act { report, name: self.name };
        let began = Instant::now();
        let played = async {
            let stage = Stage::new(cluster, operator, act)?;
            let played = (self.play)(&stage).await;
            if let Err(error) = &played {
                act.say(&format!("{error:#}\nThe operator's log:\n{}", stage.operator_log()));
            }
            let cleared = if report.keeps() { Ok(()) } else { stage.clear().await };
            played.and(cleared)
        }
        .await;
        let seconds = began.elapsed().as_secs();
        let figure = match &played {
            Ok(()) => format!("{seconds} s"),
            Err(error) => format!("{error:#}").lines().next().unwrap_or_default().to_owned(),
        };
        act.claim("played to its end, and nothing left", played.is_ok(), figure);
    }
}

/// Returns the acts with these names; those whose names contain one that no act has; all without any.
pub fn like(filters: &[String]) -> Vec<&'static Scene> {
    let is_name = |filter: &str| ALL.iter().any(|scene| scene.name == filter);
    let is_like = |name: &str, filter: &str| {
        if is_name(filter) { name == filter } else { name.contains(filter) }
    };
    let is_wanted = |scene: &&Scene| {
        filters.is_empty() || filters.iter().any(|filter| is_like(scene.name, filter))
    };
    ALL.iter().filter(is_wanted).collect()
}

/// Returns the acts with these names.
pub fn exactly(names: &[&str]) -> Vec<&'static Scene> {
    ALL.iter().filter(|scene| names.contains(&scene.name)).collect()
}

/// What must hold of the release image alone.
pub fn image_is_small(report: &Report, image: &Path) -> Result<()> {
    let size = std::fs::metadata(image)?.len();
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let megabytes = size as f64 / 1e6;
    let figure = format!("{megabytes:.1} MB (at most 20)");
    let act = Act { report, name: "image" };
    act.check(Check::new("image is small", size <= 20_000_000, figure));
    Ok(())
}
