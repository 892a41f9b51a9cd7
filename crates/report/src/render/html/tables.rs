//! Tables of the page.

use super::element::{Element, el};
use crate::render::format::{self, NONE};
use crate::render::labels;
use crate::{PollTimes, Result, Trial};
use std::collections::BTreeMap;
use text_table::Table;

/// Maximum number of trials on a page.
const MAX_TRIALS: usize = 2000;

/// Converts a table to an element; columns of numbers are aligned to the right.
pub(super) fn element(table: &Table, caption: &str) -> Element {
    let right: Vec<bool> = (0..table.rows().first().map_or(0, Vec::len)).map(|c| table.is_numeric(c)).collect();
    let cell = |name: &'static str, c: usize, text: &str| {
        let cell = el(name).text(text);
        let cell = if name == "th" { cell.set("scope", "col") } else { cell };
        if right.get(c) == Some(&true) { cell.class("n") } else { cell }
    };
    let row = |name: &'static str, cells: &[String]| {
        el("tr").children(cells.iter().enumerate().map(|(c, text)| cell(name, c, text)))
    };
    let (heading, rows) = table.rows().split_at(1.min(table.rows().len()));
    let inner = el("table")
        .child(el("caption").child(el("span").text(caption)))
        .child(el("thead").children(heading.iter().map(|r| row("th", r))))
        .child(el("tbody").children(rows.iter().map(|r| row("td", r))));
    scrollable(inner)
}

/// Lets a wide table scroll.
pub(super) fn scrollable(table: Element) -> Element {
    el("div").class("scroll").set("tabindex", "0").set("role", "region").set("aria-label", "table").child(table)
}

/// Creates a collapsed section.
pub(super) fn details(summary: &str, content: impl IntoIterator<Item = Element>) -> Element {
    el("details").child(el("summary").text(summary)).children(content)
}

/// Returns the table of throughput bounds.
pub(super) fn bounds(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "result",
        "frame",
        "lower Mpps",
        "upper Mpps",
        "conditional Mpps",
        "L1 Gbit/s",
        "L2 Gbit/s",
        "10GbE Mpps",
        "limited by",
    ]);
    for (name, r) in labels::labels(results).into_iter().zip(results) {
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
            r.limited_by.name().to_owned(),
        ]);
    }
    table
}

