//! The screen of `bondstone top`: rates as lines of text.

use super::rates::{NfRates, Rates};
use crate::table::{Table, rate};
use clap::ValueEnum;
use text_table::{NONE, printable};

/// Order of the NFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// As in the chain file.
    #[default]
    Name,
    /// By packets.
    Packets,
    /// By cycles per packet.
    Cycles,
    /// By share of all cycles.
    Share,
    /// By dropped packets.
    Dropped,
}

impl Sort {
    /// Returns the order after this one, and after the last the first.
    pub(crate) fn next(self) -> Sort {
        let all = Sort::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    /// Returns the value by which NFs are ordered, greatest first; none if they are not.
    fn value(self, nf: &NfRates) -> Option<f64> {
        match self {
            Sort::Name => None,
            Sort::Packets => Some(nf.packets),
            Sort::Cycles => Some(nf.cycles.unwrap_or(0.0)),
            Sort::Share => Some(nf.share),
            Sort::Dropped => Some(nf.dropped),
        }
    }
}

/// Order and selection of the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) sort: Sort,
    /// Text that names of ports and NFs or kinds of NFs contain.
    pub(crate) filter: String,
}

/// Seconds of which the sparkline shows the received rate.
pub(crate) const HISTORY: usize = 60;

/// Returns a bar for each value, relative to the greatest.
pub(crate) fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| if most > 0.0 { BARS[((value / most * 8.0) as usize).min(7)] } else { BARS[0] };
    values.iter().map(bar).collect()
}

fn cycles(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.1}"))
}

fn mpps(packets: f64) -> String {
    format!("{:.3}", packets / 1e6)
}

fn gbits(bits: f64) -> String {
    format!("{:.2}", bits / 1e9)
}

/// Returns the lines of a screen; `history` has the received rates of the last seconds, oldest first.
pub(crate) fn lines(rates: &Rates, history: &[f64], view: &View) -> Vec<String> {
    let cpus = rates.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let shown = |names: &[&str]| view.filter.is_empty() || names.iter().any(|name| name.contains(&view.filter));
    let mut out = vec![
        format!("{}  {:.0} s  CPU {cpus} busy {:.0} %", printable(&rates.file), rates.uptime, 100.0 * rates.busy),
        format!("rx {}pps  tx {}pps  dropped {}pps", rate(rates.received), rate(rates.sent), rate(rates.dropped)),
        format!("rx {}", sparkline(&history[history.len().saturating_sub(HISTORY)..])),
        String::new(),
    ];
    let mut ports =
        Table::new(&["port", "device", "rx Mpps", "Gbit/s", "tx Mpps", "Gbit/s", "dropped/s", "cycles rx", "tx"]);
    for port in rates.ports.iter().filter(|port| shown(&[&port.name, &port.device])) {
        let device = if port.link == Some(false) { format!("{} (down)", port.device) } else { port.device.clone() };
        ports.row([
            port.name.clone(),
            device,
            mpps(port.received),
            gbits(port.received_bits),
            mpps(port.sent),
            gbits(port.sent_bits),
            format!("{:.0}", port.dropped),
            cycles(port.receive_cycles),
            cycles(port.send_cycles),
        ]);
    }
    out.extend(ports.to_string().lines().map(str::to_owned));
    out.push(String::new());
    let mut nfs: Vec<&NfRates> = rates.nfs.iter().filter(|nf| shown(&[&nf.name, &nf.kind])).collect();
    nfs.sort_by(|a, b| view.sort.value(b).unwrap_or(0.0).total_cmp(&view.sort.value(a).unwrap_or(0.0)));
    let mut table = Table::new(&["nf", "kind", "Mpps", "per batch", "cycles", "share", "dropped/s", "now"]);
    for nf in nfs {
        let gauges = nf.gauges.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>();
        table.row([
            nf.name.clone(),
            nf.kind.to_string(),
            mpps(nf.packets),
            cycles(nf.per_batch),
            cycles(nf.cycles),
            format!("{:.0} %", 100.0 * nf.share),
            format!("{:.0}", nf.dropped),
            gauges.join(", "),
        ]);
    }
    out.extend(table.to_string().lines().map(str::to_owned));
    if !rates.drops.is_empty() {
        out.push(String::new());
        let mut drops = Table::new(&["dropped for", "per second"]);
        rates.drops.iter().for_each(|(reason, n)| drops.row([reason.to_string(), format!("{n:.0}")]));
        out.extend(drops.to_string().lines().map(str::to_owned));
    }
    out
}

/// Cuts lines to the size of a terminal, in characters.
pub(crate) fn fit(lines: Vec<String>, width: usize, height: usize) -> Vec<String> {
    lines.into_iter().take(height).map(|line| line.chars().take(width).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rates::PortRates;
    use super::*;

    fn rates() -> Rates {
        let port = |name: &str, received| PortRates {
            name: name.into(),
            device: "null".into(),
            received,
            link: Some(name != "wan"),
            ..Default::default()
        };
        let nf = |name: &str, packets, cycles| NfRates {
            name: name.into(),
            kind: "ttl".into(),
            packets,
            cycles: Some(cycles),
            ..Default::default()
        };
        Rates {
            file: "edge.toml".into(),
            uptime: 12.4,
            cpus: vec![1, 2],
            busy: 0.25,
            received: 2e6,
            ports: vec![port("lan", 2e6), port("wan", 0.0)],
            nfs: vec![nf("first", 1e6, 3.0), nf("second", 2e6, 9.0)],
            drops: vec![("ttl_expired".into(), 1024.0)],
            ..Default::default()
        }
    }

    #[test]
    fn a_screen_fits_a_small_terminal() {
        let lines = lines(&rates(), &[1.0; 200], &View::default());
        assert_eq!(lines[0], "edge.toml  12 s  CPU 1,2 busy 25 %");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.contains("null (down)")) && lines.last().unwrap().contains("1024"),
            "{lines:#?}"
        );
        let small = fit(lines, 20, 5);
        assert!(small.len() == 5 && small.iter().all(|line| line.chars().count() <= 20));
    }

    #[test]
    fn nfs_are_sorted_and_filtered() {
        let of = |sort, filter: &str| {
            let lines = lines(&rates(), &[], &View { sort, filter: filter.into() });
            ["first", "second", "lan"].map(|name| lines.iter().position(|line| line.trim_start().starts_with(name)))
        };
        let [first, second, lan] = of(Sort::Name, "");
        assert!(first < second && lan.is_some());
        let [first, second, _] = of(Sort::Cycles, "");
        assert!(second < first);
        let [first, second, lan] = of(Sort::Packets, "sec");
        assert!(second.is_some() && (first, lan) == (None, None));
    }

    #[test]
    fn orders_go_round() {
        let mut sort = Sort::default();
        let n = Sort::value_variants().len();
        (0..n).for_each(|_| sort = sort.next());
        assert_eq!(sort, Sort::default());
    }

    #[test]
    fn bars_are_relative_to_the_greatest() {
        assert_eq!(sparkline(&[0.0, 4.0, 8.0]), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0]), "▁▁");
    }
}
