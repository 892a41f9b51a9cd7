//! Tables of the streams of profiles.

use super::format::{self, NONE};
use super::labels::labels;
use crate::{Result, Stream};
use text_table::Table;

/// Maximum number of rows of a result over time; rows of longer profiles cover several seconds.
const MAX_ROWS: usize = 60;

/// Returns the table of stream counters, one row each.
pub(crate) fn counters(results: &[Result]) -> Table {
    let heading = [
        "result", "stream", "frames", "flows", "port", "intended", "sent", "unsent", "received", "lost", "loss",
        "p50 µs", "p99 µs", "max µs",
    ];
    let mut table = Table::new(&heading);
    for (name, r) in labels(results).into_iter().zip(results) {
        for s in &r.streams {
            let us = |ns: Option<f64>| ns.map_or(NONE.to_owned(), format::us);
            let latency = s.latency.as_ref();
            table.row([
                name.clone(),
                s.name.clone(),
                format::short(&s.frames, 40),
                format::count(s.flows.into()),
                s.port.to_string(),
                format::count(s.intended),
                format::count(s.sent),
                format::count(s.unsent),
                format::count(s.received),
                format::count(s.lost),
                format::percent(s.loss_ratio()),
                us(latency.map(|l| l.p50_ns)),
                us(latency.and_then(|l| l.p99_ns)),
                us(latency.map(|l| l.max_ns)),
            ]);
        }
    }
    table.without_constant(0)
}

/// Returns the table of packets of all streams over time, with at most [`MAX_ROWS`] rows.
pub(crate) fn over_time(results: &[Result]) -> Table {
    let mut table = Table::new(&["result", "second", "intended", "sent", "received", "lost"]);
    for (name, r) in labels(results).into_iter().zip(results) {
        let seconds = per_second(&r.streams);
        let seconds_per_row = seconds.len().div_ceil(MAX_ROWS).max(1);
        for (n, row) in seconds.chunks(seconds_per_row).enumerate() {
            let first = n * seconds_per_row;
            let second = match row.len() {
                1 => first.to_string(),
                n => format!("{first} to {}", first + n - 1),
            };
            let sum = |i: usize| row.iter().map(|second| second[i]).sum::<u64>();
            let lost = sum(1).saturating_sub(sum(2));
            let counts = [sum(0), sum(1), sum(2), lost].map(format::count);
            table.row([name.clone(), second].into_iter().chain(counts));
        }
    }
    table.without_constant(0)
}

/// Returns the packets intended, sent and received of all streams in each second.
fn per_second(streams: &[Stream]) -> Vec<[u64; 3]> {
    let longest = streams.iter().map(|s| s.per_second.len()).max().unwrap_or(0);
    let mut sums = vec![[0_u64; 3]; longest];
    for stream in streams {
        for (sum, second) in sums.iter_mut().zip(&stream.per_second) {
            sum.iter_mut().zip(second).for_each(|(sum, n): (&mut u64, _)| *sum = sum.saturating_add(*n));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_all_streams_are_summed() {
        let stream = |seconds: &[[u64; 3]]| Stream { per_second: seconds.to_vec(), ..Stream::default() };
        assert_eq!(per_second(&[stream(&[[1, 1, 0], [5, 4, 4]]), stream(&[[2, 2, 2]])]), [[3, 3, 2], [5, 4, 4]]);
        assert_eq!(per_second(&[]), [[0; 3]; 0]);
    }
}