/// Returns the table of latencies.
pub(super) fn latency(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "result",
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
    for (name, r) in labels::labels(results).into_iter().zip(results) {
        for l in &r.latency {
            table.row([
                name.clone(),
                r.traffic.frames.label(),
                labels::load(l.load_pps, l.share_of_throughput),
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

/// Returns the table of quantities with their spread; `None` without quantities.
pub(super) fn quantities(results: &[Result]) -> Option<Table> {
    let mut table =
        Table::new(&["result", "frame", "quantity", "value", "unit", "n", "min", "max", "standard deviation"]);
    for (name, r) in labels::labels(results).into_iter().zip(results) {
        for q in &r.quantities {
            let (scale, unit) = super::charts::curves::readable_unit(&q.unit);
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
                of(|s| s.stddev),
            ]);
        }
    }
    (table.rows().len() > 1).then_some(table)
}

/// Creates the collapsed table of trials.
pub(super) fn trials(results: &[Result]) -> Element {
    let mut table = Table::new(&[
        "result",
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
        "dropped by NFs",
        "tx full",
        "no buffer",
        "generator gap µs",
        "DUT gap µs",
        "generator off-CPU µs",
        "DUT off-CPU µs",
        "host interference",
    ]);
    let names = labels::labels(results);
    let all = names.iter().zip(results).flat_map(|(name, r)| r.trials.iter().map(move |t| (name, r, t)));
    for (name, r, t) in all.take(MAX_TRIALS) {
        table.row(trial(name, r, t));
    }
    let total: usize = results.iter().map(|r| r.trials.len()).sum();
    let mut caption =
        "Trials in order. Unsent packets were not sent in time by the generator; they count as lost, as do damaged \
         packets and packets too late to be distinguished from copies. Gaps are the longest times between two polls of \
         a port, off-CPU times those during which a thread was preempted; a trial with host interference lost packets \
         while a thread was preempted, and is no evidence about the DUT."
            .to_owned();
    if total > MAX_TRIALS {
        caption += &format!(" The first {MAX_TRIALS} of {total} are shown; the documents contain all.");
    }
    details(&format::plural(total, "trial", "trials"), [element(&table, &caption)])
}

fn trial(name: &str, r: &Result, t: &Trial) -> [String; 22] {
    let count = format::count;
    let time = |times: Option<PollTimes>, of: fn(PollTimes) -> u64| {
        times.map_or(NONE.to_owned(), |times| format::us(of(times) as f64))
    };
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
        count(t.dropped_by_nfs),
        count(t.tx_full),
        count(t.unsent_no_buffer),
        // documents before have the longer of both
        t.generator.map_or_else(|| format::us(t.poll_gap_max_ns as f64), |times| format::us(times.gap_max_ns as f64)),
        time(t.dut, |times| times.gap_max_ns),
        time(t.generator, |times| times.off_cpu_ns),
        time(t.dut, |times| times.off_cpu_ns),
        if t.host_interference { "yes" } else { "no" }.to_owned(),
    ]
}

/// A name, and the function that reads the fact from a result.
type Fact<'a> = (&'a str, fn(&Result) -> Option<String>);

/// Creates the tables of the environment and the calibration.
pub(super) fn environment(results: &[Result]) -> Vec<Element> {
    let facts: [Fact<'_>; 15] = [
        ("CPU", |r| Some(r.environment.cpu.clone())),
        ("time-stamp counter", |r| Some(format!("{} GHz", format::significant(r.environment.tsc_hz as f64 / 1e9, 5)))),
        ("hypervisor", |r| Some(r.environment.hypervisor.clone().unwrap_or_else(|| "none".to_owned()))),
        ("kernel", |r| Some(r.environment.kernel.clone())),
        ("DPDK", |r| r.environment.dpdk_version.clone()),
        ("huge pages", |r| Some(format::count(r.environment.hugepages))),
        ("packet memory", |r| Some(r.environment.memory.clone())),
        ("CPUs of generator and DUT", |r| cpus(&r.environment.cpus_used)),
        ("isolated CPUs", |r| Some(cpus(&r.environment.isolated_cpus).unwrap_or_else(|| "none".to_owned()))),
        ("steal time", |r| r.environment.steal_share.map(format::percent)),
        ("device under test", |r| Some(device(r))),
        ("parameters", |r| (!r.cell.is_empty()).then(|| cell(r))),
        ("ports", |r| (!r.dut.ports.is_empty()).then(|| ports(r))),
        ("traffic", |r| Some(traffic(r))),
        ("dates", |r| Some(r.environment.date.clone())),
    ];
    let mut rows: Vec<(String, Vec<String>)> = facts
        .iter()
        .map(|(name, fact)| ((*name).to_owned(), labels::distinct(results.iter().filter_map(fact))))
        .collect();
    let mut extra: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for (name, value) in results.iter().flat_map(|r| &r.environment.extra) {
        extra.entry(name).or_default().push(value.clone());
    }
    rows.extend(extra.into_iter().map(|(name, values)| (name.clone(), labels::distinct(values))));
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
    let mut out = vec![
        el("table").class("facts").child(el("caption").text("Host and conditions of the measurement.")).child(body),
    ];
    out.extend(calibration(results));
    out
}

fn cpus(cpus: &[u32]) -> Option<String> {
    (!cpus.is_empty()).then(|| labels::cpus(cpus))
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
    let profile = t.profile.as_ref().map_or(String::new(), |p| format!(", profile {} of {} s", p.name, p.duration_s));
    let tcp = t.tcp.as_ref().map_or(String::new(), |settings| format!(", connections {settings}"));
    let vary = if t.vary.is_empty() { String::new() } else { format!(", varying {}", t.vary.join(" ")) };
    format!("{}, {flows}, bursts of {}, {directions}{tcp}{vary}{trace}{profile}", t.protocol, t.burst)
}

/// Creates the table of the calibration.
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
    let mut known = std::collections::HashSet::new();
    rows.filter(|row| known.insert(row.clone())).for_each(|row| table.row(row));
    let caption = "The generator against a loopback. These values are not subtracted from the results.";
    (table.rows().len() > 1).then(|| element(&table, caption))
}

/// Lists the commands and configuration that repeat the measurement.
pub(super) fn reproduction(results: &[Result]) -> Vec<Element> {
    let mut out = Vec::new();
    let commands = labels::distinct(results.iter().filter_map(|r| r.tool.command.clone()));
    if commands.is_empty() {
        out.push(el("p").text("The results do not contain the command that produced them."));
    } else {
        out.push(el("pre").child(el("code").text(commands.join("\n"))));
    }
    let built = labels::distinct(results.iter().map(|r| format!("{} {}", r.tool.name, r.tool.version)));
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
