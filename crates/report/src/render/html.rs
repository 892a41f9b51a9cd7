//! The report as a self-contained HTML page without scripts.

mod charts;
mod element;
mod figures;
mod reproduction;
mod tables;

use super::format::{self, plural};
use super::{labels, notes};
use crate::Result;
use charts::grid::Grid;
use charts::{anatomy, box_plot, curves, cycles, latency, scaling, streams, throughput};
use element::{Element, el};
#[cfg(feature = "png")]
pub use figures::png;
pub use figures::{Figure, figures};
pub use reproduction::reproduction_html;
use text_table::Table;

/// Renders results as an HTML page with embedded style and figures, without scripts or external resources. All strings
/// of results are escaped.
pub fn html(results: &[Result]) -> String {
    let studies = labels::distinct(results.iter().map(|r| r.study.clone()));
    let title = match studies.as_slice() {
        [] => "No results".to_owned(),
        few if few.len() <= 3 => few.join(", "),
        [first, ..] => format!("{first} and {} more", studies.len() - 1),
    };
    document(&title, body(&title, results))
}

fn document(title: &str, body: Element) -> String {
    let page = el("html").set("lang", "en").child(head(title)).child(body);
    let mut out = "<!DOCTYPE html>\n".to_owned();
    page.write(&mut out);
    out.push('\n');
    out
}

fn head(title: &str) -> Element {
    // second line of defence: even unescaped markup could not load or run anything
    let policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
    el("head")
        .child(el("meta").set("charset", "utf-8"))
        .child(el("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1"))
        .child(el("meta").set("http-equiv", "Content-Security-Policy").set("content", policy))
        .child(el("title").text(format!("{title} – Bondstone report")))
        .child(el("style").text(STYLE))
}

/// Contains no `&`, `<` or `>`, so that it is valid in HTML and XML.
const STYLE: &str = include_str!("html/style.css");

fn body(title: &str, results: &[Result]) -> Element {
    let header =
        el("header").child(el("h1").text(title)).children(headline(results).map(|s| el("p").class("lead").text(s)));
    let mut header = header.children(conditions(results).map(|s| el("p").text(s)));
    header =
        header.children(notes::verdicts(results).iter().map(|verdict| el("p").text(format!("Verdict: {verdict}."))));
    header = header.children(notes::goals(results).iter().map(|goal| el("p").text(format!("Goal: {goal}."))));
    let Measurements { main, further } = measurements(results);
    let main = el("main").children(main).children(further).children(origin(results));
    el("body").child(header).child(main).child(footer(results))
}

/// Returns the results of methods that measure or set a rate; all results if there are none.
fn with_rate(results: &[Result]) -> Vec<Result> {
    const METHODS_WITHOUT_RATE: [&str; 14] = [
        "receive-rate",
        "latency",
        "loss",
        "back-to-back",
        "recovery",
        "reset",
        "delay-variation",
        "soak",
        "changes",
        "connections",
        "concurrent-connections",
        "address-table",
        "learning-rate",
        "profile",
    ];
    let has_rate = |r: &&Result| !METHODS_WITHOUT_RATE.contains(&&*r.method.name);
    let rated: Vec<Result> = results.iter().filter(has_rate).cloned().collect();
    if rated.is_empty() { results.to_vec() } else { rated }
}

/// Summarises the throughput: of each series, the result with the smallest frames.
fn headline(results: &[Result]) -> Option<String> {
    let rated = with_rate(results);
    let latest = box_plot::latest(&rated);
    let grid = Grid::new(latest.as_deref().unwrap_or(&rated));
    let mut first: Vec<_> = grid.cells.clone();
    first.sort_by_key(|&(series, category, _)| (series, category));
    first.dedup_by_key(|cell| cell.0);
    let sentences: Vec<String> = first
        .iter()
        .take(3)
        .map(|&(series, category, r)| {
            let pps = r.summary.lower_pps;
            let frames = labels::frames(&r.traffic.frames);
            let mut name = grid.series[series].clone();
            if grid.is_parameter {
                name += &format!(", {}", grid.categories[category].name);
            }
            if r.method.name == "profile" {
                return profile_summary(&name, r);
            }
            if let Some(count) = count_summary(r) {
                return format!("{name}: {count}");
            }
            if pps == 0.0 {
                return format!("{name}: no load with frames of {frames} met the goal");
            }
            let share = format::percent(pps / r.traffic.line_pps());
            format!("{name}: {} with frames of {frames}, {share} of 10-Gigabit Ethernet", format::pps(pps))
        })
        .collect();
    let more = first.len().saturating_sub(3);
    let more = if more > 0 { format!("; and {more} more below") } else { String::new() };
    (!sentences.is_empty()).then(|| format!("{}{more}.", sentences.join("; ")))
}

