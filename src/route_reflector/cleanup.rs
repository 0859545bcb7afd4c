//! Goes back to the mesh, step by step, when a set is deleted.
use std::sync::Arc;

use super::{
    RouteReflectorReconciler,
    datastore::Session,
    memory::Figures,
    plan::{self, Desired, Next, Observed},
};
use crate::{
    api::RouteReflectorSet,
    controller::{Error, Notice},
};

impl RouteReflectorReconciler {
    /// One step back to the mesh; `Ok` when nothing is left to be done.
    pub(super) async fn restore(
        &self,
        set: &RouteReflectorSet,
        observed: &mut Observed,
    ) -> Result<Vec<Notice>, Error> {
        let settings = observed.settings.clone().map_err(Error::Invalid)?;
        let session = match &observed.bgp {
            Ok((snapshot, _)) => snapshot.session(),
            Err(_) => Session::default(),
        };
        let bgp = match &observed.bgp {
            Ok((snapshot, _)) if snapshot.locked => {
                let text = "Calico is migrating its datastore".to_owned();
                return Err(Error::Pending("DatastoreLocked", text));
            }
            Ok((snapshot, bgp)) => match &snapshot.stale {
                Some(stale) => {
                    return Err(Error::Pending("DatastoreUnreachable", stale.to_string()));
                }
                None => bgp,
            },
            // There is nothing that could be restored.
            Err(calico) if calico.reason == "CalicoNotFound" => return Ok(vec![]),
            Err(calico) => return Err(Error::Pending(calico.reason, calico.text.clone())),
        };
        let plan::Back { goal, next, figures } = plan::back(set, observed, &settings, bgp);
        let datastore = self.datastore(set)?;
        let now = observed.now;
        let mut memory = observed.memory.clone();
        memory.shut_since = match &next {
            Next::Wait(..) | Next::Refuse(..) => memory.shut_since.or(Some(now)),
            _ => None,
        };
        memory.figures = Arc::new(Figures { waiting_since: memory.shut_since, ..figures });
        let waited = plan::waited(&memory, now);
        let mut desired = Desired::default();
        let text = match next {
            Next::Done => {
                self.write(set, &datastore, desired).await?;
                let note = "the mesh carries every route; removing reflectors and peers".into();
                return Ok(vec![Notice {
                    warning: false,
                    reason: "MeshRestored",
                    note,
                    node: None,
                }]);
            }
            Next::Take(step) => {
                let text = step.to_string();
                let writes = bgp.writes(&step, &goal);
                desired.step = Some((step, writes));
                desired.session = session;
                text
            }
            Next::Wait(step, why) => {
                desired.statuses = plan::asked(&settings, bgp, &memory, set);
                format!("{step}: {why}")
            }
            Next::Refuse(step, why) => plan::refusal(step.as_ref(), &why),
        };
        desired.memory = Some(memory);
        if waited > settings.timeout && bgp.fabric.mesh() {
            self.write(set, &datastore, Desired::default()).await?;
            let note = format!(
                "the mesh is on, but reflectors and peers are left, since it could not be verified: {text}"
            );
            return Ok(vec![Notice { warning: true, reason: "ReflectorsLeft", note, node: None }]);
        }
        self.write(set, &datastore, desired).await?;
        Err(Error::Pending("RestoringMesh", text))
    }
}
