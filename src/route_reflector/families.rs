//! The covered address families. Pure.
//!
//! BGPPeers select nodes, not addresses, so that confd makes the same sessions in both families.
//! One model of the peerings serves both families if every node that matters speaks both.
use std::{fmt, net::IpAddr, sync::Arc};

use super::names::few;

/// An address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// The addresses that a node speaks BGP with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4.
    pub v4: Option<IpAddr>,
    /// IPv6.
    pub v6: Option<IpAddr>,
}

impl Addresses {
    /// Reads texts with the length of the prefix: `10.0.0.1/24`.
    #[must_use]
    pub fn parse(v4: Option<&str>, v6: Option<&str>) -> Self {
        let address = |text: Option<&str>| text?.split('/').next()?.parse::<IpAddr>().ok();
        Self { v4: address(v4).filter(IpAddr::is_ipv4), v6: address(v6).filter(IpAddr::is_ipv6) }
    }

    /// The one of a family.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Reports whether it speaks no BGP.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }
}

/// The covered families, and the nodes that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// The family that makes a node part of the network: IPv4 if half of the nodes speak it.
    pub first: Family,
    /// The other, if more than half of the nodes of the first speak it: reflectors have to speak
    /// both.
    pub second: Option<Family>,
    /// Nodes that speak only the other family, and are not part of the network.
    pub outside: Vec<Arc<str>>,
    /// With a second family nodes that do not speak it and so cannot be reflectors, without one
    /// those that do.
    pub odd: Vec<Arc<str>>,
}

impl Families {
    /// Decides. One node that is set up otherwise than all others changes nothing for these.
    #[must_use]
    pub fn of<'n>(nodes: impl Iterator<Item = (&'n Arc<str>, Addresses)> + Clone) -> Self {
        let nodes = nodes.filter(|(_, addresses)| !addresses.is_empty());
        let speaking = |family| nodes.clone().filter(move |(_, a)| a.of(family).is_some());
        let first = if speaking(Family::V4).count() * 2 >= nodes.clone().count() {
            Family::V4
        } else {
            Family::V6
        };
        let other = first.other();
        let both = speaking(first).filter(|(_, a)| a.of(other).is_some()).count();
        let second = (both * 2 > speaking(first).count()).then_some(other);
        let outside = nodes.clone().filter(|(_, a)| a.of(first).is_none());
        let odd = speaking(first).filter(|(_, a)| a.of(other).is_some() != second.is_some());
        let names = |(name, _): (&Arc<str>, Addresses)| Arc::clone(name);
        Self { first, second, outside: outside.map(names).collect(), odd: odd.map(names).collect() }
    }

    /// Reports whether a node with these addresses can reflect all covered families.
    #[must_use]
    pub fn are_spoken(&self, addresses: Addresses) -> bool {
        let speaks = |family| addresses.of(family).is_some();
        speaks(self.first) && self.second.is_none_or(speaks)
    }

    /// Returns remarks for people.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let (first, other) = (self.first, self.first.other());
        let mut remarks = Vec::new();
        if !self.odd.is_empty() {
            let odd = few(self.odd.iter());
            remarks.push(match self.second {
                Some(second) => format!(
                    "nodes without an {second} address of BGP are no reflectors, as most nodes have one: {odd}"
                ),
                None => format!(
                    "{other} is not covered: only a few nodes have an {other} address of BGP: {odd}"
                ),
            });
        }
        if !self.outside.is_empty() {
            let outside = few(self.outside.iter());
            remarks
                .push(format!("nodes without an {first} address of BGP are left out: {outside}"));
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use proptest::{option, prelude::*};

    use super::*;

    /// Nodes and what they speak, what is decided, and what is said.
    type Case = (&'static [(&'static str, &'static str)], Families, &'static str);

    fn families(nodes: &[(&str, &str)]) -> Families {
        let nodes: Vec<(Arc<str>, Addresses)> = nodes
            .iter()
            .map(|(name, speaks)| {
                let v4 = speaks.contains('4').then_some("10.0.0.1/24");
                let v6 = speaks.contains('6').then_some("fd00::1/64");
                ((*name).into(), Addresses::parse(v4, v6))
            })
            .collect();
        Families::of(nodes.iter().map(|(name, addresses)| (name, *addresses)))
    }

    #[test]
    fn one_node_that_is_set_up_otherwise_changes_nothing_for_all_others() {
        let of = |first, second| Families { first, second, ..Families::default() };
        let cases: [Case; 8] = [
            (&[], of(Family::V4, None), ""),
            (&[("a", "4"), ("b", "4"), ("c", "")], of(Family::V4, None), ""),
            (&[("a", "6"), ("b", "6")], of(Family::V6, None), ""),
            (&[("a", "46"), ("b", "46")], of(Family::V4, Some(Family::V6)), ""),
            (
                &[("a", "46"), ("b", "46"), ("c", "4")],
                Families { odd: vec!["c".into()], ..of(Family::V4, Some(Family::V6)) },
                "nodes without an IPv6 address of BGP are no reflectors, as most nodes have one: c",
            ),
            (
                &[("a", "4"), ("b", "46"), ("c", "4")],
                Families { odd: vec!["b".into()], ..of(Family::V4, None) },
                "IPv6 is not covered: only a few nodes have an IPv6 address of BGP: b",
            ),
            (
                &[("a", "46"), ("b", "6"), ("c", "46")],
                Families { outside: vec!["b".into()], ..of(Family::V4, Some(Family::V6)) },
                "nodes without an IPv4 address of BGP are left out: b",
            ),
            (
                &[("a", "6"), ("b", "46"), ("c", "6"), ("d", "4"), ("e", "6")],
                Families {
                    outside: vec!["d".into()],
                    odd: vec!["b".into()],
                    ..of(Family::V6, None)
                },
                "IPv4 is not covered: only a few nodes have an IPv4 address of BGP: b; \
                 nodes without an IPv6 address of BGP are left out: d",
            ),
        ];
        for (nodes, expected, remarks) in cases {
            let found = families(nodes);
            assert_eq!(found, expected, "{nodes:?}");
            assert_eq!(found.remarks().join("; "), remarks, "{nodes:?}");
        }
    }

    #[test]
    fn an_address_is_read_without_its_prefix_and_never_as_one_of_the_other_family() {
        let found = Addresses::parse(Some("10.0.0.1/24"), Some("10.0.0.2/24"));
        assert_eq!(found, Addresses { v4: "10.0.0.1".parse().ok(), v6: None });
        assert_eq!(Addresses::parse(None, Some("fd00::1")).v6, "fd00::1".parse().ok());
        assert!(Addresses::parse(Some("x"), None).is_empty());
    }

    proptest! {
        /// Annotations of nodes may hold anything; an address is one of its family or none.
        #[test]
        fn no_text_is_an_address_of_the_other_family(
            v4 in option::of(".{0,20}"), v6 in option::of("[0-9a-f:./]{0,20}"), one: IpAddr,
            length in "(/[0-9]{0,3})?",
        ) {
            let found = Addresses::parse(v4.as_deref(), v6.as_deref());
            prop_assert!(found.v4.is_none_or(|ip| ip.is_ipv4()));
            prop_assert!(found.v6.is_none_or(|ip| ip.is_ipv6()));
            let text = format!("{one}{length}");
            let both = Addresses::parse(Some(&text), Some(&text));
            let expected = (Some(one).filter(IpAddr::is_ipv4), Some(one).filter(IpAddr::is_ipv6));
            prop_assert_eq!((both.v4, both.v6), expected);
        }
    }
}
