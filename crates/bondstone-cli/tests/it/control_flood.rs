//! Clients that flood the control socket of a run.

use crate::common::gateway::accounted;
use crate::common::instance::{CHAIN, command, start};
use crate::common::{Scratch, Summary, alone};
use control::{Client, MAX_LINE_LEN, Request};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pairs of an interval without and one with a flood.
const PAIRS: usize = 4;
/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(600);

fn stats(client: &mut Client) -> Summary {
    Summary(client.call(&Request::Stats {}).expect("a client that reads its responses is answered"))
}

/// Connects again and again, sends bytes until the server accepts no more, and never reads.
fn flood(socket: &Path, bytes: &[u8], end: &AtomicBool, connections: &AtomicU64) {
    while !end.load(Ordering::Relaxed) {
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        connections.fetch_add(1, Ordering::Relaxed);
        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        while !end.load(Ordering::Relaxed) && stream.write_all(bytes).is_ok() {}
    }
}

/// Asks for the counts during an interval; returns the packets per second.
fn rate(client: &mut Client) -> f64 {
    let (start, first) = (Instant::now(), stats(client));
    let mut last = stats(client);
    while start.elapsed() < INTERVAL {
        std::thread::sleep(Duration::from_millis(20));
        last = stats(client);
    }
    let seconds = |of: &Summary| of.0["seconds"].as_f64().unwrap();
    let sent = last.number("/totals/sent") - first.number("/totals/sent");
    assert!(sent > 0, "the worker stands still");
    sent as f64 / (seconds(&last) - seconds(&first))
}

#[test]
fn a_flood_affects_neither_workers_nor_other_clients() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", CHAIN));
    let running = start(&dir, &edge, &[]);
    let socket = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let mut client = Client::connect(&socket).unwrap();
    // the clients are not to take time from the worker themselves
    let workers: Vec<usize> =
        stats(&mut client).0["workers"].as_object().unwrap().keys().map(|cpu| cpu.parse().unwrap()).collect();
    let mut others = CpuSet::new();
    runtime::allowed_cpus().into_iter().filter(|cpu| !workers.contains(cpu)).for_each(|cpu| others.set(cpu));
    let leave_worker_cpus = || {
        if others.count() > 0 {
            sched_setaffinity(None, &others).unwrap();
        }
    };

    let requests = b"{\"request\":\"stats\"}\n".repeat(100);
    let oversized = vec![b'x'; 2 * MAX_LINE_LEN];
    let malformed: Vec<u8> = (0..255).flat_map(|n| [b'{', n, b'"', b'\n']).collect();
    let deep = [b"[".repeat(10_000), vec![b'\n']].concat();
    let floods = [&requests[..], &requests, &oversized, &oversized, &malformed, &malformed, &deep, b"{"];
    let connections = AtomicU64::new(0);
    let mut ratios = vec![];
    for _ in 0..PAIRS {
        let quiet = rate(&mut client);
        let end = AtomicBool::new(false);
        let flooded = std::thread::scope(|scope| {
            // more than the server accepts at a time
            for bytes in floods.iter().cycle().take(2 * control::MAX_CLIENTS) {
                scope.spawn(|| {
                    leave_worker_cpus();
                    flood(&socket, bytes, &end, &connections);
                });
            }
            let rate = rate(&mut client);
            end.store(true, Ordering::Relaxed);
            rate
        });
        ratios.push(flooded / quiet);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    eprintln!("packets per second with a flood / without: {ratios:.3?}, {connections:?} connections");

    let counts = stats(&mut client);
    for count in ["requests", "invalid", "refused_clients"] {
        assert!(counts.number(&format!("/control/{count}")) > PAIRS as u64, "{count}: {}", counts.0["control"]);
    }
    drop(client);
    // a new client has a place as soon as the others are gone
    crate::common::sandboxed_run::until("a place", || command(&dir, &["stats"]).status == Some(0));
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let ended = running.end();
    let summary = ended.summary(0);
    accounted(&summary);
    assert_eq!(summary.number("/totals/dropped"), 0, "{}", summary.0);
    // messages about clients are limited
    let logged = ended.err.lines().filter(|line| line.starts_with("warning: ")).count();
    assert!(logged < 200, "{logged} warnings:\n{}", ended.err);
}
