//! The client library's `Api`, of which no value that another client wrote keeps anything else from
//! being read.
use std::fmt::Debug;

use kube::{
    Client, Resource, Result,
    api::{
        DeleteParams, Evict, EvictParams, ListParams, ObjectList, Patch, PatchParams, Portforward,
        Portforwarder, PostParams,
    },
    core::{DynamicResourceScope, NamespaceResourceScope, Status, error_boundary::InvalidObject},
};
use serde::{
    Serialize,
    de::{DeserializeOwned, Error as _},
};

use super::watch::DeserializeGuard;

#[expect(clippy::disallowed_types, reason = "this is what stands in its place")]
type Inner<K> = kube::Api<DeserializeGuard<K>>;

/// The objects of one kind, in all namespaces or in one, as [`kube::Api`].
///
/// Every time is read, and one object that cannot be read is one object: a list leaves it out, and
/// names it in the log.
#[derive(Clone, Debug)]
pub struct Api<K>(Inner<K>);

impl<K: Resource> Api<K> {
    /// All namespaces, or a cluster-scoped kind.
    pub fn all(client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self(Inner::all(client))
    }

    /// The same for a kind that is known at run time.
    pub fn all_with(client: Client, kind: &K::DynamicType) -> Self {
        Self(Inner::all_with(client, kind))
    }

    /// A kind of either scope that is known at run time.
    pub fn dynamic(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Self
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        match namespace {
            Some(namespace) => Self::namespaced_with(client, namespace, kind),
            None => Self::all_with(client, kind),
        }
    }

    /// One namespace.
    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Self(Inner::namespaced(client, namespace))
    }

    /// The same for a kind that is known at run time.
    pub fn namespaced_with(client: Client, namespace: &str, kind: &K::DynamicType) -> Self
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        Self(Inner::namespaced_with(client, namespace, kind))
    }
}

impl<K: Clone + DeserializeOwned + Debug> Api<K> {
    /// All objects, each as it is, for those that report the unreadable ones themselves.
    pub fn each(self) -> Inner<K> {
        self.0
    }

    /// One object, which must exist.
    pub async fn get(&self, name: &str) -> Result<K> {
        readable(self.0.get(name).await?)
    }

    /// One object, if it exists.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>> {
        self.0.get_opt(name).await?.map(readable).transpose()
    }

    /// A page of objects without those that cannot be read.
    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<K>> {
        let ObjectList { types, metadata, items } = self.0.list(params).await?;
        let read =
            |object: DeserializeGuard<K>| object.0.inspect_err(|invalid| left_out(invalid)).ok();
        Ok(ObjectList { types, metadata, items: items.into_iter().filter_map(read).collect() })
    }

    /// Lists page by page; every object that can be read goes to `take`.
    pub async fn list_pages(&self, mut params: ListParams, mut take: impl FnMut(K)) -> Result<()> {
        loop {
            let page = self.list(&params).await?;
            page.items.into_iter().for_each(&mut take);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }

    /// Creates an object.
    pub async fn create(&self, params: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        readable(self.0.create(params, &DeserializeGuard(Ok(object.clone()))).await?)
    }

    /// Replaces an object.
    pub async fn replace(&self, name: &str, params: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        readable(self.0.replace(name, params, &DeserializeGuard(Ok(object.clone()))).await?)
    }

    /// Patches an object.
    pub async fn patch<P: Serialize + Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        readable(self.0.patch(name, params, patch).await?)
    }

    /// Patches the status of an object.
    pub async fn patch_status<P: Serialize + Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        readable(self.0.patch_status(name, params, patch).await?)
    }

    /// Patches another part of an object that is a resource of its own.
    pub async fn patch_subresource<P: Serialize + Debug>(
        &self,
        subresource: &str,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        readable(self.0.patch_subresource(subresource, name, params, patch).await?)
    }

    /// Deletes an object.
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<()> {
        self.0.delete(name, params).await.map(drop)
    }

    /// Evicts a pod.
    pub async fn evict(&self, name: &str, params: &EvictParams) -> Result<Status>
    where
        K: Evict,
    {
        self.0.evict(name, params).await
    }

    /// Forwards ports of a pod.
    pub async fn portforward(&self, name: &str, ports: &[u16]) -> Result<Portforwarder>
    where
        K: Portforward,
    {
        self.0.portforward(name, ports).await
    }
}

fn readable<K>(object: DeserializeGuard<K>) -> Result<K> {
    object.0.map_err(|invalid| kube::Error::SerdeError(serde_json::Error::custom(invalid.error)))
}

/// Names an object that others are read without.
pub(super) fn left_out(invalid: &InvalidObject) {
    let InvalidObject { error, metadata } = invalid;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    tracing::warn!(namespace, name, error, "an object cannot be read and is left out");
}
