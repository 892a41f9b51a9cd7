use super::super::rates::{ChainRates, QueueUse, SandboxRates, TableUse};
use super::*;
use runtime::Occupancy;

fn rates() -> Rates {
    let port = |name: &str, received| PortRates {
        name: name.into(),
        device: "null".into(),
        received,
        received_bits: 480.0 * received,
        missed: 7.0,
        link: Some(name != "wan"),
        ..Default::default()
    };
    let nf = |name: &str, packets, cycles| NfRates {
        name: name.into(),
        kind: "ttl".into(),
        packets,
        cycles: Some(cycles),
        per_batch: Some(31.5),
        gauges: [("sessions_of_this_nf".to_owned(), 1_000_000)].into(),
        ..Default::default()
    };
    let table = |table: &'static str, used| TableUse {
        nf: "first".into(),
        table: table.into(),
        entries: Occupancy { used, capacity: 1000 },
    };
    Rates {
        file: "edge.toml".into(),
        uptime: 12.4,
        pool: Occupancy { used: 4000, capacity: 8191 },
        received: 2e6,
        received_bits: 0.96e9,
        ports: vec![port("lan", 2e6), port("wan", 0.0)],
        cpus: vec![
            CpuRates { cpu: 1, chains: vec!["up".into()], busy: Some(0.25), received: 2e6, ..Default::default() },
            CpuRates { cpu: 2, chains: vec!["sandbox s".into()], busy: None, ..Default::default() },
        ],
        chains: vec![ChainRates { name: "gold".into(), share: 0.75, throttled: 3.0, ..Default::default() }],
        nfs: vec![nf("first", 1e6, 3.0), nf("second", 2e6, 9.0)],
        sandboxes: vec![SandboxRates {
            name: "s".into(),
            isolation: "process".into(),
            cpus: vec![2],
            up: true,
            starts: 3,
            sent: 1e6,
            ..Default::default()
        }],
        queues: vec![QueueUse { name: "link first.out".into(), packets: Occupancy { used: 512, capacity: 1024 } }],
        tables: vec![table("connections_ipv4", 100), table("connections_ipv6", 950)],
        drops: vec![("ttl_expired".into(), 1024.0)],
        ..Default::default()
    }
}

fn screen(rates: &Rates, view: &View) -> Screen {
    Screen::new(rates, &[1e6, 2e6], view, None)
}

/// Returns the first line of the body that begins with this text.
fn line<'a>(screen: &'a Screen, start: &str) -> Option<(usize, &'a str)> {
    let mut lines = screen.body.iter().enumerate().map(|(n, line)| (n, line.trim_start()));
    lines.find(|(_, line)| line.starts_with(start))
}

