//! A program that is run for each message, with the incident's JSON on its standard input. No shell. It and all it started are one process
//! group, which is killed when the program ends or its time is over; the first part of what it says is kept for the log.

use crate::alert::config::Hook;
use crate::alert::message::{Content, Message};
use crate::send::http::DeliveryError;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command as Process};

/// What is kept of standard output and of standard error; the rest is read and forgotten, so that the program does not block.
const OUTPUT_BYTES_MAX: usize = 4096;
/// What was said before the end arrives within this.
const OUTPUT_WITHIN: Duration = Duration::from_millis(200);
/// `EX_TEMPFAIL` of sysexits.h; the codes around it say that trying again is useless.
const EX_TEMPFAIL: i32 = 75;

/// One program.
#[derive(Debug)]
pub struct Command {
    argv: Vec<String>,
    timeout: Duration,
}

/// The process group of a child, killed when this is dropped, whatever the reason.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // While any member lives, the group's number belongs to no other; if none does, this finds nobody (the numbers come round only
        // after all others were used).
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

impl Command {
    /// As configured.
    #[must_use]
    pub fn new(hook: &Hook) -> Self {
        Self { argv: hook.argv.clone(), timeout: hook.timeout() }
    }

    /// Runs it once. 0: delivered. 64 to 78 without 75 (sysexits.h): it never will be. Anything else: again later.
    pub async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let input = match &message.content {
            Content::Incident { incident, .. } => serde_json::to_vec(incident),
            Content::Summary { held, incidents } => {
                serde_json::to_vec(&json!({ "held": held, "incidents": incidents }))
            }
        };
        let mut input = input.map_err(|e| DeliveryError::Never(e.to_string()))?;
        input.push(b'\n');
        let (mut child, group) = self.spawn(message)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input may still do its work.
                let _ = stdin.write_all(&input).await;
            }
        };
        let (out, err) = (tokio::spawn(read(stdout)), tokio::spawn(read(stderr)));
        let run = async { tokio::join!(write, child.wait()).1 };
        let ended = tokio::time::timeout(self.timeout, run).await;
        drop(group); // what it left running holds its pipes open
        let said = tokio::time::timeout(OUTPUT_WITHIN, async {
            let (out, err) = tokio::join!(out, err);
            [err.unwrap_or_default(), out.unwrap_or_default()].join(" ").trim().to_owned()
        });
        let said = said.await.unwrap_or_default();
        let program = self.argv.first().map_or("", String::as_str);
        match ended {
            Err(_) => Err(DeliveryError::later(format!(
                "{program}: killed after {} s: {said}",
                self.timeout.as_secs()
            ))),
            Ok(Err(e)) => Err(DeliveryError::later(format!("{program}: {e}"))),
            Ok(Ok(status)) if status.success() => {
                tracing::debug!(id = %message.id, "{program}: {said}");
                Ok(())
            }
            Ok(Ok(status)) => {
                let why = format!("{program}: {status}: {said}");
                match status.code() {
                    Some(code @ 64..=78) if code != EX_TEMPFAIL => Err(DeliveryError::Never(why)),
                    _ => Err(DeliveryError::later(why)),
                }
            }
        }
    }

    fn spawn(&self, message: &Message) -> Result<(Child, Group), DeliveryError> {
        let Some((program, arguments)) = self.argv.split_first() else {
            return Err(DeliveryError::Never("argv is empty".into()));
        };
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let child = Process::new(program)
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .env("PATH", path)
            .env("TAILWATER_ALERT_ID", &message.id)
            .env("TAILWATER_ALERT_TYPE", message.what.name())
            .env("TAILWATER_ALERT_THREAD", &message.thread.id)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| DeliveryError::later(format!("{program}: {e}")))?;
        let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let group = group.ok_or_else(|| DeliveryError::later(format!("{program}: it has no pid")))?;
        Ok((child, Group(group)))
    }
}

/// Reads to the end, keeps the beginning as one line.
async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let room = OUTPUT_BYTES_MAX - kept.len();
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
    String::from_utf8_lossy(&kept).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::message::What;
    use crate::alert::message::tests::message;

    async fn run(script: &str, timeout_s: u64) -> Result<(), DeliveryError> {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let command = Command { argv, timeout: Duration::from_secs(timeout_s) };
        command.deliver(&message("01A", 2, What::Updated)).await
    }

    #[tokio::test]
    async fn it_gets_the_incident_and_its_exit_code_decides() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("in");
        let script = format!("cat > {0}; env > {0}.env; pwd >> {0}.env", file.display());
        run(&script, 10).await.unwrap();
        let got: tailwater_model::Incident = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(&got, message("01A", 2, What::Updated).about().unwrap());
        let env = std::fs::read_to_string(folder.path().join("in.env")).unwrap();
        assert!(
            env.contains("TAILWATER_ALERT_ID=01A.2\n") && env.contains("TAILWATER_ALERT_TYPE=updated\n"),
            "{env}"
        );
        assert!(!env.contains("CARGO") && env.ends_with("\n/\n"), "{env}");
        run("exit 0", 10).await.unwrap();
        let later = run("echo no luck >&2; exit 1", 10).await.unwrap_err();
        assert!(matches!(&later, DeliveryError::Later { why, .. } if why.contains("no luck")), "{later:?}");
        assert!(matches!(run("exit 75", 10).await, Err(DeliveryError::Later { .. })));
        assert!(matches!(run("exit 64", 10).await, Err(DeliveryError::Never(_))));
    }

    #[tokio::test]
    async fn what_it_says_is_bounded_and_its_children_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; yes | head -c 10000000; exit 1", file.display());
        let said = run(&script, 60).await.unwrap_err().to_string();
        assert!(said.len() < OUTPUT_BYTES_MAX + 200, "{}", said.len());
        let pid = std::fs::read_to_string(&file).unwrap();
        // A zombie that init has yet to collect is dead as well.
        let alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.contains("(sleep)") && !stat.contains(") Z")
        };
        while alive() {
            tokio::task::yield_now().await;
        }
        let killed = run("sleep 1000", 1).await.unwrap_err().to_string();
        assert!(killed.contains("killed after 1 s"), "{killed}");
    }
}
