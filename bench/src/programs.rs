//! The programs that a bench measures: the operator, and peers that take the same arguments.
use std::{
    path::{Path, PathBuf},
    process::Command,
};

use k8s_openapi::jiff::Timestamp;
use lab::{AuditEvent, ControlPlane};

use crate::ground::Operator;

/// The operator's name in tables.
pub const OURS: &str = "ours";

pub struct Program {
    /// Its name in tables; also its user, and a part of its Lease's name.
    pub name: String,
    path: PathBuf,
    /// Flags before `run`.
    flags: Vec<String>,
}

/// Returns the operator, then each peer that `BENCH_PEER` names, with its flags:
/// `BENCH_PEER="path,path -flag"`.
pub fn programs(ours: &Path) -> Vec<Program> {
    let ours = Program { name: OURS.to_owned(), path: ours.into(), flags: vec![] };
    let peers = std::env::var("BENCH_PEER").unwrap_or_default();
    std::iter::once(ours).chain(peers.split(',').filter_map(Program::peer)).collect()
}

/// Returns the numbers of nodes and objects of each row; `BENCH_ROWS=5000x1,1000x10` asks for other
/// ones.
pub fn rows(usual: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let asked = std::env::var("BENCH_ROWS").unwrap_or_default();
    let asked: Vec<_> = asked
        .split(',')
        .filter_map(|row| row.split_once('x'))
        .filter_map(|(nodes, watches)| Some((nodes.parse().ok()?, watches.parse().ok()?)))
        .collect();
    if asked.is_empty() { usual.to_vec() } else { asked }
}

impl Program {
    fn peer(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let path = PathBuf::from(words.next()?);
        let flags: Vec<_> = words.map(str::to_owned).collect();
        let name = format!("{}{}", path.file_stem()?.to_string_lossy(), flags.concat());
        Some(Self { name, path, flags })
    }

    /// Starts it as a user of its own: the API server tells whose requests are whose. `run` names
    /// the Lease: a killed program keeps its own.
    pub fn start(
        &self,
        plane: &ControlPlane,
        run: &str,
        args: &[&str],
    ) -> anyhow::Result<Operator> {
        let mut command = Command::new(&self.path);
        command.args(&self.flags);
        let kubeconfig = plane.kubeconfig_for(&self.name, &["system:masters"])?;
        let lease = format!("bench-{}-{run}", self.name);
        Operator::start_command(command, &kubeconfig, &lease, args)
    }

    /// Returns its requests since then, as the API server recorded them.
    pub fn requests(
        &self,
        plane: &ControlPlane,
        since: Timestamp,
    ) -> anyhow::Result<Vec<AuditEvent>> {
        let mut events = plane.audit_since(since)?;
        events.retain(|event| event.user == self.name);
        Ok(events)
    }
}

/// Returns how many of the requests are writes, without renewals of the Lease.
pub fn writes(requests: &[AuditEvent], wanted: impl Fn(&AuditEvent) -> bool) -> u32 {
    let writes = requests.iter().filter(|e| e.is_write() && !e.resource.starts_with("leases"));
    u32::try_from(writes.filter(|event| wanted(event)).count()).unwrap_or(u32::MAX)
}
