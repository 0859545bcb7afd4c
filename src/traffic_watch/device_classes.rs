//! Classes of devices that stand for an extended resource: the scheduler then looks for devices,
//! one for each unit, and does not count what nodes offer.
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};

use crate::{clock, infra::Api};

/// The time for which an answer counts: classes change with the cluster's equipment.
const PERIOD: Duration = Duration::from_mins(1);

/// The name of each class, and of the resource that it stands for.
pub type Classes = Vec<(String, String)>;

/// The classes, listed at most once a minute for all objects together.
#[derive(Debug, Default)]
pub struct DeviceClasses(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    looked: Option<Instant>,
    classes: Arc<Classes>,
}

impl DeviceClasses {
    /// Returns the class that stands for a resource. While classes cannot be listed, or not within
    /// `patience`, it is the one that was seen last.
    pub async fn of(&self, client: &Client, resource: &str, patience: Duration) -> Option<String> {
        let now = clock::instant();
        let known = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let due = known.looked.is_none_or(|looked| now.duration_since(looked) >= PERIOD);
            if due {
                known.looked = Some(now);
            }
            (!due).then(|| Arc::clone(&known.classes))
        };
        let classes = match known {
            Some(classes) => classes,
            None => self.look(client, patience).await,
        };
        let of = classes.iter().find(|(_, name)| name == resource);
        of.map(|(class, _)| class.clone())
    }

    async fn look(&self, client: &Client, patience: Duration) -> Arc<Classes> {
        let listed = tokio::time::timeout(patience, list(client)).await;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match listed {
            Ok(Ok(classes)) => known.classes = Arc::new(classes),
            // Offers do not depend on it, and `doctor` names the missing right.
            Ok(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "listing DeviceClasses");
            }
            Err(_) => tracing::debug!("DeviceClasses are not listed in time"),
        }
        Arc::clone(&known.classes)
    }
}

/// Lists the classes that stand for a resource: a field of newer Kubernetes than the types that
/// this program is built with.
///
/// # Errors
/// When they cannot be listed; a cluster without this version of the API has none.
pub async fn list(client: &Client) -> kube::Result<Classes> {
    let class = GroupVersionKind::gvk("resource.k8s.io", "v1", "DeviceClass");
    let class = ApiResource::from_gvk_with_plural(&class, "deviceclasses");
    let api = Api::<DynamicObject>::all_with(client.clone(), &class);
    let classes = match api.list(&ListParams::default()).await {
        Ok(classes) => classes.items,
        Err(kube::Error::Api(status)) if status.code == 404 => vec![],
        Err(error) => return Err(error),
    };
    let resource = |class: &DynamicObject| {
        let resource = class.data["spec"]["extendedResourceName"].as_str()?;
        Some((class.name_any(), resource.to_owned()))
    };
    Ok(classes.iter().filter_map(resource).collect())
}
