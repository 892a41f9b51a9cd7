//! The report as a page: one file that needs nothing else, without scripts.

mod axis;
mod boxes;
mod curves;
mod cycles;
mod element;
mod figures;
mod grid;
mod latency;
mod lines;
mod scaling;
mod streams;
mod svg;
mod tables;
mod throughput;

use crate::format::{self, plural};
use crate::table::{self, Table};
use crate::{Result, words};
use element::{Element, el};
#[cfg(feature = "png")]
pub use figures::png;
pub use figures::{Figure, figures};
use grid::Grid;

/// Results of one run as an HTML page: style and figures are in it, nothing is fetched, no script runs. What results
/// say is shown as text whatever it contains.
pub fn html(results: &[Result]) -> String {
    let studies = words::distinct(results.iter().map(|r| r.study.clone()));
    let title = match studies.as_slice() {
        [] => "No results".to_owned(),
        few if few.len() <= 3 => few.join(", "),
        [first, ..] => format!("{first} and {} more", studies.len() - 1),
    };
    let page = el("html").set("lang", "en").child(head(&title)).child(body(&title, results));
    let mut out = "<!DOCTYPE html>\n".to_owned();
    page.write(&mut out);
    out.push('\n');
    out
}

fn head(title: &str) -> Element {
    // even if text were to get through as markup, the browser fetches and runs nothing
    let policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
    el("head")
        .child(el("meta").set("charset", "utf-8"))
        .child(el("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1"))
        .child(el("meta").set("http-equiv", "Content-Security-Policy").set("content", policy))
        .child(el("title").text(format!("{title} – Bondstone report")))
        .child(el("style").text(STYLE))
}

/// Without `&`, `<` and `>`, so that it reads the same in HTML and XML.
const STYLE: &str = include_str!("html/style.css");

fn body(title: &str, results: &[Result]) -> Element {
    let header =
        el("header").child(el("h1").text(title)).children(headline(results).map(|s| el("p").class("lead").text(s)));
    let mut header = header.children(circumstances(results).map(|s| el("p").text(s)));
    header = header.children(words::goals(results).iter().map(|goal| el("p").text(format!("Goal: {goal}."))));
    let main = el("main").children(warning(results)).children(sections(results));
    el("body").child(header).child(main).child(footer(results))
}

/// The results of methods that look for a rate, or ask for one; all where there are none. The others tell other things of a rate
/// that was found before.
fn rated(results: &[Result]) -> Vec<Result> {
    const OTHERS: [&str; 11] = [
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
        "profile",
    ];
    let rated = |r: &&Result| !OTHERS.contains(&&*r.method.name);
    let found: Vec<Result> = results.iter().filter(rated).cloned().collect();
    if found.is_empty() { results.to_vec() } else { found }
}

