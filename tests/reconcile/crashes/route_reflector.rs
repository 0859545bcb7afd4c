//! A RouteReflectorSet that replaces a mesh; `make soak` also replaces a reflector, and restores
//! the mesh.
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{harness, state};
use crate::{
    bench::Bench,
    route_reflector::{
        Stage,
        stage::{is_converged, two},
    },
};

struct Migration(Stage);

impl Migration {
    /// Reports whether exactly these nodes reflect, in this order of slots, and nothing is left to
    /// do.
    async fn reflect(&self, nodes: &[&str]) -> bool {
        let status = self.0.status("main").await;
        let there = self.0.reflectors().await;
        is_converged(&status)
            && status["plan"] == json!([])
            && self.0.mesh().await == Some(false)
            && there.values().map(String::as_str).eq(nodes.iter().copied())
            && self.0.marks().await.len() == nodes.len()
    }
}

impl harness::Pass for Migration {
    const KIND: &'static str = "RouteReflectorSet";
    const SAMPLE: usize = 3;

    fn parts() -> usize {
        // Each waits for samples that are younger than its steps.
        if harness::soaks() { 3 } else { 1 }
    }

    async fn set_up(bench: Bench) -> Self {
        let stage = Stage::new(bench).await;
        stage.nodes(4).await;
        Self(stage)
    }

    fn bench(&self) -> &Bench {
        &self.0.bench
    }

    async fn begin(&self, part: usize) {
        match part {
            0 => {
                let spec = json!({"mesh": "Migrate", "deletionPolicy": "RestoreMesh"});
                self.0.set("main", two(spec)).await;
            }
            1 => self.0.cordon("node-1", true).await,
            _ => {
                self.0.sets().delete("main", &DeleteParams::default()).await.expect("delete");
            }
        }
    }

    async fn is_over(&self, part: usize) -> bool {
        match part {
            0 => self.reflect(&["node-1", "node-2"]).await,
            1 => self.reflect(&["node-3", "node-2"]).await,
            _ => {
                let set = self.0.sets().get_opt("main").await.expect("RouteReflectorSet");
                set.is_none() && self.0.marks().await.is_empty()
            }
        }
    }

    async fn state(&self) -> Value {
        let sets = "/apis/traffic.example.com/v1alpha1/routereflectorsets";
        let calico = "/apis/crd.projectcalico.org/v1";
        let bench = self.bench();
        json!([
            state::nodes(bench).await,
            state::objects(bench, sets, &[]).await,
            state::objects(bench, &format!("{calico}/bgppeers"), &["generation"]).await,
            state::objects(bench, &format!("{calico}/bgpconfigurations"), &["generation"]).await,
        ])
    }

    /// No node ever missed a route.
    fn judge(&self) {
        self.0.routes_were_kept();
    }
}

#[test]
fn crash_points_of_a_route_reflector_set() {
    harness::every::<Migration>();
}
