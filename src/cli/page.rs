//! `page`: the leader's status page in a browser on this machine.
use anyhow::Context;
use clap::Args;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    cluster::{ClusterArgs, OperatorArgs},
    output,
};
use crate::inspect::leader;

/// Flags of `page`.
#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Port of this machine, on the loopback address, at which the page is shown. 0: any free one.
    #[arg(short, long, value_name = "PORT", default_value_t = 8082)]
    port: u16,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

/// Serves until it is interrupted.
pub(super) fn run(args: &PageArgs) -> anyhow::Result<()> {
    output::block_on(async {
        let (client, place) = (args.cluster.access().reading().await?, args.operator.place());
        let leader = leader::led(&client, &place).await.map_err(anyhow::Error::msg)?;
        let listener = TcpListener::bind(("127.0.0.1", args.port)).await;
        let listener = listener.with_context(|| format!("--port {}", args.port))?;
        let address = listener.local_addr().context("address")?;
        output::text(&format!(
            "http://{address}/ shows the status page of {}, until you press Ctrl-C\n",
            leader.holder
        ))?;
        let mut connections = JoinSet::new();
        loop {
            let (connection, _) = listener.accept().await.context("connection")?;
            let (client, place) = (client.clone(), place.clone());
            connections.spawn(async move {
                if let Err(why) = leader::carry(&client, &place, connection).await {
                    eprintln!("error: {why}");
                }
            });
            while connections.try_join_next().is_some() {}
        }
    })
}
