//! Tables of the page.

use super::element::{Element, el};
use crate::format::{self, NONE};
use crate::table::Table;
use crate::{Result, Trial, words};
use std::collections::BTreeMap;

/// Trials that a page shows.
const TRIALS: usize = 2000;

/// A table of cells as an element; columns of numbers stand right.
pub(super) fn element(table: &Table, caption: &str) -> Element {
    let right: Vec<bool> = (0..table.rows.first().map_or(0, Vec::len)).map(|c| table.is_numbers(c)).collect();
    let cell = |name: &'static str, c: usize, text: &str| {
        let cell = el(name).text(text);
        let cell = if name == "th" { cell.set("scope", "col") } else { cell };
        if right.get(c) == Some(&true) { cell.class("n") } else { cell }
    };
    let row = |name: &'static str, cells: &[String]| {
        el("tr").children(cells.iter().enumerate().map(|(c, text)| cell(name, c, text)))
    };
    let (heading, rows) = table.rows.split_at(1.min(table.rows.len()));
    let inner = el("table")
        .child(el("caption").text(caption))
        .child(el("thead").children(heading.iter().map(|r| row("th", r))))
        .child(el("tbody").children(rows.iter().map(|r| row("td", r))));
    el("div").class("scroll").set("tabindex", "0").set("role", "region").set("aria-label", "table").child(inner)
}

/// What is folded away until asked for.
pub(super) fn details(summary: &str, content: impl IntoIterator<Item = Element>) -> Element {
    el("details").child(el("summary").text(summary)).children(content)
}

/// The bounds of the throughput.
pub(super) fn bounds(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "what",
        "frame",
        "lower Mpps",
        "upper Mpps",
        "conditional Mpps",
        "L1 Gbit/s",
        "L2 Gbit/s",
        "10GbE Mpps",
    ]);
    for (name, r) in words::names(results).into_iter().zip(results) {
        let mpps = |pps: Option<f64>| pps.map_or(NONE.to_owned(), format::mpps);
        table.row([
            name,
            r.traffic.frames.label(),
            format::mpps(r.summary.lower_pps),
            mpps(r.summary.upper_pps),
            mpps(r.summary.conditional_pps),
            format::gbps(r.traffic.l1_bps(r.summary.lower_pps)),
            format::gbps(r.traffic.l2_bps(r.summary.lower_pps)),
            mpps(Some(r.traffic.line_pps()).filter(|l| l.is_finite())),
        ]);
    }
    table
}

/// Every measurement of latency.
pub(super) fn latency(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "what",
        "frame",
        "load",
        "load Mpps",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "samples",
        "lost",
    ]);
    let us = |ns: Option<f64>| ns.map_or(NONE.to_owned(), format::us);
    for (name, r) in words::names(results).into_iter().zip(results) {
        for l in &r.latency {
            table.row([
                name.clone(),
                r.traffic.frames.label(),
                words::load(l),
                format::mpps(l.load_pps),
                us(l.p50()),
                us(l.p99()),
                us(l.p999()),
                format::us(l.max_ns),
                format::count(l.samples),
                format::count(l.lost),
            ]);
        }
    }
    table
}

/// What the methods come to, with how far single values lie apart; none when there is nothing.
pub(super) fn quantities(results: &[Result]) -> Option<Table> {
    let mut table = Table::new(&["what", "frame", "quantity", "value", "unit", "n", "smallest", "largest", "sigma"]);
    for (name, r) in words::names(results).into_iter().zip(results) {
        for q in &r.quantities {
            let (scale, unit) = super::curves::human(&q.unit);
            let number = |x: f64| format::significant(x * scale, 5);
            let of = |f: fn(&crate::Spread) -> f64| q.spread.as_ref().map_or(NONE.to_owned(), |s| number(f(s)));
            table.row([
                name.clone(),
                r.traffic.frames.label(),
                q.name.clone(),
                number(q.value),
                unit.to_owned(),
                q.spread.map_or("1".to_owned(), |s| format::count(s.samples)),
                of(|s| s.min),
                of(|s| s.max),
                of(|s| s.sigma),
            ]);
        }
    }
    (table.rows.len() > 1).then_some(table)
}