/// What was reached: of each series, the result for the smallest frames.
fn headline(results: &[Result]) -> Option<String> {
    let rated = rated(results);
    let once = boxes::latest(&rated);
    let grid = Grid::new(once.as_deref().unwrap_or(&rated));
    let mut first: Vec<_> = grid.cells.clone();
    first.sort_by_key(|&(series, category, _)| (series, category));
    first.dedup_by_key(|cell| cell.0);
    let said: Vec<String> = first
        .iter()
        .take(3)
        .map(|&(series, category, r)| {
            let pps = r.summary.lower_pps;
            let frames = words::frames(&r.traffic.frames);
            let mut name = grid.series[series].clone();
            if grid.is_parameter {
                name += &format!(", {}", grid.categories[category].name);
            }
            if r.method.name == "profile" {
                return profile(&name, r);
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
    (!said.is_empty()).then(|| format!("{}{more}.", said.join("; ")))
}

/// What became of a profile.
fn profile(name: &str, r: &Result) -> String {
    let offered = r.trials.first().map_or(0.0, |trial| trial.load_pps);
    let lost = r.trials.first().map_or(0.0, crate::Trial::loss_ratio);
    let (of, frames) = (format::pps(offered), words::frames(&r.traffic.frames));
    format!("{name}: of {of} on average, as {frames} says, {} were lost", format::percent(lost))
}

/// What measured, where and when.
fn circumstances(results: &[Result]) -> Option<String> {
    let last = results.iter().max_by_key(|r| r.environment.unix_seconds())?;
    let tools = words::distinct(results.iter().map(|r| format!("{} {}", r.tool.name, r.tool.version)));
    let cpus = words::distinct(results.iter().map(|r| r.environment.cpu.clone()));
    let all: Vec<&Result> = results.iter().collect();
    let devices = words::distinct(results.iter().map(|r| r.dut.label()));
    let day = last.environment.date.split('T').next().unwrap_or_default();
    Some(format!(
        "Device under test: {}. Measured with frames of {} by {} on {}, {day}.",
        format::short(&devices.join(", "), 200),
        words::sizes(&all),
        format::short(&tools.join(", "), 120),
        format::short(&cpus.join(", "), 200),
    ))
}

fn warning(results: &[Result]) -> Option<Element> {
    let warnings = words::warnings(results);
    (!warnings.is_empty()).then(|| {
        el("aside")
            .class("warning")
            .set("role", "note")
            .child(el("p").text("Read the numbers with this in mind"))
            .child(el("ul").children(warnings.iter().map(|w| el("li").text(w))))
    })
}

fn sections(results: &[Result]) -> Vec<Element> {
    if results.is_empty() {
        return Vec::new();
    }
    let rated = rated(results);
    let (once, all) = (boxes::latest(&rated), boxes::latest(results));
    let (of_rates, shown) = (once.as_deref().unwrap_or(&rated), all.as_deref().unwrap_or(results));
    let grid = Grid::new(of_rates);
    let mut out = vec![section("Results", [tables::element(&table::throughput(results), RESULTS)])];
    let latest = if once.is_some() { " Of what was measured more than once, the latest." } else { "" };
    let mut n = 0;
    let mut figure = |drawings: Vec<Element>, caption: &str, latest: &str, numbers: &Table| {
        if !drawings.is_empty() {
            n += 1;
            out.push(el("figure").children(drawings).child(
                el("figcaption").child(el("b").text(format!("Figure {n}."))).text(format!(" {caption}{latest}")).child(
                    tables::details("The numbers", [tables::element(numbers, &format!("The numbers of figure {n}."))]),
                ),
            ));
        }
    };
    figure(throughput::drawings(&grid), THROUGHPUT, latest, &tables::bounds(of_rates));
    for (name, drawings, numbers) in scaling::drawings(of_rates) {
        figure(drawings, &format!("Throughput over {name}: lower bounds."), latest, &numbers);
    }
    figure(boxes::drawings(&rated), REPETITIONS, "", &boxes::table(&rated));
    figure(latency::drawings(&grid), LATENCY, latest, &tables::latency(of_rates));
    figure(curves::distribution(of_rates), DISTRIBUTION, latest, &curves::spread(of_rates));
    figure(curves::variation(shown), VARIATION, latest, &curves::spread(shown));
    figure(curves::loss(shown), LOSS, latest, &curves::losses(shown));
    figure(cycles::drawings(&grid), CYCLES, latest, &table::nodes(of_rates));
    for (name, drawings) in curves::series(shown) {
        figure(drawings, &format!("Curve of the method: {name}."), latest, &curves::points(shown, &name));
    }
    figure(streams::drawings(shown), STREAMS, latest, &streams::numbers(shown));
    if results.iter().any(|r| !r.streams.is_empty()) {
        out.push(section("Streams", [tables::element(&crate::streams::all(results), OF_STREAMS)]));
    }
    if let Some(table) = tables::quantities(results) {
        out.push(section("Quantities", [tables::element(&table, QUANTITIES)]));
    }
    out.push(section("Trials", [tables::trials(results)]));
    out.push(section("Environment", tables::environment(results)));
    out.push(section("How to make it again", tables::again(results)));
    out
}

const RESULTS: &str = "\
    Throughput is the lower bound, in one direction; L1 counts preamble and gap, 20 bytes a frame. Latency was measured \
    at the load beside it, a share of the throughput, by the clock of one host.";
const THROUGHPUT: &str = "\
    Throughput. Bars are lower bounds: the highest load that met the goal. Whiskers reach to the lowest load that did \
    not. The dashed line is what 10-Gigabit Ethernet carries; where it is missing it lies above the figure.";
const LATENCY: &str = "\
    Latency by percentile; every step to the right of 90 is one more nine. Lines end where there are no more samples, \
    at the slowest packet. Lost packets are in no line.";
const REPETITIONS: &str = "\
    Throughput of what was measured more than once, over the median of it: a mark for each result, whiskers from the smallest to the largest, a \
    line at the median; of five and more, a box around the middle half. At the right, the median.";
const DISTRIBUTION: &str = "\
    Share of the packets that came back within each latency, at the highest load at which it was measured.";
const VARIATION: &str = "\
    The same of the delay variation: how much longer a packet took than the fastest one (PDV, RFC 5481).";
const LOSS: &str = "\
    Loss of each trial at its load. Trials that the machine disturbed are left out, and of a search those at more than twice the \
    throughput.";
const STREAMS: &str = "\
    What came back of each stream of a profile, by the second in which it was sent.";
const OF_STREAMS: &str = "\
    The streams of a profile. Unsent packets are those the generator could not send in time; they count as lost in the \
    share, and are not among those lost.";
const QUANTITIES: &str = "\
    What the methods come to. Where a value sums up several, n says how many, and sigma is their standard deviation.";
const CYCLES: &str = "\
    Cycles that a packet costs in each node that it visits, at the throughput; beside the bar, the sum for a packet \
    that visits all. Cycles are those of the time-stamp counter, whatever the clock of the core.";

fn section(title: &str, content: impl IntoIterator<Item = Element>) -> Element {
    el("section").child(el("h2").text(title)).children(content)
}

fn footer(results: &[Result]) -> Element {
    let ids = results.iter().map(|r| el("li").child(el("code").text(&r.id)));
    el("footer")
        .child(el("p").text(format!(
            "{} of schema {}. The id of a document is the SHA-256 of its content.",
            plural(results.len(), "document", "documents"),
            crate::Version::V1.name()
        )))
        .child(tables::details("Documents", [el("ul").children(ids)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_reads_the_same_in_html_and_xml() {
        assert!(!STYLE.contains(['&', '<', '>']), "the element writer escapes these");
    }
}
