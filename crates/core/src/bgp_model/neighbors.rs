//! The expected sessions of nodes, and the names that confd gives them.
use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr};

use super::{Classes, Fabric, Node};

/// The prefix of a session's name: confd names it by its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Of the node-to-node mesh.
    Mesh,
    /// Of a global BGPPeer.
    Global,
    /// Of another BGPPeer.
    Node,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Mesh, Self::Global, Self::Node];

    /// Returns the session with this address. Names of the mesh never contain a port; others
    /// contain the one that `listenPort` sets.
    #[must_use]
    pub fn protocol(self, address: IpAddr, port: Option<u16>) -> Protocol {
        Protocol { kind: self, address, port: port.filter(|_| self != Self::Mesh) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mesh => "Mesh",
            Self::Global => "Global",
            Self::Node => "Node",
        })
    }
}

/// A session, as confd names it at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Protocol {
    /// The kind of session.
    pub kind: Kind,
    /// The address of the other end.
    pub address: IpAddr,
    /// The port of the other end, if the name has it. Calico's own reports have none.
    pub port: Option<u16>,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.to_string().replace(['.', ':'], "_");
        write!(f, "{}_{address}", self.kind)?;
        self.port.map_or(Ok(()), |port| write!(f, "_port_{port}"))
    }
}

impl FromStr for Protocol {
    type Err = ();

    /// Reads a name; fails if it is not that of a session between nodes.
    fn from_str(name: &str) -> Result<Self, ()> {
        let (kind, rest) = name.split_once('_').ok_or(())?;
        let kind = Kind::ALL.into_iter().find(|known| known.to_string() == kind).ok_or(())?;
        let (address, port) = match rest.split_once("_port_") {
            Some((address, port)) => (address, Some(port.parse().map_err(|_| ())?)),
            None => (rest, None),
        };
        let v4 = || address.replace('_', ".").parse();
        let address = v4().or_else(|_| address.replace('_', ":").parse()).map_err(|_| ())?;
        Ok(Self { kind, address, port })
    }
}

/// Neighbors with which the same nodes should have a session of one kind.
#[derive(Clone, Debug)]
pub struct Neighbors<'f> {
    /// The kind of session.
    pub kind: Kind,
    /// The neighbors. A node among them has no session with itself.
    pub of: Vec<&'f Node>,
    /// The nodes that should have a session with each of them.
    pub by: Vec<&'f Node>,
}

impl Fabric {
    /// Returns all sessions, by both ends.
    #[must_use]
    pub fn neighbors(&self) -> Vec<Neighbors<'_>> {
        let mut members: Vec<Vec<&Node>> = vec![vec![]; self.classes.list.len()];
        for (node, &class) in self.nodes.iter().zip(&self.classes.of) {
            members[class].push(node);
        }
        let nodes = |classes: &[usize]| -> Vec<&Node> {
            classes.iter().flat_map(|&class| &members[class]).copied().collect()
        };
        let groups = self.classes.groups();
        let neighbors = |((kind, by), of): (&(Kind, Vec<usize>), &Vec<usize>)| Neighbors {
            kind: *kind,
            of: nodes(of),
            by: nodes(by),
        };
        groups.iter().map(neighbors).collect()
    }
}

impl Classes {
    /// Groups the classes with which the same classes have sessions of one kind.
    fn groups(&self) -> BTreeMap<(Kind, Vec<usize>), Vec<usize>> {
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let all = 0..self.list.len();
        for of in all.clone() {
            let mut by: [Vec<usize>; 3] = Default::default();
            for class in all.clone() {
                let session = self.session(class, of);
                let chosen = session.chosen.map(|(end, _)| end.global);
                let has = [session.mesh, chosen == Some(true), chosen == Some(false)];
                for (by, _) in by.iter_mut().zip(has).filter(|(_, has)| *has) {
                    by.push(class);
                }
            }
            for (kind, by) in Kind::ALL.into_iter().zip(by) {
                if !by.is_empty() {
                    groups.entry((kind, by)).or_default().push(of);
                }
            }
        }
        groups
    }
}