/// Returns the cells of that line.
fn cells(screen: &Screen, start: &str) -> Vec<String> {
    let (_, line) = line(screen, start).unwrap_or_else(|| panic!("{start} in {screen:#?}"));
    line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn everything_is_shown() {
    let screen = screen(&rates(), &View::default());
    assert_eq!(screen.head[0], "edge.toml  12 s  4,000 of 8,191 packet buffers in use");
    assert_eq!(screen.head[1], "rx 2.00 Mpps 960.00 Mbit/s  tx 0 pps 0 bit/s  dropped 0 pps");
    assert_eq!(screen.head[2], "rx ▅█  max 2.00 Mpps");
    assert_eq!(screen.head[3], "warning: port wan has no link, first connections_ipv6 95 % full");
    assert_eq!(cells(&screen, "lan"), ["lan", "null", "2.00 M", "960.00 M", "0", "0", "7", "0", "–", "–"]);
    assert!(cells(&screen, "wan").contains(&"down null".to_owned()));
    assert_eq!(cells(&screen, "1 "), ["1", "25 %", "2.00 M", "0", "0", "up"]);
    assert_eq!(cells(&screen, "2 "), ["2", "–", "0", "0", "0", "sandbox s"]);
    assert_eq!(cells(&screen, "gold"), ["gold", "0", "–", "75 %", "3"]);
    assert_eq!(cells(&screen, "second")[..6], ["second", "ttl", "2.00 M", "9.0", "31.5", "0 %"]);
    assert_eq!(cells(&screen, "s "), ["s", "process", "2", "up", "3", "1.00 M", "0", "0"]);
    assert_eq!(cells(&screen, "first  connections_ipv6"), ["first", "connections_ipv6", "95 %", "!", "950", "1,000"]);
    assert_eq!(cells(&screen, "first  connections_ipv4"), ["first", "connections_ipv4", "10 %", "100", "1,000"]);
    assert_eq!(cells(&screen, "link"), ["link first.out", "50 %", "512", "1,024"]);
    assert_eq!(cells(&screen, "ttl_expired"), ["ttl_expired", "1.02 k"]);
    assert!(line(&screen, "first  connections_ipv6") < line(&screen, "first  connections_ipv4"), "the fullest first");
}

#[test]
fn a_screen_fits_the_terminal_and_tells_the_hidden_lines() {
    let rates = rates();
    for (width, height) in [(80, 24), (40, 12), (20, 5), (1, 1), (300, 100)] {
        let mut view = View::default();
        let lines = Screen::new(&rates, &[1.0; 200], &view, Some(width)).fit(&mut view, width, height);
        assert_eq!(lines.len(), height);
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
    }
    let at = |scrolled| {
        let mut view = View { scrolled, ..View::default() };
        let screen = Screen::new(&rates, &[], &view, Some(80));
        let body = screen.body.len();
        (screen.fit(&mut view, 80, 24), view.scrolled, body)
    };
    let (lines, scrolled, body) = at(0);
    assert_eq!((scrolled, body), (0, 27));
    assert_eq!(lines[23], "q end  s sort: name  space pause  / filter  ↑↓ 0 lines above, 8 below");
    assert!(lines[4].trim_start().starts_with("port") && lines[5].contains("lan"), "{lines:#?}");
    let (lines, scrolled, _) = at(1000);
    assert_eq!(scrolled, 8);
    assert!(lines[22].contains("ttl_expired") && lines[23].ends_with("8 lines above, 0 below"), "{lines:#?}");
}

#[test]
fn rows_are_sorted_and_filtered() {
    let of = |sort, filter: &str| screen(&rates(), &View::new(sort, filter.into()));
    let first_is_above = |screen: &Screen| line(screen, "first   ttl") < line(screen, "second");
    assert!(first_is_above(&of(Sort::Name, "")) && !first_is_above(&of(Sort::Cycles, "")));
    let filtered = of(Sort::Packets, "sec");
    assert!(line(&filtered, "second").is_some());
    assert_eq!(["first", "lan", "1 ", "gold", "s ", "link", "ttl_"].map(|name| line(&filtered, name)), [None; 7]);
    assert_eq!(filtered.body.len(), 2);
}

#[test]
fn only_wide_terminals_show_all_columns() {
    let rows = vec![vec!["a".to_owned(), "x".repeat(30), "1".to_owned()]];
    let columns = ["name", "text", "number"];
    assert_eq!(table(&columns, &rows, None)[1], format!("  a     {}       1", "x".repeat(30)));
    assert_eq!(table(&columns, &rows, Some(80))[1], format!("  a     {}…       1", "x".repeat(17)));
    assert_eq!(table(&columns, &rows, Some(30))[1], format!("  a     {}…", "x".repeat(17)));
    assert_eq!(table(&columns, &rows, Some(2))[1], "  a");
}

#[test]
fn keys_and_filter_are_named() {
    let mut view = View::new(Sort::Share, "fw\u{1b}".into());
    assert_eq!(keys(&view, 0), "q end  s sort: share  space pause  / filter: fw\u{fffd}");
    (view.paused, view.scrolled) = (true, 2);
    assert_eq!(keys(&view, 3), "q end  s sort: share  space continue  / filter: fw\u{fffd}  ↑↓ 2 lines above, 3 below");
    view.typing = true;
    assert_eq!(keys(&view, 3), "filter: fw\u{fffd}_  (Enter: done, Esc: none)");
}

#[test]
fn warnings_name_what_needs_attention() {
    let mut rates = rates();
    rates.pool.used = 8000;
    rates.cpus[0].busy = Some(1.0);
    rates.sandboxes[0].up = false;
    let expected = [
        "sandbox s is down",
        "port wan has no link",
        "first connections_ipv6 95 % full",
        "packet pool 98 % in use",
        "CPU 1 is 100 % busy",
    ];
    assert_eq!(warnings(&rates), expected);
    assert_eq!(warnings(&Rates::default()), [] as [String; 0]);
}

#[test]
fn bars_are_relative_to_the_greatest() {
    assert_eq!(sparkline(&[0.0, 4.0, 8.0]), "▁▅█");
    assert_eq!(sparkline(&[0.0, 0.0]), "▁▁");
}
