//! Reports of ordinary and unusual results.

use crate::samples;

use report::{Frames, LimitedBy, Result, Vnf, html, table};
use roxmltree::{Document, ParsingOptions};
use std::collections::HashSet;

fn results() -> Vec<Result> {
    let of = |kind: &'static str, cycles| samples::sizes().into_iter().map(move |f| samples::result(kind, f, cycles));
    of("bondstone", 208.0).chain(of("native", 196.0)).collect()
}

/// The page as XML; it is written so that it is both.
fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the normalised text of all elements with a name.
fn texts(page: &Document<'_>, name: &str) -> Vec<String> {
    let elements = page.descendants().filter(|n| n.has_tag_name(name));
    elements
        .map(|n| {
            let text: String = n.descendants().filter(|d| d.is_text()).filter_map(|d| d.text()).collect();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Checks invariants of a page.
fn check_page(page: &str) {
    for absent in [
        "<script",
        "<link",
        "<img",
        "<iframe",
        "<object",
        "http:",
        "https:",
        "//",
        "url(",
        "@import",
        "javascript:",
        "NaN",
        "inf\"",
    ] {
        assert!(
            !page.contains(absent),
            "{absent} in {}",
            page.lines().find(|l| l.contains(absent)).unwrap_or_default()
        );
    }
    let parsed = parse(page);
    let mut ids = HashSet::new();
    for node in parsed.descendants().filter(|n| n.is_element()) {
        let name = node.tag_name().name();
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on"), "{name} {}", attribute.name());
            assert!(
                !matches!(attribute.name(), "href" | "src" | "style" | "srcdoc" | "action"),
                "{name} {}",
                attribute.name()
            );
        }
        if let Some(id) = node.attribute("id") {
            assert!(ids.insert(id), "duplicate id {id}");
        }
        if name == "svg" {
            assert!(
                node.children().any(|c| c.has_tag_name("title")) && node.children().any(|c| c.has_tag_name("desc"))
            );
            check_bounds(node);
        }
        if name == "table" {
            assert!(node.children().any(|c| c.has_tag_name("caption")));
        }
        if name == "figure" {
            assert!(node.descendants().any(|c| c.has_tag_name("table")), "a figure without its numbers");
            assert!(node.children().any(|c| c.has_tag_name("figcaption")));
        }
    }
    for node in parsed.descendants() {
        for id in node.attribute("aria-labelledby").unwrap_or_default().split_whitespace() {
            assert!(ids.contains(id), "missing id {id}");
        }
    }
}

/// Checks that all marks of a drawing lie within it.
fn check_bounds(svg: roxmltree::Node<'_, '_>) {
    let size: Vec<f64> = svg.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    let (width, height) = (size[2], size[3]);
    for node in svg.descendants().filter(|n| n.is_element()) {
        for (names, most) in [(&["x", "x1", "x2", "cx"], width), (&["y", "y1", "y2", "cy"], height)] {
            for name in names {
                if let Some(value) = node.attribute(*name) {
                    let value: f64 = value.parse().unwrap();
                    assert!((-1.0..=most + 1.0).contains(&value), "{:?} of {width} x {height}", node);
                }
            }
        }
        let number = |name| node.attribute(name).map(|n: &str| n.parse::<f64>().unwrap());
        if let (Some(x), Some(w)) = (number("x"), number("width")) {
            assert!(w >= 0.0 && x + w <= width + 1.0, "{node:?}");
        }
        for pair in node.attribute("d").unwrap_or_default().split(['M', 'L']).filter(|p| !p.is_empty()) {
            let (x, y) = pair.split_once(' ').unwrap();
            assert!(
                (-1.0..=width + 1.0).contains(&x.parse().unwrap())
                    && (-1.0..=height + 1.0).contains(&y.parse().unwrap())
            );
        }
    }
}

#[test]
fn page_contains_all_numbers() {
    let results = results();
    let page = html(&results);
    check_page(&page);
    let parsed = parse(&page);
    let rows: HashSet<String> = parsed
        .descendants()
        .filter(|n| n.has_tag_name("tr"))
        .map(|tr| {
            tr.children()
                .map(|cell| cell.descendants().filter_map(|d| if d.is_text() { d.text() } else { None }).collect())
                .collect::<Vec<String>>()
                .join("|")
        })
        .collect();
    for r in &results {
        let name = r.dut.label();
        let frame = r.traffic.frames.label();
        let (lower, line) = (r.summary.lower_pps / 1e6, r.traffic.line_pps() / 1e6);
        let upper = r.summary.upper_pps.map_or("–".to_owned(), |u| format!("{:.3}", u / 1e6));
        let (l1, l2) = (r.traffic.l1_bps(lower * 1e6) / 1e9, r.traffic.l2_bps(lower * 1e6) / 1e9);
        let limit = r.limited_by.name();
        let row = format!("{name}|{frame}|{lower:.3}|{upper}|{lower:.3}|{l1:.2}|{l2:.2}|{line:.3}|{limit}");
        assert!(rows.contains(&row), "{row}");
        for l in &r.latency {
            let share = format!("{:.0} %", l.share_of_throughput.unwrap() * 100.0);
            let load = l.load_pps / 1e6;
            let load = if load < 0.1 { format!("{load:.5}") } else { format!("{load:.3}") };
            let start = format!("{name}|{frame}|{share}|{load}|{:.1}|", l.p50_ns / 1e3);
            assert!(rows.iter().any(|row| row.starts_with(&start)), "{start}");
        }
        for n in &r.nodes {
            let cycles = format!("|{:.1}|", n.cycles_per_packet.unwrap());
            let start = format!("{name}|{frame}|{}|{}|", n.name, n.kind);
            assert!(rows.iter().any(|row| row.starts_with(&start) && row.contains(&cycles)), "{start}{cycles}");
        }
        for t in &r.trials {
            let start = format!("{name}|{frame}|{:.3}|1|", t.load_pps / 1e6);
            let end = if t.host_interference { "|yes" } else { "|no" };
            assert!(rows.iter().any(|row| row.starts_with(&start) && row.ends_with(end)), "{start}");
        }
        assert!(page.contains(&r.id));
    }
}

#[test]
fn figures_show_all_results() {
    let results = results();
    let page = html(&results);
    let parsed = parse(&page);
    let titles = texts(&parsed, "title");
    for r in &results {
        let lower = format!("lower bound {:.3} Mpps", r.summary.lower_pps / 1e6);
        assert!(titles.iter().any(|t| t.starts_with(&r.dut.label()) && t.contains(&lower)), "{lower}");
    }
    // one bar part for each node, one line for each load
    let has = |class: &'static str| {
        move |n: &roxmltree::Node<'_, '_>| n.attribute("class").is_some_and(|c| c.split(' ').any(|c| c == class))
    };
    let curves = |of: &str| {
        let drawn = parsed.descendants().filter(has("curve")).filter(|n| n.has_tag_name("path"));
        let title = |svg: roxmltree::Node<'_, '_>| {
            svg.children().find(|c| c.has_tag_name("title")).and_then(|t| t.text().map(str::to_owned))
        };
        drawn
            .filter(|n| {
                n.ancestors().find(|a| a.has_tag_name("svg")).and_then(title).is_some_and(|t| t.starts_with(of))
            })
            .count()
    };
    assert_eq!(curves("Latency percentiles"), results.iter().map(|r| r.latency.len()).sum::<usize>());
    // at the highest load
    assert_eq!(curves("Distribution of the latency"), results.len());
    assert_eq!(curves("Distribution of the delay variation"), results.len());
    assert_eq!(curves("loss over load"), results.len());
    let parts = titles.iter().filter(|t| t.ends_with("cycles per packet")).count();
    assert_eq!(parts, results.iter().map(|r| r.nodes.len()).sum::<usize>());
    let whiskers = parsed.descendants().filter(has("whisker")).count();
    assert_eq!(whiskers, 2 * results.iter().filter(|r| r.summary.upper_pps.is_some()).count());
}

/// Repetitions of a measurement with different throughputs.
fn repeated(times: usize) -> Vec<Result> {
    let again = |n: usize| {
        let mut r = samples::result("bondstone", Frames::FrameBytes(64), 300.0);
        r.summary.lower_pps = 9e6 + 1e5 * (n * 7 % 5) as f64;
        r.environment.date = format!("2026-03-{:02}T00:00:00Z", n + 1);
        r.assign_id().unwrap();
        r
    };
    (0..times).map(again).collect()
}

#[test]
fn repetitions_are_drawn_as_box_plots() {
    let all = repeated(6);
    let page = html(&all);
    check_page(&page);
    let parsed = parse(&page);
    let boxes = |page: &Document<'_>| page.descendants().filter(|n| n.attribute("class") == Some("box fc0")).count();
    assert_eq!(boxes(&parsed), 1);
    // 9.0, 9.0, 9.1, 9.2, 9.3, 9.4
    assert!(
        texts(&parsed, "tr").iter().any(|t| t.ends_with("69.0009.0259.1509.2759.400")),
        "{:?}",
        texts(&parsed, "tr")
    );
    // no quartiles of three values
    let few = html(&all[..3]);
    check_page(&few);
    assert!(boxes(&parse(&few)) == 0 && few.contains("Repetitions of the throughput"));
    assert!(!html(&results()).contains("Repetitions of the throughput"));
}

#[test]
fn omits_percentiles_of_few_samples() {
    let mut r = results().remove(0);
    r.latency.truncate(1);
    (r.latency[0].samples, r.latency[0].latency_hdr) = (5000, None);
    (r.latency[0].p99_ns, r.latency[0].p999_ns, r.latency[0].max_ns) = (777e3, 888e3, 999e3);
    let shown = table(std::slice::from_ref(&r));
    assert!(shown.contains("777") && !shown.contains("888"), "{shown}");
    let page = html(std::slice::from_ref(&r));
    let cells = texts(&parse(&page), "td");
    let tips = texts(&parse(&page), "title");
    assert!(cells.iter().any(|c| c.starts_with("777")) && !cells.iter().any(|c| c.starts_with("888")), "{cells:?}");
    assert!(tips.iter().any(|c| c.contains("777")) && !tips.iter().any(|c| c.contains("888")), "{tips:?}");
    r.latency[0].samples = 10_000;
    assert!(table(std::slice::from_ref(&r)).contains("888"));
}

#[test]
fn figures_are_self_contained() {
    let mut all = results();
    all.extend(repeated(5));
    let figures = report::figures(&all);
    let mut names: Vec<&str> = figures.iter().map(|f| f.name.as_str()).collect();
    for name in [
        "throughput-1",
        "latency-1",
        "latency-distribution-1",
        "delay-variation-1",
        "loss-1",
        "cycles-1",
        "repetitions-1",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(names.iter().any(|n| n.starts_with("curve-loss-over-load")));
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before, "duplicate name");
    for figure in &figures {
        assert!(figure.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", figure.name);
        let parsed = Document::parse(&figure.svg).unwrap_or_else(|e| panic!("{}: {e}", figure.name));
        let root = parsed.root_element();
        assert_eq!((root.tag_name().name(), root.tag_name().namespace()), ("svg", Some("http://www.w3.org/2000/svg")));
        assert!(!figure.svg.contains("var(") && root.attribute("width").is_some());
    }
    assert!(report::figures(&[]).is_empty());
    #[cfg(feature = "png")]
    {
        let png = report::png(&figures[0].svg, 2.0).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n") && png.len() > 10_000, "{}", png.len());
        assert!(report::png(&figures[0].svg, 1e4).is_err());
        assert!(report::png("no svg", 1.0).is_err());
    }
}

#[test]
fn bar_heights_are_proportional() {
    let results = results();
    let page = html(&results);
    let parsed = parse(&page);
    let svg = parsed.descendants().find(|n| n.has_tag_name("svg")).unwrap();
    let bar = |r: &Result| {
        let lower = format!("lower bound {:.3} Mpps", r.summary.lower_pps / 1e6);
        let frame = r.traffic.frames.label();
        let tip = |t: &str| t.starts_with(&format!("{}, {frame}", r.dut.label())) && t.contains(&lower);
        let group = svg.children().find(|g| g.children().any(|c| c.has_tag_name("title") && c.text().is_some_and(tip)));
        let rect = group.unwrap().children().find(|c| c.has_tag_name("rect")).unwrap();
        rect.attribute("height").unwrap().parse::<f64>().unwrap()
    };
    let scale = bar(&results[0]) / results[0].summary.lower_pps;
    for r in &results {
        assert!((bar(r) - scale * r.summary.lower_pps).abs() < 0.02, "{}", r.traffic.frames.label());
    }
}

#[test]
fn escapes_markup_in_names() {
    const MALICIOUS: &str =
        "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u{202e}\u{1b}[31m";
    let mut all = results();
    for r in &mut all {
        r.study = MALICIOUS.to_owned();
        r.dut.kind = MALICIOUS.to_owned();
        r.dut.file = Some(MALICIOUS.to_owned());
        r.dut.chain = Some(MALICIOUS.to_owned());
        r.dut.nfs[0].kind = MALICIOUS.to_owned();
        r.dut.ports[0].name = MALICIOUS.to_owned();
        r.cell.insert(MALICIOUS.to_owned(), r.traffic.flows.to_string());
        r.tool.command = Some(MALICIOUS.to_owned());
        r.tool.name = MALICIOUS.to_owned();
        r.environment.cpu = MALICIOUS.to_owned();
        r.environment.hypervisor = Some(MALICIOUS.to_owned());
        r.environment.extra.insert(MALICIOUS.to_owned(), MALICIOUS.to_owned());
        r.goal.name = Some(MALICIOUS.to_owned());
        r.goal.search = MALICIOUS.to_owned();
        r.deviations.push(MALICIOUS.to_owned());
        r.nodes[1].name = MALICIOUS.to_owned();
        r.nodes[1].dropped.insert(MALICIOUS.to_owned(), 1);
        r.traffic.protocol = MALICIOUS.to_owned();
        if let Frames::Mix(mix) = &mut r.traffic.frames {
            mix.name = MALICIOUS.to_owned();
        }
    }
    let page = html(&all);
    check_page(&page);
    let shown = MALICIOUS.replace(['\u{202e}', '\u{1b}'], "\u{fffd}");
    assert!(texts(&parse(&page), "h1")[0].contains(&shown));
    let text = table(&all);
    assert!(!text.contains(['\u{1b}', '\u{202e}']));
}

#[test]
fn unusual_results_have_a_page() {
    check_page(&html(&[]));
    assert!(table(&[]).contains("no results"));

    let mut none = results().remove(0);
    none.summary = report::Summary { lower_pps: 0.0, upper_pps: Some(0.0), conditional_pps: None };
    none.trials.clear();
    none.latency.clear();
    none.nodes.clear();
    none.calibration = None;
    none.tool.command = None;
    none.limited_by = LimitedBy::Generator;
    none.assign_id().unwrap();
    let page = html(std::slice::from_ref(&none));
    check_page(&page);
    assert!(page.contains("no load with frames of 64 B met the goal"));
    assert!(page.contains("limited by the generator"));
    assert!(!table(std::slice::from_ref(&none)).contains("cycles per packet"));
    for (limit, words) in [
        (LimitedBy::HostInterference, "limited by host interference"),
        (LimitedBy::Budget, "trials or time ran out"),
        (LimitedBy::MaxLoad, "limited by the highest load offered"),
    ] {
        none.limited_by = limit;
        let text = table(std::slice::from_ref(&none));
        let row = text.lines().nth(3).unwrap();
        assert!(row.ends_with(limit.name()) && text.contains(words), "{text}");
    }

    // far above and below the line rate, empty frames, zero latencies, more than one drawing can contain
    let mut wide = Vec::new();
    for n in 0..60u16 {
        let mut r = samples::result("bondstone", Frames::FrameBytes(n * 40), 200.0);
        r.summary.lower_pps = if n % 2 == 0 { 9e15 } else { 1e-9 };
        r.summary.upper_pps = None;
        r.cell.insert("n".to_owned(), (n % 9).to_string());
        for (i, l) in r.latency.iter_mut().enumerate() {
            l.latency_hdr = None;
            (l.p50_ns, l.p99_ns, l.p999_ns, l.max_ns) =
                if i == 0 { (0.0, 0.0, 0.0, 0.0) } else { (1.0, 9e15, 9e15, 9e15) };
            l.samples = u64::from(n);
            l.share_of_throughput = (n % 3 == 0).then_some(f64::from(n));
        }
        r.nodes = (0..20).map(|i| report::Node { name: format!("n{i}"), ..r.nodes[0].clone() }).collect();
        wide.push(r);
    }
    check_page(&html(&wide));
    assert!(table(&wide).lines().count() > 120);
}

#[test]
fn bars_that_the_dut_did_not_limit_are_marked() {
    let mut r = results().remove(0);
    r.limited_by = LimitedBy::Dut;
    let page = html(std::slice::from_ref(&r));
    assert!(!page.contains("fc0 lc0 open") && !page.contains("not limited by the DUT, which"));
    r.limited_by = LimitedBy::HostInterference;
    let page = html(std::slice::from_ref(&r));
    check_page(&page);
    assert!(page.contains("fc0 lc0 open") && page.contains("not limited by the DUT, which may forward more"));
    assert!(page.contains("Mpps, limited by: host interference"));
}

#[test]
fn the_first_numbers_come_before_the_notes() {
    let page = html(&results());
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    let places = ["<h1>", "class=\"lead\"", "<h2>Results", "on the validity of these numbers", "<figure"].map(place);
    assert!(places.is_sorted(), "{places:?}");
    assert!(!page.contains("<details open"));
}

#[test]
fn the_lateness_of_the_generator_is_a_figure() {
    let mut r = results().remove(0);
    r.trials.iter_mut().for_each(|t| t.lateness_hdr = None);
    assert!(!html(std::slice::from_ref(&r)).contains("Distribution of the lateness"));
    let mut lateness = report::Histogram::<u64>::new(3).unwrap();
    (1..=100).for_each(|us| lateness.record(us * 1000).unwrap());
    let trial = r.trials.iter_mut().find(|t| t.load_pps == r.summary.lower_pps).unwrap();
    trial.lateness_hdr = Some(report::hdr::encode(&lateness).unwrap());
    let page = html(std::slice::from_ref(&r));
    check_page(&page);
    assert!(page.contains("Distribution of the lateness of the generator"));
    assert!(page.contains(">50.0<") && page.contains(">100.0<"), "median and maximum, microseconds");
}

#[test]
fn single_result_has_notes_and_goal() {
    let mut r = results().remove(0);
    let page = html(std::slice::from_ref(&r));
    assert!(page.contains("quick goal: not RFC 2544"));
    assert!(page.contains("virtual machine (KVM)"));
    assert!(page.contains("bondstone bench scenarios/sample.toml --seed 7"));
    (r.goal.trial_duration_s, r.goal.duration_sum_s, r.goal.exceed_ratio) = (60.0, 60.0, 0.0);
    r.environment.hypervisor = None;
    r.environment.steal_share = None;
    r.environment.isolated_cpus = vec![0, 1];
    r.trials.retain(|t| !t.host_interference);
    r.deviations.clear();
    let page = html(std::slice::from_ref(&r));
    assert!(page.contains("loss ratio 0 %, one trial of 60 s"));
    assert!(!page.contains("on the validity of these numbers"));
}

#[test]
fn text_report_contains_all_results() {
    let results = results();
    let text = table(&results);
    let (verdicts, text) = text.split_once("\n\n").unwrap();
    assert!(verdicts.lines().all(|line| line.starts_with("  verdict: ")), "{verdicts}");
    assert!(verdicts.starts_with("  verdict: limited by the DUT: "), "{verdicts}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].split_whitespace().eq(
        "result frame Mpps upper L1 Gbit/s of 10GbE load p50 µs p99 µs p99.9 µs loss limited by excluded".split(' ')
    ));
    for (r, line) in results.iter().zip(&lines[1..]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mpps = format!("{:.3}", r.summary.lower_pps / 1e6);
        let gbps = format!("{:.2}", r.traffic.l1_bps(r.summary.lower_pps) / 1e9);
        let p99 = format!("{:.1}", r.latency[2].p99_ns / 1e3);
        for expected in [r.dut.kind.clone(), r.traffic.frames.label(), mpps, gbps, p99, r.limited_by.name().to_owned()]
        {
            assert!(words.contains(&expected.as_str()), "{expected} in {line}");
        }
        // the sum of the nodes, in the table of cycles
        let sum: f64 = r.nodes.iter().filter_map(|n| n.cycles_per_packet).sum();
        assert!(lines[results.len()..].iter().any(|l| l.ends_with(&format!("{sum:.1}"))), "{sum:.1}");
    }
    // numbers are aligned to the right
    let end =
        |line: &str, column: &str| line.find(column).map(|at| line[..at].chars().count() + column.chars().count());
    let mpps = end(lines[0], "Mpps").unwrap();
    for (r, line) in results.iter().zip(&lines[1..]) {
        assert_eq!(end(line, &format!("{:.3}", r.summary.lower_pps / 1e6)), Some(mpps), "{line}");
    }
}

#[test]
fn figures_over_vnfs_have_the_linear_benchmark() {
    let rates = [(1, "a", 2e6), (2, "a", 3e6), (4, "a", 3e6), (1, "b", 5e6), (2, "b", 6e6), (4, "b", 6e6)];
    let result = |(vnfs, dut, pps): (u64, &str, f64)| {
        let mut r = samples::result("bondstone", Frames::FrameBytes(64), 208.0);
        r.cell = [("vnfs", vnfs.to_string()), ("dut", dut.to_owned())].map(|(n, v)| (n.to_owned(), v)).into();
        (r.summary.lower_pps, r.summary.upper_pps) = (pps, None);
        r
    };
    let results: Vec<Result> = rates.into_iter().map(result).collect();
    let page = html(&results);
    check_page(&page);
    let rows: Vec<_> = texts(&parse(&page), "tr").into_iter().filter(|row| row.starts_with("linear")).collect();
    let expected = [(1, "5.000"), (2, "10.000"), (4, "20.000")];
    assert_eq!(rows, expected.map(|(vnfs, mpps)| format!("linear benchmark, 64 B{vnfs}{mpps}––")));
    // without a measurement of one VNF there is none
    let without: Vec<Result> = results.into_iter().filter(|r| r.cell["vnfs"] != "1").collect();
    assert!(!html(&without).contains("linear benchmark"));
}

#[test]
fn vnfs_have_rows() {
    let mut r = samples::result("bondstone", Frames::FrameBytes(64), 208.0);
    let fast = Vnf { received_pps: 2e6, p50_ns: Some(1500.0), p99_ns: Some(2500.0), ..Vnf::default() };
    let slow = Vnf { received_pps: 1e6, jitter_ns: Some(700.0), cycles_per_packet: Some(99.0), ..Vnf::default() };
    r.latency.last_mut().unwrap().vnfs = vec![fast, slow];
    assert_eq!(r.check(), Ok(()));
    let text = table(std::slice::from_ref(&r));
    let rows = text.split("VNFs\n").nth(1).unwrap().lines().skip(1).take(3);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    assert!(rows.iter().any(|row| row.ends_with(&["1", "2.000", "1.5", "2.5", "–", "–", "–"])), "{text}");
    assert!(rows.iter().any(|row| row.ends_with(&["2", "1.000", "–", "–", "–", "0.700", "99.0"])), "{text}");
    let page = html(std::slice::from_ref(&r));
    check_page(&page);
    assert!(texts(&parse(&page), "h2").contains(&"VNFs".to_owned()));
    r.latency.last_mut().unwrap().vnfs[0].p99_ns = Some(1.0);
    assert!(r.check().unwrap_err().to_string().contains("vnfs[0]"));
}
