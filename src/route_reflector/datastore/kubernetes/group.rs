//! The API group of Calico's objects.
use std::{sync::PoisonError, time::Duration};

use kube::{api::DynamicObject, core::GroupVersionKind, discovery::ApiResource};

use super::{
    super::{
        DEFAULT, Error,
        peer::{self, InformationSpec},
    },
    Kubernetes, spec, unreadable,
};

/// The time for which the discovered group, or the absence of Calico, is cached. A migration takes
/// minutes, and both groups are served during it: no error reveals it.
const REDISCOVER: Duration = Duration::from_mins(1);

/// One of the places where Calico has its objects in the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// `projectcalico.org/v3`: definitions of its own, or Calico's API server.
    V3,
    /// `crd.projectcalico.org/v1`: what Calico itself reads where there is no other.
    V1,
}

impl Group {
    /// Group and version.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V3 => "projectcalico.org/v3",
            Self::V1 => "crd.projectcalico.org/v1",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V3 => "projectcalico.org",
            Self::V1 => "crd.projectcalico.org",
        }
    }

    pub(in super::super) fn resource(self, kind: &str, plural: &str) -> ApiResource {
        let (group, version) = self.api_version().split_once('/').unwrap_or_default();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    pub(in super::super) fn peers(self) -> ApiResource {
        self.resource(peer::KIND, "bgppeers")
    }

    pub(in super::super) fn configurations(self) -> ApiResource {
        self.resource("BGPConfiguration", "bgpconfigurations")
    }

    pub(in super::super) fn node_statuses(self) -> ApiResource {
        self.resource("CalicoNodeStatus", "caliconodestatuses")
    }

    pub(super) fn pools(self) -> ApiResource {
        self.resource("IPPool", "ippools")
    }

    pub(super) fn felix(self) -> ApiResource {
        self.resource("FelixConfiguration", "felixconfigurations")
    }

    pub(super) fn information(self) -> ApiResource {
        self.resource("ClusterInformation", "clusterinformations")
    }
}

impl Kubernetes {
    /// Returns the last result, if it is still valid.
    pub(super) fn known_group(&self) -> Option<Result<Group, Error>> {
        let known = *self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let (group, since) = known?;
        (since.elapsed() < REDISCOVER).then(|| group.ok_or(Error::NotInstalled))
    }

    /// Discovers the group again at the next call.
    pub(in super::super) fn forget_group(&self) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Looks for Calico. If it was not `known`, the list of all groups is requested first: one
    /// small request if there is none.
    pub(super) async fn discover(&self, known: bool) -> Result<Group, Error> {
        if !known {
            let groups = self.client.list_api_groups().await;
            let groups = groups.map_err(Error::kube("discover Calico"))?.groups;
            let is_calicos = |name: &str| [Group::V3, Group::V1].iter().any(|g| g.name() == name);
            if !groups.iter().any(|group| is_calicos(&group.name)) {
                return Err(Error::NotInstalled);
            }
        }
        match (self.serves(Group::V3).await?, self.serves(Group::V1).await?) {
            (true, false) => Ok(Group::V3),
            (false, true) => Ok(Group::V1),
            (false, false) => Err(Error::NotInstalled),
            // Definitions may be installed long before Calico uses them: it uses the group in which
            // it keeps its ClusterInformation. After a migration there is one in both.
            (true, true) => {
                let v3 = self.information(Group::V3).await?.is_some();
                let only_v1 = !v3 && self.information(Group::V1).await?.is_some();
                Ok(if only_v1 { Group::V1 } else { Group::V3 })
            }
        }
    }

    async fn serves(&self, group: Group) -> Result<bool, Error> {
        match self.client.list_api_group_resources(group.api_version()).await {
            Ok(list) => {
                let has = |plural| list.resources.iter().any(|r| r.name == plural);
                Ok(has("bgppeers") && has("bgpconfigurations"))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            // Even when Calico's API server is down: the storage behind it must not be used
            // directly.
            Err(source) => Err(Error::Kube { action: "discover Calico", source }),
        }
    }

    pub(super) async fn information(&self, group: Group) -> Result<Option<InformationSpec>, Error> {
        let api = self.api::<DynamicObject>(&group.information());
        let found = api.get_opt(DEFAULT).await;
        let found = found.map_err(Error::kube("get ClusterInformation default"))?;
        let read =
            found.map(|found| spec(&found).map_err(unreadable("ClusterInformation", DEFAULT)));
        read.transpose()
    }
}