/// Every trial, folded away.
pub(super) fn trials(results: &[Result]) -> Element {
    let mut table = Table::new(&[
        "what",
        "frame",
        "load Mpps",
        "s",
        "intended",
        "sent",
        "unsent",
        "received",
        "lost",
        "loss",
        "duplicate",
        "reordered",
        "corrupt",
        "late",
        "gap µs",
        "machine",
    ]);
    let names = words::names(results);
    let all = names.iter().zip(results).flat_map(|(name, r)| r.trials.iter().map(move |t| (name, r, t)));
    for (name, r, t) in all.take(TRIALS) {
        table.row(trial(name, r, t));
    }
    let total: usize = results.iter().map(|r| r.trials.len()).sum();
    let mut caption =
        "Trials in the order made. Unsent packets are those the generator could not send in time; they count \
        as lost, and so do damaged ones and those so late that they may be copies. Gap is the longest time that a port was left alone; trials marked as the machine's are no evidence."
            .to_owned();
    if total > TRIALS {
        caption += &format!(" Here are the first {TRIALS} of {total}; all are in the documents.");
    }
    details(&format::plural(total, "trial", "trials"), [element(&table, &caption)])
}

fn trial(name: &str, r: &Result, t: &Trial) -> [String; 16] {
    let count = format::count;
    [
        name.to_owned(),
        r.traffic.frames.label(),
        format::mpps(t.load_pps),
        format::significant(t.duration_s, 4),
        count(t.intended),
        count(t.sent),
        count(t.unsent),
        count(t.received),
        count(t.lost),
        format::percent(t.loss_ratio()),
        count(t.duplicate),
        count(t.reordered),
        count(t.corrupt),
        count(t.late),
        format::us(t.poll_gap_max_ns as f64),
        if t.machine { "yes" } else { "no" }.to_owned(),
    ]
}

/// A named fact of a result.
type Fact<'a> = (&'a str, fn(&Result) -> Option<String>);

/// Where it was measured, and what the generator does there by itself.
pub(super) fn environment(results: &[Result]) -> Vec<Element> {
    let facts: [Fact<'_>; 15] = [
        ("CPU", |r| Some(r.environment.cpu.clone())),
        ("time-stamp counter", |r| Some(format!("{} GHz", format::significant(r.environment.tsc_hz as f64 / 1e9, 5)))),
        ("hypervisor", |r| Some(r.environment.hypervisor.clone().unwrap_or_else(|| "none".to_owned()))),
        ("kernel", |r| Some(r.environment.kernel.clone())),
        ("DPDK", |r| r.environment.dpdk_version.clone()),
        ("huge pages", |r| Some(format::count(r.environment.hugepages))),
        ("packets kept in", |r| Some(r.environment.memory.clone())),
        ("generator and device ran on", |r| cpus(&r.environment.cpus_used)),
        ("isolated from other programs", |r| {
            Some(cpus(&r.environment.isolated_cpus).unwrap_or_else(|| "no CPU".to_owned()))
        }),
        ("time given to others", |r| r.environment.steal_share.map(format::percent)),
        ("device under test", |r| Some(device(r))),
        ("parameters", |r| (!r.cell.is_empty()).then(|| cell(r))),
        ("ports", |r| (!r.dut.ports.is_empty()).then(|| ports(r))),
        ("traffic", |r| Some(traffic(r))),
        ("dates", |r| Some(r.environment.date.clone())),
    ];
    let mut rows: Vec<(String, Vec<String>)> = facts
        .iter()
        .map(|(name, fact)| ((*name).to_owned(), words::distinct(results.iter().filter_map(fact))))
        .collect();
    let mut more: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for (name, value) in results.iter().flat_map(|r| &r.environment.more) {
        more.entry(name).or_default().push(value.clone());
    }
    rows.extend(more.into_iter().map(|(name, values)| (name.clone(), words::distinct(values))));
    rows.retain(|(_, values)| !values.is_empty());
    let row = |(name, values): &(String, Vec<String>)| {
        let shown = if name == "dates" && values.len() > 2 {
            let mut dates = values.clone();
            dates.sort();
            format!("{} to {}", dates[0], dates[dates.len() - 1])
        } else {
            values.join("; ")
        };
        el("tr").child(el("th").set("scope", "row").text(name)).child(el("td").text(shown))
    };
    let body = el("tbody").children(rows.iter().map(row));
    let mut out = vec![el("table").class("facts").child(el("caption").text("As the tool found it.")).child(body)];
    out.extend(calibration(results));
    out
}

