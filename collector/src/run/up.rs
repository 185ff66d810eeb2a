//! `tailwater up`: collector and agent on this machine as the two processes that they are. Owns finding, starting again and
//! stopping the agent; knows nothing of what it does.

use crate::run::config::Config;
use crate::run::server;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// The agent's program.
pub const AGENT: &str = "tailwater-agent";
/// An agent that ended is started again after this, and after twice as long each time up to 32 times.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// An agent that is asked to end gets this long; with the collector's own grace periods that is less than 5 s.
const AGENT_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Where the agent's program is: beside this one, else in PATH.
pub fn find_agent() -> Result<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(AGENT)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path).map(|folder| folder.join(AGENT)))
        .find(|file| file.is_file())
        .with_context(|| format!("{AGENT} is neither beside this program nor in PATH\n  remedy: build it with `cargo build --release -p tailwater-agent`, or install it"))
}

/// Runs both until `stop`.
pub async fn run(config: Config, stop: CancellationToken) -> Result<()> {
    if !config.grpc.is_local() || config.tls.is_some() || config.authority.is_some() {
        bail!(
            "`up` is for one machine: it needs a socket or a loopback address for --grpc, and neither [tls] nor [authority]\n  remedy: run `tailwater serve` and `tailwater-agent run` instead"
        );
    }
    let program = find_agent()?;
    println!("page: {}://{}", config.scheme(), config.http);
    let url = config.grpc.url();
    // The agent ends first, so that the collector takes its last windows.
    let (end_agent, end_collector) = (stop.child_token(), CancellationToken::new());
    let ended = end_collector.clone();
    let watched = end_agent.clone();
    let agent = tokio::spawn(async move {
        keep_agent(program, url, watched).await;
        ended.cancel();
    });
    let served = server::run(config, end_collector).await;
    end_agent.cancel();
    agent.await.context("the task that watches the agent")?;
    served
}

async fn keep_agent(program: PathBuf, url: String, stop: CancellationToken) {
    let mut failures = 0_u32;
    while !stop.is_cancelled() {
        let mut command = Command::new(&program);
        command.args(["run", "--collector", &url]).kill_on_drop(true);
        // SAFETY: prctl is async-signal-safe and touches nothing of the parent.
        unsafe {
            command.pre_exec(|| {
                // A collector that is killed takes its agent along.
                Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
            });
        }
        let started = command.spawn();
        match started {
            Ok(mut child) => tokio::select! {
                ended = child.wait() => match ended {
                    // Ctrl-C in a terminal reaches both at once.
                    _ if stop.is_cancelled() => return,
                    Ok(status) => tracing::error!("{AGENT} ended: {status}; `{AGENT} doctor` says what this machine allows"),
                    Err(e) => tracing::error!("{AGENT}: {e}"),
                },
                () = stop.cancelled() => return end(child).await,
            },
            Err(e) => tracing::error!("{}: {e}", program.display()),
        }
        let pause = RESTART_AFTER * 2_u32.pow(failures.min(5));
        failures += 1;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn end(mut child: Child) {
    // The child is not reaped yet, so the pid is still its own.
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        && let Err(e) = kill_process(pid, Signal::TERM)
    {
        tracing::warn!("asking {AGENT} to end failed: {e}");
    }
    if tokio::time::timeout(AGENT_ENDS_WITHIN, child.wait()).await.is_err() {
        tracing::warn!("{AGENT} did not end within {} s and is killed", AGENT_ENDS_WITHIN.as_secs());
        if let Err(e) = child.kill().await {
            tracing::warn!("kill {AGENT}: {e}");
        }
    }
}
