//! DPDK's own forwarder, as a process, on two rings.

use crate::sample::{Cost, cost};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Times that its figures are read.
const WINDOWS: usize = 60;

/// Cycles per packet of testpmd's `io` on two `net_ring` ports on the same CPU; `None` where it is not there or
/// does not start.
pub(crate) fn io(core: usize, cpus: &[usize]) -> anyhow::Result<Option<Cost>> {
    let other = cpus.iter().copied().find(|c| *c != core).unwrap_or(core);
    let child = Command::new("dpdk-testpmd")
        .args([
            &format!("--lcores=0@{other},1@{core}"),
            "--main-lcore=0",
            "--in-memory",
            "--no-pci",
            "--no-telemetry",
            "--vdev=net_ring0",
            "--vdev=net_ring1",
        ])
        .args([
            "--",
            "-i",
            "--nb-cores=1",
            "--forward-mode=io",
            "--record-core-cycles",
            "--no-mlockall",
            "--total-num-mbufs=16384",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut stdin = child.stdin.take().expect("piped");
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    let talk = std::thread::spawn(move || -> std::io::Result<()> {
        std::thread::sleep(Duration::from_millis(1500));
        writeln!(stdin, "start tx_first 8")?;
        for _ in 0..WINDOWS {
            writeln!(stdin, "clear fwd stats all")?;
            std::thread::sleep(Duration::from_millis(40));
            writeln!(stdin, "show fwd stats all")?;
        }
        writeln!(stdin, "stop\nquit")
    });
    let figure = |line: &str| line.split("CPU cycles/packet=").nth(1)?.split_whitespace().next()?.parse::<f64>().ok();
    let mut samples: Vec<f64> = stdout.lines().map_while(Result::ok).filter_map(|l| figure(&l)).collect();
    let said = talk.join();
    child.wait()?;
    match said {
        Ok(Ok(())) if samples.len() > WINDOWS / 2 => Ok(Some(cost(&mut samples))),
        _ => Ok(None),
    }
}
