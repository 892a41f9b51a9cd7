//! `bondstone plan --capacity`.

use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::Table;
use bench::capacity::{Capacity, Estimate};
use diagnostics::Diagnostics;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// A frame size at the rate of the ports.
#[derive(Serialize)]
struct Frame {
    frame: u64,
    line_rate_pps: f64,
    /// One VNF.
    one: Estimate,
    /// Ranges of the numbers of VNFs that forward the rate of all ports with the loss allowed.
    vnfs_at_line_rate: Vec<(u64, u64)>,
    /// As many VNFs as the ports can have.
    all: Estimate,
}

/// The server after a change.
#[derive(Serialize)]
struct Change {
    change: &'static str,
    /// Most VNFs that have a CPU each, or, with forwarding in the host, as many as the ports can have.
    vnfs: u64,
    /// Packets per second without loss of so many VNFs, by frame size.
    throughput_pps: Vec<f64>,
}

/// The estimates as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    file: String,
    server: &'a Capacity,
    vnfs_per_port: u64,
    vnfs_per_server: u64,
    frames: Vec<Frame>,
    throughput: Vec<Estimate>,
    changes: Vec<Change>,
}

/// Returns powers of two, the bounds, and the most VNFs.
fn numbers(server: &Capacity) -> Vec<u64> {
    let most = server.vnfs_at_most();
    let powers = (0..63).map(|n| 1 << n).take_while(|n| *n < most);
    let mut all: Vec<u64> = powers.chain([server.vnfs_of_port().max(1), server.vnfs_of_server(), most]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn changes(server: &Capacity) -> Vec<Change> {
    let frames = &server.traffic.frames;
    let change = |change, server: &Capacity| {
        let vnfs = server.vnfs_of_server();
        let throughput_pps = frames.iter().map(|frame| server.estimate(vnfs, *frame).throughput_pps).collect();
        Change { change, vnfs, throughput_pps }
    };
    let edited = |edit: fn(&mut Capacity)| {
        let mut changed = server.clone();
        edit(&mut changed);
        changed
    };
    let mut all = vec![
        change("none", server),
        change("one more CPU", &edited(|server| server.server.cpus += 1)),
        change("one more vNIC per port", &edited(|server| server.server.vnfs_per_port += 1)),
    ];
    if server.switch.cpus != 0 {
        let moved = edited(|server| {
            server.switch.cpus += 1;
            server.server.cpus += 1;
        });
        all.push(change("one more CPU for the switch", &moved));
    }
    let of_split = |split: &Capacity| frames.iter().filter_map(|frame| split.split_throughput(*frame)).collect();
    if server.split.is_some() {
        let (vnfs, throughput_pps) = (server.vnfs_at_most(), of_split(server));
        all.push(Change { change: "forwarding in one table of the host", vnfs, throughput_pps });
    }
    all
}

fn mpps(rate: f64) -> String {
    format!("{:.3}", rate / 1e6)
}

pub(super) fn run(file: &Path, json: bool) -> anyhow::Result<Exit> {
    let server = Capacity::read(file).map_err(Diagnostics)?;
    let of_frame = |frame: &u64| Frame {
        frame: *frame,
        line_rate_pps: server.line_rate(server.server.ports, *frame),
        one: server.estimate(1, *frame),
        vnfs_at_line_rate: server.vnfs_at_line_rate(*frame),
        all: server.estimate(server.vnfs_at_most(), *frame),
    };
    let frames: Vec<Frame> = server.traffic.frames.iter().map(of_frame).collect();
    let each = |vnfs: u64| server.traffic.frames.iter().map(move |frame| (vnfs, *frame));
    let throughput: Vec<Estimate> =
        numbers(&server).into_iter().flat_map(each).map(|(vnfs, frame)| server.estimate(vnfs, frame)).collect();
    let changes = changes(&server);
    let (vnfs_per_port, vnfs_per_server) = (server.vnfs_of_port(), server.vnfs_of_server());
    let mut out = stdout();
    if json {
        let file = file.display().to_string();
        let printed = Printed { file, server: &server, vnfs_per_port, vnfs_per_server, frames, throughput, changes };
        writeln!(out, "{}", serde_json::to_string_pretty(&printed)?)?;
        return Ok(Exit::Success);
    }
    writeln!(
        out,
        "VNFs with a CPU each: {vnfs_per_port} per port, min{{c/(d e), b}}; {vnfs_per_server} in all, min{{a b, c}}"
    )?;
    writeln!(out, "(a ports of b vNICs, e of them per socket; c CPUs of d sockets)\n")?;
    let loss = (server.traffic.loss * 1e8).round() / 1e6;
    writeln!(out, "at the rate of all ports, loss up to {loss} %:")?;
    let all = format!("loss of {}", server.vnfs_at_most());
    let mut table = Table::new(&["frame", "Mpps", "one VNF, Mpps", "VNFs", &all, "limited by"]);
    for Frame { frame, line_rate_pps, one, vnfs_at_line_rate, all } in &frames {
        let ranges: Vec<_> = vnfs_at_line_rate.iter().map(|(first, last)| format!("{first} to {last}")).collect();
        let ranges = if ranges.is_empty() { "none".to_owned() } else { ranges.join(", ") };
        let lost = format!("{:.1} %", all.loss_at_line_rate * 100.0);
        let [line, one] = [*line_rate_pps, one.throughput_pps].map(mpps);
        table.row([frame.to_string(), line, one, ranges, lost, all.limit.name().to_owned()]);
    }
    writeln!(out, "{table}\nthroughput without loss, Mpps:")?;
    let sizes: Vec<String> = server.traffic.frames.iter().map(|frame| format!("{frame} B")).collect();
    let heads = |first: &'static str| [first].into_iter().chain(sizes.iter().map(String::as_str)).collect::<Vec<_>>();
    let mut table = Table::new(&heads("VNFs"));
    for row in throughput.chunks(sizes.len()) {
        let vnfs = row.first().map_or(0, |estimate| estimate.vnfs);
        table.row([vnfs.to_string()].into_iter().chain(row.iter().map(|estimate| mpps(estimate.throughput_pps))));
    }
    writeln!(out, "{table}\nwith a change, as many VNFs as have a CPU each, Mpps:")?;
    let mut table = Table::new(&[vec!["change", "VNFs"], sizes.iter().map(String::as_str).collect()].concat());
    for Change { change, vnfs, throughput_pps } in changes {
        let rates = throughput_pps.into_iter().map(mpps);
        table.row([change.to_owned(), vnfs.to_string()].into_iter().chain(rates));
    }
    writeln!(out, "{table}")?;
    Ok(Exit::Success)
}
