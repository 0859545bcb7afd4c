//! The standard `process_*` metrics, read from `/proc` at scrape time.
use std::fs;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// Clock ticks per second in `/proc/self/stat`: `USER_HZ`, fixed to 100 by the kernel's interface.
const USER_HZ: f64 = 100.0;

/// The process this code runs in.
#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: Option<f64>| match value {
            Some(value) => ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?),
            None => Ok(()),
        };
        gauge("process_resident_memory_bytes", "Resident memory", resident_bytes())?;
        gauge("process_open_fds", "Open file descriptors", open_fds())?;
        gauge(
            "process_start_time_seconds",
            "When the process started, in Unix seconds",
            start_time(),
        )?;
        if let Some(seconds) = cpu_seconds() {
            let metric = encoder.encode_descriptor(
                "process_cpu_seconds",
                "User and system time used",
                None,
                MetricType::Counter,
            )?;
            ConstCounter::new(seconds).encode(metric)?;
        }
        Ok(())
    }
}

/// The fields of `/proc/self/stat` after the command, which may hold blanks: index 0 is field 3.
fn stat() -> Option<Vec<String>> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn number(fields: &[String], index: usize) -> Option<f64> {
    fields.get(index)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    let stat = stat()?;
    Some((number(&stat, 11)? + number(&stat, 12)?) / USER_HZ)
}

fn start_time() -> Option<f64> {
    let ticks = number(&stat()?, 19)?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + ticks / USER_HZ)
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

fn open_fds() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the directory being read.
    u32::try_from(count.saturating_sub(1)).ok().map(f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_plausible_figures() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1e6));
        assert!(cpu_seconds().is_some_and(|seconds| seconds >= 0.0));
        assert!(open_fds().is_some_and(|fds| fds >= 3.0));
        assert!(start_time().is_some_and(|at| at > 1.6e9));
    }
}