/// Summarises the result of a profile.
fn profile_summary(name: &str, r: &Result) -> String {
    let offered = r.trials.first().map_or(0.0, |trial| trial.load_pps);
    let lost = r.trials.first().map_or(0.0, crate::Trial::loss_ratio);
    let frames = labels::frames(&r.traffic.frames);
    format!("{name}: profile {frames}, {} on average, {} lost", format::pps(offered), format::percent(lost))
}

/// Summarises the result of a method that counts connections or addresses.
fn count_summary(r: &Result) -> Option<String> {
    let value = |name: &str| Some(format::count(r.quantity(name)?.value as u64));
    match &*r.method.name {
        "connections" => Some(format!("{} connections per second", value("connections")?)),
        "concurrent-connections" => Some(format!("{} concurrent connections", value("concurrent connections")?)),
        "address-table" => Some(format!("{} MAC addresses learned", value("addresses learned")?)),
        "learning-rate" => Some(format!("{} MAC addresses learned per second", value("addresses learned")?)),
        _ => None,
    }
}

/// Summarises DUT, tool, host and date.
fn conditions(results: &[Result]) -> Option<String> {
    let last = results.iter().max_by_key(|r| r.environment.unix_seconds())?;
    let tools = labels::distinct(results.iter().map(|r| format!("{} {}", r.tool.name, r.tool.version)));
    let cpus = labels::distinct(results.iter().map(|r| r.environment.cpu.clone()));
    let all: Vec<&Result> = results.iter().collect();
    let devices = labels::distinct(results.iter().map(|r| r.dut.label()));
    let day = last.environment.date.split('T').next().unwrap_or_default();
    Some(format!(
        "Device under test: {}. Measured with frames of {} by {} on {}, {day}.",
        format::short(&devices.join(", "), 200),
        labels::frame_sizes(&all),
        format::short(&tools.join(", "), 120),
        format::short(&cpus.join(", "), 200),
    ))
}

fn notes_box(results: &[Result]) -> Option<Element> {
    let notes = notes::notes(results);
    (!notes.is_empty()).then(|| {
        let heading = format!("{} on the validity of these numbers", plural(notes.len(), "note", "notes"));
        let list = el("ul").children(notes.iter().map(|w| el("li").text(w)));
        el("aside").class("warning").set("role", "note").child(tables::details(&heading, [list]))
    })
}

/// Tables and figures of results.
#[derive(Default)]
struct Measurements {
    /// Throughput and latency.
    main: Vec<Element>,
    /// The others.
    further: Vec<Element>,
}

/// Returns the tables and figures of results.
fn measurements(results: &[Result]) -> Measurements {
    if results.is_empty() {
        return Measurements::default();
    }
    let rated = with_rate(results);
    let (latest_rated, latest_all) = (box_plot::latest(&rated), box_plot::latest(results));
    let (with_rate, shown) = (latest_rated.as_deref().unwrap_or(&rated), latest_all.as_deref().unwrap_or(results));
    let grid = Grid::new(with_rate);
    let mut main = vec![section("Results", [tables::element(&super::tables::throughput(results), RESULTS)])];
    main.extend(notes_box(results));
    let latest = if latest_rated.is_some() { " Of repeated measurements, the latest is shown." } else { "" };
    let mut n = 0;
    let mut figure = |drawings: Vec<Element>, caption: &str, latest: &str, numbers: &Table| {
        if drawings.is_empty() {
            return None;
        }
        n += 1;
        let caption = el("figcaption")
            .child(el("b").text(format!("Figure {n}.")))
            .text(format!(" {caption}{latest}"))
            .child(tables::details("Data", [tables::element(numbers, &format!("Data of figure {n}."))]));
        Some(el("figure").children(drawings).child(caption))
    };
    main.extend(figure(throughput::drawings(&grid), THROUGHPUT, latest, &tables::bounds(with_rate)));
    for (name, drawings, numbers) in scaling::drawings(with_rate) {
        main.extend(figure(drawings, &format!("Throughput over {name}: lower bounds."), latest, &numbers));
    }
    main.extend(figure(box_plot::drawings(&rated), REPETITIONS, "", &box_plot::table(&rated)));
    main.extend(figure(latency::drawings(&grid), LATENCY, latest, &tables::latency(with_rate)));
    main.extend(figure(anatomy::drawings(&grid), ANATOMY, latest, &super::tables::anatomy(with_rate)));
    let mut further = vec![];
    further.extend(figure(curves::distribution(with_rate), DISTRIBUTION, latest, &curves::spread(with_rate)));
    further.extend(figure(curves::lateness(shown), LATENESS, latest, &curves::lateness_percentiles(shown)));
    further.extend(figure(curves::variation(shown), VARIATION, latest, &curves::spread(shown)));
    further.extend(figure(curves::loss(shown), LOSS, latest, &curves::losses(shown)));
    further.extend(figure(cycles::drawings(&grid), CYCLES, latest, &super::tables::nodes(with_rate)));
    for (name, drawings) in curves::series(shown) {
        further.extend(figure(drawings, &format!("{name}."), latest, &curves::points(shown, &name)));
    }
    further.extend(figure(streams::drawings(shown), STREAMS, latest, &streams::counters(shown)));
    if results.iter().any(|r| !r.streams.is_empty()) {
        further.push(section("Streams", [tables::element(&super::streams::counters(results), STREAM_COUNTERS)]));
    }
    if results.iter().any(|r| r.latency.iter().any(|l| !l.vnfs.is_empty())) {
        further.push(section("VNFs", [tables::element(&super::tables::vnfs(results), VNFS)]));
    }
    if let Some(table) = tables::quantities(results) {
        further.push(section("Quantities", [tables::element(&table, QUANTITIES)]));
    }
    Measurements { main, further }
}

