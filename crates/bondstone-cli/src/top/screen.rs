//! The screen of `bondstone top`: rates as lines of text.

use super::rates::{CpuRates, NfRates, PortRates, Rates};
use super::view::{Sort, View};
use crate::table::{Table, count, rate};
use crate::thresholds::{is_pool_empty, is_saturated, is_table_full};
use text_table::{NONE, printable};

/// Intervals of which the sparkline shows the received rate.
pub(crate) const HISTORY: usize = 60;

/// Longest name in a table on a terminal, in characters.
const MAX_NAME: usize = 18;

/// The lines of a screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Totals, history and warnings.
    pub(crate) head: Vec<String>,
    /// Tables, which may be scrolled.
    pub(crate) body: Vec<String>,
}

/// Returns a bar for each value, relative to the greatest.
fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| if most > 0.0 { BARS[((value / most * 8.0) as usize).min(7)] } else { BARS[0] };
    values.iter().map(bar).collect()
}

fn one_decimal(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.1}"))
}

/// Returns a rate with an SI prefix, for columns whose heading has the unit.
fn per_second(value: f64) -> String {
    rate(value).trim_end().to_owned()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Returns numbers of CPUs as text.
fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Shortens text to `max` characters.
fn shorten(text: String, max: usize) -> String {
    if text.chars().count() <= max {
        return text;
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the lines of a table: as many of its first columns as fit into `width` characters, if that is limited.
fn table(columns: &[&str], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let with = |n: usize| -> Vec<String> {
        let mut table = Table::new(&columns[..n]);
        let cell = |cell: &String| width.map_or(cell.clone(), |_| shorten(cell.clone(), MAX_NAME));
        rows.iter().for_each(|row| table.row(row.iter().take(n).map(cell)));
        table.to_string().lines().map(str::to_owned).collect()
    };
    let fits = |lines: &Vec<String>| width.is_none_or(|width| lines.iter().all(|line| line.chars().count() <= width));
    (1..=columns.len()).rev().map(with).find(fits).unwrap_or_else(|| with(1))
}

/// Sorts by a value, greatest first; rows without one remain in order.
fn sort_by<T>(rows: &mut [T], value: impl Fn(&T) -> Option<f64>) {
    rows.sort_by(|a, b| value(b).unwrap_or(0.0).total_cmp(&value(a).unwrap_or(0.0)));
}

/// Returns what needs attention.
fn warnings(rates: &Rates) -> Vec<String> {
    let tables = rates.tables.iter().filter(|table| is_table_full(table.entries));
    let tables = tables.map(|t| format!("{} {} {} full", t.nf, t.table, percent(t.entries.share())));
    let pool = is_pool_empty(rates.pool).then(|| format!("packet pool {} in use", percent(rates.pool.share())));
    let down = rates.sandboxes.iter().filter(|sandbox| !sandbox.up);
    let down = down.map(|sandbox| format!("sandbox {} is down", sandbox.name));
    let links = rates.ports.iter().filter(|port| port.link == Some(false));
    let links = links.map(|port| format!("port {} has no link", port.name));
    let busy = rates.cpus.iter().filter(|cpu| cpu.busy.is_some_and(is_saturated));
    let busy = busy.map(|cpu| format!("CPU {} is 100 % busy", cpu.cpu));
    down.chain(links).chain(tables).chain(pool).chain(busy).map(|warning| printable(&warning)).collect()
}

impl Screen {
    /// Returns the screen; `history` has the received rates of the last intervals, oldest first. Without `width`, lines
    /// are not cut.
    pub(crate) fn new(rates: &Rates, history: &[f64], view: &View, width: Option<usize>) -> Screen {
        let history = &history[history.len().saturating_sub(HISTORY)..];
        let most = history.iter().copied().fold(0.0, f64::max);
        let pool = rates.pool;
        let warnings = warnings(rates);
        let head = vec![
            format!(
                "{}  {:.0} s  {} of {} packet buffers in use",
                printable(&rates.file),
                rates.uptime,
                count(pool.used),
                count(pool.capacity)
            ),
            format!(
                "rx {}pps {}bit/s  tx {}pps {}bit/s  dropped {}pps",
                rate(rates.received),
                rate(rates.received_bits),
                rate(rates.sent),
                rate(rates.sent_bits),
                rate(rates.dropped)
            ),
            format!("rx {}  max {}pps", sparkline(history), rate(most)),
            if warnings.is_empty() { String::new() } else { format!("warning: {}", warnings.join(", ")) },
        ];
        let sections = [
            ports(rates, view, width),
            cpus(rates, view, width),
            chains(rates, view, width),
            nfs(rates, view, width),
            sandboxes(rates, view, width),
            tables(rates, view, width),
            queues(rates, view, width),
            drops(rates, view, width),
        ];
        let shown: Vec<Vec<String>> = sections.into_iter().filter(|section| section.len() > 1).collect();
        Screen { head, body: shown.join(&String::new()) }
    }

    /// Returns the lines for a terminal, the last of which has the keys and the number of hidden lines. Limits the
    /// scrolled lines to those that there are.
    pub(crate) fn fit(self, view: &mut View, width: usize, height: usize) -> Vec<String> {
        let room = height.saturating_sub(self.head.len() + 1);
        view.scrolled = view.scrolled.min(self.body.len().saturating_sub(room));
        let below = self.body.len().saturating_sub(view.scrolled + room);
        let last = keys(view, below);
        let body = self.body.into_iter().skip(view.scrolled).take(room);
        let mut lines: Vec<String> = self.head.into_iter().chain(body).collect();
        lines.truncate(height.saturating_sub(1));
        lines.resize(height.saturating_sub(1), String::new());
        lines.push(last);
        lines.truncate(height);
        lines.into_iter().map(|line| shorten(line, width)).collect()
    }
}

/// Returns the line that names the keys; `below` is the number of lines below the screen.
fn keys(view: &View, below: usize) -> String {
    let filter = printable(&view.filter);
    if view.typing {
        return format!("filter: {filter}_  (Enter: done, Esc: none)");
    }
    let hidden = match (view.scrolled, below) {
        (0, 0) => String::new(),
        (above, below) => format!("  ↑↓ {above} lines above, {below} below"),
    };
    let filter = if filter.is_empty() { String::new() } else { format!(": {filter}") };
    let pause = if view.paused { "continue" } else { "pause" };
    format!("q end  s sort: {}  space {pause}  / filter{filter}{hidden}", view.sort.name())
}

fn ports(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let mut ports: Vec<&PortRates> = rates.ports.iter().filter(|p| view.shows(&[&p.name, &p.device])).collect();
    match view.sort {
        Sort::Packets => sort_by(&mut ports, |port| Some(port.received + port.sent)),
        Sort::Cycles => sort_by(&mut ports, |p| Some(p.receive_cycles.unwrap_or(0.0) + p.send_cycles.unwrap_or(0.0))),
        Sort::Dropped => sort_by(&mut ports, |port| Some(port.dropped + port.missed)),
        Sort::Name | Sort::Batch | Sort::Share => {}
    }
    let row = |port: &&PortRates| {
        let down = if port.link == Some(false) { "down " } else { "" };
        vec![
            port.name.clone(),
            format!("{down}{}", port.device),
            per_second(port.received),
            per_second(port.received_bits),
            per_second(port.sent),
            per_second(port.sent_bits),
            per_second(port.missed),
            per_second(port.dropped),
            one_decimal(port.receive_cycles),
            one_decimal(port.send_cycles),
        ]
    };
    let columns = ["port", "device", "rx pps", "bit/s", "tx pps", "bit/s", "missed/s", "drops/s", "cycles rx", "tx"];
    table(&columns, &ports.iter().map(row).collect::<Vec<_>>(), width)
}

fn cpus(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let shows = |cpu: &&CpuRates| view.shows(&cpu.chains.iter().map(String::as_str).collect::<Vec<_>>());
    let mut cpus: Vec<&CpuRates> = rates.cpus.iter().filter(shows).collect();
    match view.sort {
        Sort::Share => sort_by(&mut cpus, |cpu| cpu.busy),
        Sort::Packets => sort_by(&mut cpus, |cpu| Some(cpu.received)),
        Sort::Dropped => sort_by(&mut cpus, |cpu| Some(cpu.dropped)),
        Sort::Name | Sort::Batch | Sort::Cycles => {}
    }
    let row = |cpu: &&CpuRates| {
        vec![
            cpu.cpu.to_string(),
            cpu.busy.map_or(NONE.to_owned(), percent),
            per_second(cpu.received),
            per_second(cpu.sent),
            per_second(cpu.dropped),
            cpu.chains.join(", "),
        ]
    };
    let columns = ["CPU", "busy", "rx pps", "tx pps", "drops/s", "chains"];
    table(&columns, &cpus.iter().map(row).collect::<Vec<_>>(), width)
}

fn chains(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let chains = rates.chains.iter().filter(|chain| view.shows(&[&chain.name]));
    let rows = chains.map(|chain| {
        let share = percent(chain.share);
        vec![
            chain.name.clone(),
            per_second(chain.packets),
            one_decimal(chain.cycles),
            share,
            per_second(chain.throttled),
        ]
    });
    table(&["chain", "pps", "cycles", "share", "throttled/s"], &rows.collect::<Vec<_>>(), width)
}

fn nfs(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let mut nfs: Vec<&NfRates> = rates.nfs.iter().filter(|nf| view.shows(&[&nf.name, &nf.kind])).collect();
    match view.sort {
        Sort::Name => {}
        Sort::Packets => sort_by(&mut nfs, |nf| Some(nf.packets)),
        Sort::Batch => sort_by(&mut nfs, |nf| nf.per_batch),
        Sort::Cycles => sort_by(&mut nfs, |nf| nf.cycles),
        Sort::Share => sort_by(&mut nfs, |nf| Some(nf.share)),
        Sort::Dropped => sort_by(&mut nfs, |nf| Some(nf.dropped)),
    }
    let row = |nf: &&NfRates| {
        let gauges = nf.gauges.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>();
        vec![
            nf.name.clone(),
            nf.kind.to_string(),
            per_second(nf.packets),
            one_decimal(nf.cycles),
            one_decimal(nf.per_batch),
            percent(nf.share),
            per_second(nf.dropped),
            gauges.join(", "),
        ]
    };
    let columns = ["nf", "kind", "pps", "cycles", "per batch", "share", "drops/s", "now"];
    table(&columns, &nfs.iter().map(row).collect::<Vec<_>>(), width)
}

fn sandboxes(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let sandboxes = rates.sandboxes.iter().filter(|sandbox| view.shows(&[&sandbox.name, &sandbox.isolation]));
    let rows = sandboxes.map(|sandbox| {
        vec![
            sandbox.name.clone(),
            sandbox.isolation.to_string(),
            list(&sandbox.cpus),
            if sandbox.up { "up" } else { "down" }.to_owned(),
            sandbox.starts.to_string(),
            per_second(sandbox.sent),
            per_second(sandbox.received),
            per_second(sandbox.dropped),
        ]
    });
    let columns = ["sandbox", "isolation", "CPUs", "state", "starts", "in pps", "out pps", "drops/s"];
    table(&columns, &rows.collect::<Vec<_>>(), width)
}

fn tables(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let mut tables: Vec<_> = rates.tables.iter().filter(|table| view.shows(&[&table.nf, &table.table])).collect();
    sort_by(&mut tables, |table| Some(table.entries.share()));
    let rows = tables.into_iter().map(|table| {
        let sign = if is_table_full(table.entries) { "!" } else { "" };
        let (used, capacity) = (count(table.entries.used), count(table.entries.capacity));
        vec![table.nf.clone(), table.table.to_string(), percent(table.entries.share()), sign.to_owned(), used, capacity]
    });
    table(&["nf", "table", "full", "", "entries", "capacity"], &rows.collect::<Vec<_>>(), width)
}

fn queues(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let mut queues: Vec<_> = rates.queues.iter().filter(|queue| view.shows(&[&queue.name])).collect();
    sort_by(&mut queues, |queue| Some(queue.packets.share()));
    let rows = queues.into_iter().map(|queue| {
        let share = percent(queue.packets.share());
        vec![queue.name.clone(), share, count(queue.packets.used), count(queue.packets.capacity)]
    });
    table(&["queue", "full", "packets", "capacity"], &rows.collect::<Vec<_>>(), width)
}

fn drops(rates: &Rates, view: &View, width: Option<usize>) -> Vec<String> {
    let drops = rates.drops.iter().filter(|(reason, _)| view.shows(&[reason]));
    let rows: Vec<_> = drops.map(|(reason, n)| vec![reason.to_string(), per_second(*n)]).collect();
    table(&["dropped for", "drops/s"], &rows, width)
}

#[cfg(test)]
mod tests;
