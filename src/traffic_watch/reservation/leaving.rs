//! Resources that nodes have to stop offering.
use std::sync::Arc;

use super::{Leaving, OfferWrite};
use crate::nodes::Offer;

/// A resource that stays on some nodes, because their pods request it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Its name.
    pub resource: Arc<str>,
    /// Names of the nodes.
    pub nodes: Vec<Arc<str>>,
}

/// Takes resources away: a node whose pods request one keeps as much of it as they request, so that
/// they stay and no other pod comes.
pub(super) fn plan(leaving: &[Leaving]) -> (Vec<OfferWrite>, Vec<Kept>) {
    let (mut writes, mut kept) = (vec![], vec![]);
    for Leaving { resource, offers, requested } in leaving {
        // Nothing moves before it is known what running pods need.
        let Some(requested) = requested else { continue };
        let mut nodes = vec![];
        for (node, offer) in offers {
            let amount = requested.get(node).copied().filter(|amount| *amount > 0);
            if amount.map(Offer::of) != Some(*offer) {
                let (node, resource) = (Arc::clone(node), Arc::clone(resource));
                writes.push(OfferWrite { node, incarnation: None, resource, amount });
            }
            if amount.is_some() {
                nodes.push(Arc::clone(node));
            }
        }
        if !nodes.is_empty() {
            kept.push(Kept { resource: Arc::clone(resource), nodes });
        }
    }
    (writes, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaving(requested: Option<&[(&str, u64)]>) -> Vec<Leaving> {
        let offers = [("a", 700), ("b", 700), ("c", 200)];
        let requested = requested.map(|requested| {
            requested.iter().map(|(node, amount)| (Arc::from(*node), *amount)).collect()
        });
        vec![Leaving {
            resource: "example.com/old".into(),
            offers: offers.map(|(node, amount)| (node.into(), Offer::of(amount))).into(),
            requested,
        }]
    }

    #[test]
    fn a_resource_goes_except_where_pods_request_it() {
        let (writes, kept) = plan(&leaving(Some(&[("b", 200), ("c", 200)])));
        let writes: Vec<_> = writes.iter().map(|w| (&*w.node, w.amount)).collect();
        // The pods of c already request the rest of its offer.
        assert_eq!(writes, [("a", None), ("b", Some(200))]);
        let resource = "example.com/old".into();
        assert_eq!(kept, [Kept { resource, nodes: vec!["b".into(), "c".into()] }]);
    }

    #[test]
    fn nothing_goes_before_requests_are_known() {
        assert_eq!(plan(&leaving(None)), (vec![], vec![]));
        let (writes, kept) = plan(&leaving(Some(&[])));
        assert!(writes.iter().all(|write| write.amount.is_none()) && writes.len() == 3);
        assert_eq!(kept, []);
    }
}
