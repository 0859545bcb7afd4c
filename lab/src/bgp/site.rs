//! A ground and an API server that says how it is configured.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;

use super::confd::Confd;
use super::family::Family;
use super::follow::Follower;
use super::ground::Ground;
use super::nodes::Nodes;
use crate::calico;
use crate::cluster::apply::apply;
use crate::cluster::definitions::established;
use crate::control_plane::{ControlPlane, Options};
use crate::wait::until;

/// The objects of a new Calico: the mesh is on, and its datastore is here.
const OBJECTS: &str = "\
apiVersion: crd.projectcalico.org/v1
kind: ClusterInformation
metadata: {name: default}
spec: {clusterType: lab, datastoreReady: true}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata: {name: default}
spec: {asNumber: 64512, nodeToNodeMeshEnabled: true}
";
/// The sessions of a mesh are up after two seconds, on a busy machine later.
const PATIENCE: Duration = Duration::from_mins(3);

/// Nodes with real BGP, configured by what is in a real API server.
#[derive(Debug)]
pub struct Site {
    /// etcd and the API server; nobody else writes.
    pub plane: ControlPlane,
    /// The nodes.
    pub ground: Arc<Ground>,
    /// The configuration of the nodes.
    pub confd: Confd,
    pub nodes: Nodes,
    /// Brings one to the other.
    pub follower: Follower,
}

impl Site {
    /// Starts nodes in zones, each with the same number of neighboring nodes, as a full mesh in
    /// each address family, and waits until it is one.
    ///
    /// Each node hears of a change within `skew`, in its own time.
    pub async fn start(
        nodes: u8,
        zones: &[&str],
        families: &[Family],
        skew: Duration,
    ) -> Result<Self> {
        let options = Options { controller_manager: false, scheduler: false, ..Options::default() };
        let ground = Arc::new(Ground::start(nodes, families).await?);
        let plane = ControlPlane::start(options).await?;
        let client = plane.client()?;
        calico::install(&client, calico::Group::V1).await?;
        apply(&client, OBJECTS).await?;
        let confd = Confd::new(Arc::clone(&ground));
        let follower = Follower::start(client.clone(), confd.clone(), skew);
        let site = Self { plane, ground, confd, nodes: Nodes::new(client), follower };
        let per_zone = usize::from(nodes).div_ceil(zones.len());
        for (number, machine) in site.ground.machines().iter().enumerate() {
            site.nodes.create(machine, zones[number / per_zone]).await?;
        }
        site.configured(usize::from(nodes)).await?;
        let sessions = site.confd.last().sessions;
        site.ground.established(&sessions, &BTreeSet::new(), PATIENCE).await?;
        site.follower.check()?;
        Ok(site)
    }

    /// Waits until this many nodes are configured.
    async fn configured(&self, nodes: usize) -> Result<()> {
        until("all nodes configured", PATIENCE, || async {
            self.follower.check()?;
            let there = self.confd.last().world.nodes.len();
            Ok((there != nodes).then(|| format!("{there} of {nodes}")))
        })
        .await
    }

    /// Takes everything down.
    pub async fn stop(self) -> Result<()> {
        drop(self.follower);
        self.ground.stop()?;
        self.plane.stop().await
    }
}

/// Installs custom resource definitions, and waits until their kinds are served.
pub async fn define(client: &Client, yaml: &str) -> Result<()> {
    apply(client, yaml).await?;
    established(client).await.context("installing definitions")
}
