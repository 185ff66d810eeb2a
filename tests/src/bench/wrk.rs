//! The most that `wrk` gets out of an nginx on loopback, with and without the agent beside it: a server that does little, and a load that waits for
//! nobody. Owns both programs' command lines.

use crate::programs::daemons::{Daemon, free_port, wait_for};
use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Connections that are tried for the most: few keep two CPUs busy, many batch.
pub const CONNECTIONS: [usize; 3] = [16, 64, 256];

/// An nginx of its own on loopback that answers a kilobyte from memory. Ends with this value.
#[derive(Debug)]
pub struct Nginx {
    _daemon: Daemon,
    address: SocketAddr,
}

impl Nginx {
    /// With its files in `folder`.
    pub fn start(folder: &Path) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let root = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("  {what}_temp_path {root}/{what};\n"))
            .concat();
        let configuration = format!(
            "user root;\ndaemon off;\nmaster_process off;\npid {root}/pid;\nerror_log {root}/error.log;\n\
             events {{ worker_connections 4096; }}\nhttp {{\n{temporary}  access_log off;\n  keepalive_requests 1000000000;\n  \
             server {{\n    listen {address} backlog=4096;\n    location / {{ return 200 \"{}\"; }}\n  }}\n}}\n",
            "r".repeat(1024)
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, configuration)?;
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-e").arg(folder.join("start.log")).arg("-c").arg(&file);
        let daemon = Daemon::spawn("nginx (make lab-deps installs it)", command, folder.join("nginx.log"))?;
        wait_for("nginx to listen", Duration::from_secs(10), || {
            Ok(TcpStream::connect(address).ok().map(drop))
        })?;
        Ok(Self { _daemon: daemon, address })
    }

    /// Requests a second that `wrk` gets answered over so many connections, which it keeps.
    pub fn rate(&self, connections: usize, length: Duration) -> Result<f64> {
        let output = Command::new("wrk")
            .args(["-t", "1", "-c", &connections.to_string(), "-d", &format!("{}s", length.as_secs().max(1))])
            .arg(format!("http://{}/", self.address))
            .output()
            .context("wrk (make lab-deps installs it)")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "wrk: {} {said}", String::from_utf8_lossy(&output.stderr));
        ensure!(!said.contains("Non-2xx"), "wrk: not all were answered with 200: {said}");
        let rate = said.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        rate.context("wrk says how many requests it made a second")?
            .trim()
            .parse()
            .context("a number of wrk's")
    }

    /// The number of connections with which it reaches most.
    pub fn most(&self, length: Duration) -> Result<usize> {
        let rates = CONNECTIONS.map(|connections| Ok((self.rate(connections, length)?, connections)));
        let rates: Vec<(f64, usize)> = rates.into_iter().collect::<Result<_>>()?;
        let best = rates.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        Ok(best.map_or(CONNECTIONS[0], |(_, connections)| *connections))
    }
}
