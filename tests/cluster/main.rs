//! Scenarios on real nodes: kubelets, packets, a Prometheus run by prometheus-operator, and the
//! operator as a pod from its image.
//!
//! All of one process share a cluster, one after the other. The first test starts it, and it is
//! taken down at the end, whatever the results. Processes may run beside each other: clusters share
//! nothing.
mod agents;
mod broken;
mod insight;
mod kubelets;
mod monitoring;
mod newcomers;
mod objects;
mod pods;
mod prober;
mod probing;
mod reserving;
mod scenarios;
mod stage;
mod swarming;
mod upgrading;

use std::{process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Failed, Trial};
use stage::Stage;
use tokio::sync::Mutex;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They share the cluster.
    arguments.test_threads = Some(1);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let stage = Arc::new(Mutex::new(None::<Stage>));
    let trials = scenarios::ALL.iter().map(|scenario| {
        let (runtime, stage) = (Arc::clone(&runtime), Arc::clone(&stage));
        Trial::test(scenario.name, move || {
            runtime.block_on(async {
                let mut stage = stage.lock().await;
                if stage.is_none() {
                    *stage = Some(Stage::set().await.map_err(failed)?);
                }
                match &*stage {
                    Some(stage) => scenario.play(stage).await.map_err(failed),
                    None => Err("no stage".into()),
                }
            })
        })
        .with_ignored_flag(!is_root())
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let struck = runtime.block_on(async {
        match stage.lock().await.take() {
            Some(stage) => stage.strike().await,
            None => Ok(()),
        }
    });
    if let Err(error) = struck {
        eprintln!("the cluster could not be taken down: {error:#}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// Namespaces, links and mounts need root.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}
