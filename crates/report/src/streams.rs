//! Streams of profiles in tables.

use crate::format::{self, NONE};
use crate::table::Table;
use crate::{Result, Stream, words};

/// Rows of a result over time: longer profiles have several seconds in a row.
const ROWS: usize = 60;

/// What became of each stream, a row for each.
pub(crate) fn all(results: &[Result]) -> Table {
    let heading = [
        "what", "stream", "frames", "flows", "port", "intended", "sent", "unsent", "received", "lost", "loss",
        "p50 µs", "p99 µs", "max µs",
    ];
    let mut table = Table::new(&heading);
    for (name, r) in words::names(results).into_iter().zip(results) {
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

/// Packets of all streams over time: a row for each second, or for several where there are more than fit.
pub(crate) fn over_time(results: &[Result]) -> Table {
    let mut table = Table::new(&["what", "second", "intended", "sent", "received", "lost"]);
    for (name, r) in words::names(results).into_iter().zip(results) {
        let seconds = sums(&r.streams);
        let together = seconds.len().div_ceil(ROWS).max(1);
        for (n, some) in seconds.chunks(together).enumerate() {
            let first = n * together;
            let when = match some.len() {
                1 => first.to_string(),
                more => format!("{first} to {}", first + more - 1),
            };
            let of = |i: usize| some.iter().map(|second| second[i]).sum::<u64>();
            let lost = of(1).saturating_sub(of(2));
            let counts = [of(0), of(1), of(2), lost].map(format::count);
            table.row([name.clone(), when].into_iter().chain(counts));
        }
    }
    table.without_constant(0)
}

/// Packets intended, sent and received of all streams in each second.
fn sums(streams: &[Stream]) -> Vec<[u64; 3]> {
    let longest = streams.iter().map(|s| s.seconds.len()).max().unwrap_or(0);
    let mut sums = vec![[0_u64; 3]; longest];
    for stream in streams {
        for (sum, second) in sums.iter_mut().zip(&stream.seconds) {
            sum.iter_mut().zip(second).for_each(|(sum, n): (&mut u64, _)| *sum = sum.saturating_add(*n));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_streams_add_up() {
        let of = |seconds: &[[u64; 3]]| Stream { seconds: seconds.to_vec(), ..Stream::default() };
        assert_eq!(sums(&[of(&[[1, 1, 0], [5, 4, 4]]), of(&[[2, 2, 2]])]), [[3, 3, 2], [5, 4, 4]]);
        assert_eq!(sums(&[]), [[0; 3]; 0]);
    }
}
