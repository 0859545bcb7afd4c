//! The machine-wide settings that kubelets change or need changed, saved before the first cluster and restored
//! after the last.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace;

/// The settings a kubelet writes (its flag `--protect-kernel-defaults` lists them), and one that it needs.
const CHANGED: [&str; 7] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    WATCHES,
];
/// Each kubelet, and what it starts, makes some; the usual limit is that of seven nodes.
const WATCHES: &str = "fs/inotify/max_user_instances";
const ENOUGH: u32 = 1024;

fn file() -> PathBuf {
    workspace::run().join("sysctls.json")
}

fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

/// Saves the settings, unless an earlier cluster did.
pub(super) fn save() -> Result<()> {
    let file = file();
    if file.exists() {
        return Ok(());
    }
    let values: BTreeMap<&str, String> = CHANGED
        .iter()
        .filter_map(|name| Some((*name, fs::read_to_string(path(name)).ok()?)))
        .collect();
    fs::write(&file, serde_json::to_vec_pretty(&values)?)
        .with_context(|| format!("writing {}", file.display()))?;
    if values.get(WATCHES).is_some_and(|now| now.trim().parse().is_ok_and(|now: u32| now < ENOUGH))
    {
        fs::write(path(WATCHES), ENOUGH.to_string())
            .with_context(|| format!("raising {WATCHES}"))?;
    }
    Ok(())
}

/// Puts the saved settings back.
pub(super) fn restore() -> Result<()> {
    let file = file();
    let Ok(text) = fs::read_to_string(&file) else { return Ok(()) };
    let values: BTreeMap<String, String> = serde_json::from_str(&text)?;
    for (name, value) in values {
        let path = path(&name);
        // Only values that differ: some machines refuse the write itself.
        if fs::read_to_string(&path).is_ok_and(|now| now != value) {
            fs::write(&path, &value)
                .with_context(|| format!("putting {name} back to {}", value.trim()))?;
        }
    }
    Ok(fs::remove_file(file)?)
}
