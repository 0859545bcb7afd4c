//! The order in which an answer names nodes.
use super::{Identity, Resolution};

/// The longest text that is kept: names and addresses of nodes are shorter, and a port follows.
const LONGEST: usize = 300;

/// Finds the nodes of one answer. Every measure of the built-in query lists the nodes in the same
/// order, so each text is first compared with the one that came next last time, and only then
/// looked up: most lookups miss the processor's cache, a comparison in this order does not.
#[derive(Debug, Default)]
pub struct Trail {
    /// The texts in their order, one after the other, and the end of each.
    texts: String,
    steps: Vec<Step>,
    /// The step of each node that has one, by place.
    of_node: Vec<Option<u32>>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    end: u32,
    node: u32,
}

impl Trail {
    /// Resolves a text like [`Identity::lookup`]; each call must pass the same identity.
    pub fn find<'a>(&mut self, identity: &Identity, text: &'a str) -> Resolution<'a> {
        // At its end it begins again.
        let next = if self.next < self.steps.len() { self.next } else { 0 };
        // Some servers list all measures of a node before those of the next one.
        for place in [Some(next), self.next.checked_sub(1)].into_iter().flatten() {
            if let Some((known, node)) = self.step(place)
                && known == text
            {
                self.next = place + 1;
                return Resolution::Node(node);
            }
        }
        let found = identity.lookup(text);
        if let Resolution::Node(node) = found {
            self.meet(text, node);
        }
        found
    }

    /// A step of the trail: its text and its node.
    fn step(&self, place: usize) -> Option<(&str, usize)> {
        let step = self.steps.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.steps[before].end);
        let text = self.texts.get(start as usize..step.end as usize)?;
        Some((text, step.node as usize))
    }

    /// Continues after a node, which becomes the last step if it is new.
    fn meet(&mut self, text: &str, node: usize) {
        if let Some(Some(step)) = self.of_node.get(node) {
            self.next = *step as usize + 1;
            return;
        }
        let end = u32::try_from(self.texts.len() + text.len());
        let (Ok(end), Ok(place)) = (end, u32::try_from(self.steps.len())) else { return };
        let Ok(number) = u32::try_from(node) else { return };
        if text.len() > LONGEST {
            return;
        }
        if self.of_node.len() <= node {
            self.of_node.resize(node + 1, None);
        }
        self.of_node[node] = Some(place);
        self.texts.push_str(text);
        self.steps.push(Step { end, node: number });
        self.next = self.steps.len();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn identity() -> Identity {
        let addresses: Vec<[Arc<str>; 1]> =
            (0..4).map(|node| [format!("10.0.0.{node}").into()]).collect();
        let nodes = addresses.iter().enumerate();
        let nodes = nodes.map(|(node, all)| (format!("node-{node}").into(), &all[..]));
        Identity::new(nodes.collect())
    }

    proptest! {
        #[test]
        fn finds_what_is_looked_up_whatever_the_order(
            texts in proptest::collection::vec("(node-[0-5]|10.0.0.[0-5]|node-1.a)(:9100)?", 0..60),
            rounds in 1usize..4,
        ) {
            let (identity, mut trail) = (identity(), Trail::default());
            for text in std::iter::repeat_n(&texts, rounds).flatten() {
                prop_assert_eq!(trail.find(&identity, text), identity.lookup(text), "{}", text);
            }
            prop_assert!(trail.steps.len() <= 4);
        }
    }

    #[test]
    fn a_text_without_end_is_not_kept() {
        let (identity, mut trail) = (identity(), Trail::default());
        let text = format!("node-1:{}", "9".repeat(1 << 20));
        assert_eq!(trail.find(&identity, &text), Resolution::Node(1));
        assert!(trail.texts.is_empty() && trail.steps.is_empty());
    }
}