/// Returns trials, environment, and how to repeat the measurements.
fn origin(results: &[Result]) -> Vec<Element> {
    if results.is_empty() {
        return Vec::new();
    }
    vec![
        section("Trials", [tables::trials(results)]),
        section("Environment", tables::environment(results)),
        section("Reproduction", tables::reproduction(results)),
    ]
}

const RESULTS: &str = "\
    Throughput is the lower bound, in one direction; L1 includes preamble and gap, 20 bytes per frame. Latency was \
    measured at the given load, a share of the throughput, by the clock of one host.";
const VNFS: &str = "\
    Packets for each destination MAC address, at the highest load at which latency was measured. Jitter is the mean of \
    the absolute values of IPDV (RFC 5481).";
const THROUGHPUT: &str = "\
    Throughput. Bars are lower bounds: the highest load that met the goal. Whiskers extend to the lowest load that did \
    not. Bars with a dashed outline are not limited by the DUT. The dashed line is the line rate of 10-Gigabit \
    Ethernet; if it is missing, it lies above the figure.";
const LATENCY: &str = "\
    Latency by percentile; each step to the right of 90 adds one nine. Lines end at the last sample, the slowest \
    packet. Lost packets are not included.";
const REPETITIONS: &str = "\
    Throughput of repeated measurements, relative to its median: a mark for each result, whiskers from minimum to \
    maximum, a line at the median; for five or more, a box between the quartiles. At the right, the median.";
const DISTRIBUTION: &str = "\
    Share of packets received within each latency, at the highest load at which it was measured.";
const LATENESS: &str = "\
    Share of packets sent within each time after they were due, in the trials at the lower bound: the lateness of the \
    generator, which adds to no latency.";
const VARIATION: &str = "\
    Share of packets within each delay variation: latency above the minimum (PDV, RFC 5481).";
const LOSS: &str = "\
    Loss of each trial at its load, without trials with host interference, and without trials of a search at more than \
    twice the throughput.";
const STREAMS: &str = "\
    Packets received of each stream of a profile, by the second of their departure.";
const STREAM_COUNTERS: &str = "\
    Streams of a profile. Unsent packets were not sent in time by the generator; they are included in the loss ratio, \
    not in the number of lost packets.";
const QUANTITIES: &str = "\
    Other numbers of the methods. For the mean or median of several values, n is their number.";
const ANATOMY: &str = "\
    Mean latency of traced probes, from the time at which a probe was due to its arrival, by part; beside the bar, their \
    sum. A queue is the time from sending to a port until the receiver has taken the packet, the switch the time in \
    workers outside NFs, a crossing the time between the host and a sandbox, in either direction.";
const CYCLES: &str = "\
    Cycles per packet in each node, at the throughput; beside the bar, the sum for a packet that visits all nodes. \
    Cycles are those of the time-stamp counter, independent of the core frequency.";

fn section(title: &str, content: impl IntoIterator<Item = Element>) -> Element {
    el("section").child(el("h2").text(title)).children(content)
}

fn footer(results: &[Result]) -> Element {
    let ids = results.iter().map(|r| el("li").child(el("code").text(&r.id)));
    el("footer")
        .child(el("p").text(format!(
            "{} of schema {}. The id of a document is the SHA-256 of its content.",
            plural(results.len(), "document", "documents"),
            crate::Version::V2.name()
        )))
        .child(tables::details("Documents", [el("ul").children(ids)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_is_valid_in_html_and_xml() {
        assert!(!STYLE.contains(['&', '<', '>']), "the element writer escapes these characters");
    }
}