fn cpus(cpus: &[u32]) -> Option<String> {
    (!cpus.is_empty()).then(|| words::cpus(cpus))
}

fn device(r: &Result) -> String {
    let d = &r.dut;
    let mut text = d.label();
    for (name, value) in [("version", &d.version), ("file", &d.file), ("isolation", &d.isolation)] {
        if let Some(value) = value {
            text += &format!(", {name} {value}");
        }
    }
    if let Some(cores) = cpus(&d.cores) {
        text += &format!(", on {cores}");
    }
    text
}

fn cell(r: &Result) -> String {
    r.cell.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

fn ports(r: &Result) -> String {
    let port = |p: &crate::Port| match &p.driver {
        Some(driver) => format!("{} = {} ({driver})", p.name, p.device),
        None => format!("{} = {}", p.name, p.device),
    };
    r.dut.ports.iter().take(16).map(port).collect::<Vec<_>>().join(", ")
}

fn traffic(r: &Result) -> String {
    let t = &r.traffic;
    let directions = if t.directions == 2 { "both directions" } else { "one direction" };
    let flows = format::count(t.flows);
    let flows = if t.flows == 1 { "1 flow".to_owned() } else { format!("{flows} flows") };
    let trace = t.trace_sha256.as_ref().map_or(String::new(), |hash| format!(", trace {}…", format::short(hash, 13)));
    let trace = trace.replace("……", "…");
    let profile = t.profile.as_ref().map_or(String::new(), |p| format!(", profile {} of {} s", p.name, p.seconds));
    format!("{}, {flows}, bursts of {}, {directions}{trace}{profile}", t.protocol, t.burst)
}

/// What the generator does against a loopback.
fn calibration(results: &[Result]) -> Option<Element> {
    let mut table = Table::new(&["frame", "Mpps", "load Mpps", "p50 µs", "p99 µs", "p99.9 µs"]);
    let rows = results.iter().filter_map(|r| r.calibration.as_ref().map(|c| (r, c))).map(|(r, c)| {
        let us = format::us;
        let mpps = format::mpps;
        [
            r.traffic.frames.label(),
            mpps(c.loopback_lower_pps),
            mpps(c.load_pps),
            us(c.p50_ns),
            us(c.p99_ns),
            us(c.p999_ns),
        ]
    });
    let mut seen = std::collections::HashSet::new();
    rows.filter(|row| seen.insert(row.clone())).for_each(|row| table.row(row));
    let caption = "The generator by itself, against a loopback. Nothing of it is subtracted.";
    (table.rows.len() > 1).then(|| element(&table, caption))
}

/// What makes the measurement again: commands, configuration.
pub(super) fn again(results: &[Result]) -> Vec<Element> {
    let mut out = Vec::new();
    let commands = words::distinct(results.iter().filter_map(|r| r.tool.command.clone()));
    if commands.is_empty() {
        out.push(el("p").text("The results do not tell the command that made them."));
    } else {
        out.push(el("pre").child(el("code").text(commands.join("\n"))));
    }
    let built = words::distinct(results.iter().map(|r| format!("{} {}", r.tool.name, r.tool.version)));
    out.push(el("p").class("muted").text(format!("With {}.", built.join("; "))));
    let chains: BTreeMap<String, &String> = results
        .iter()
        .filter_map(|r| {
            let chain = r.dut.chain.as_ref()?;
            let name = r.dut.file.clone().unwrap_or_else(|| "configuration".to_owned());
            let hash = r.dut.chain_sha256.as_ref().map_or(String::new(), |hash| format!(", SHA-256 {hash}"));
            Some((format!("{name}{hash}"), chain))
        })
        .collect();
    let scripts: BTreeMap<String, &String> = results
        .iter()
        .filter_map(|r| {
            let profile = r.traffic.profile.as_ref()?;
            Some((format!("{}, SHA-256 {}", profile.name, profile.sha256), profile.script.as_ref()?))
        })
        .collect();
    out.extend(scripts.into_iter().map(|(name, script)| details(&name, [el("pre").child(el("code").text(script))])));
    out.extend(chains.into_iter().map(|(name, chain)| details(&name, [el("pre").child(el("code").text(chain))])));
    out
}
