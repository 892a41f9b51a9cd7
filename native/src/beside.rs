//! The second table: flow table, rules, state, links between cores, streams and timers, each beside what one would take instead.

mod attacked;
mod flows;
mod nat64;
mod rules;
#[path = "../../crates/nf/src/firewall/tests/sets.rs"]
#[expect(dead_code, reason = "the tests scan them too")]
mod sets;
mod shuffle;
mod side;
mod state;
mod timers;
mod tuple_merge;
mod window;

use crate::sample::{Compared, Cost};
use dpdk::Mempool;
use packet::clock;
use serde::Serialize;
use std::sync::Arc;

/// One row, as `native.json` has it.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: String,
    /// What `theirs` is.
    beside: &'static str,
    /// How many there are of what is looked up, kept or timed.
    size: usize,
    /// What a cost is for.
    unit: &'static str,
    /// Bytes of payload in a unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    ours: Cost,
    theirs: Cost,
    ratio: f64,
    ratio_lower: f64,
    ratio_upper: f64,
}

/// What is compared with what.
pub(crate) struct What<'a> {
    what: &'a str,
    beside: &'static str,
    size: usize,
    unit: &'static str,
}

pub(crate) struct Table<'a> {
    only: &'a str,
    pairs: usize,
    rows: Vec<Row>,
}

impl Table<'_> {
    /// Whether a row of this name is to be measured.
    fn wanted(&self, what: &str) -> bool {
        what.contains(self.only)
    }

    /// Prints and keeps a row.
    fn add(&mut self, what: &What<'_>, compared: &Compared) {
        let What { what, beside, size, unit } = *what;
        let Compared { ours, theirs, ratio, bounds } = *compared;
        if self.rows.is_empty() {
            println!("\nstate, time, streams: beside a plain structure; cycles for each, but ratios");
            println!("{:<46} {:>7} {:>15} {:>15}", "", "", "bondstone", "beside");
            println!(
                "{:<46} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>13}  beside",
                "what", "size", "p05", "median", "p05", "median", "ratio", "(95 %)"
            );
        }
        println!(
            "{what:<46} {size:>7} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {ratio:>6.3} {:>13}  {beside}",
            ours.p05,
            ours.median,
            theirs.p05,
            theirs.median,
            format!("{:.3}-{:.3}", bounds.0, bounds.1),
        );
        self.rows.push(Row {
            what: what.to_owned(),
            beside,
            size,
            unit,
            bytes: None,
            ours,
            theirs,
            ratio,
            ratio_lower: bounds.0,
            ratio_upper: bounds.1,
        });
    }

    /// Says of the last row how many bytes of payload are in one unit, and prints the rates.
    fn rate(&mut self, bytes: usize) {
        let Some(row) = self.rows.last_mut() else { return };
        row.bytes = Some(bytes);
        let rate = |cycles: f64| (bytes * 8) as f64 * clock::hz() as f64 / 1e9 / cycles;
        let (ours, theirs) = (rate(row.ours.median), rate(row.theirs.median));
        println!("{:<46} {:>7} {ours:>7.0} Gbit/s {theirs:>8.0} Gbit/s of payload (medians)", "", "");
    }
}

/// Numbers without a pattern below `below`, cheap ones.
#[derive(Clone)]
struct Keys {
    state: u64,
    below: u64,
}

impl Keys {
    fn new(below: usize) -> Self {
        Keys { state: 88_172_645_463_325_252, below: below as u64 }
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        ((self.state >> 32) * self.below) >> 32
    }

    #[inline(always)]
    fn burst(&mut self) -> [u64; packet::BURST] {
        core::array::from_fn(|_| self.next())
    }
}

/// Measures the rows whose name holds `only`, on `core`; what needs two CPUs also on the other, if there is one.
pub(crate) fn run(
    only: &str,
    pairs: usize,
    (core, other): (usize, Option<usize>),
    pool: &Arc<Mempool>,
) -> anyhow::Result<Vec<Row>> {
    let mut table = Table { only, pairs, rows: vec![] };
    flows::rows(&mut table)?;
    rules::rows(&mut table)?;
    state::rows(&mut table, (core, other))?;
    shuffle::rows(&mut table, (core, other))?;
    window::rows(&mut table)?;
    timers::rows(&mut table)?;
    nat64::rows(&mut table, pool);
    attacked::rows(&mut table, pool);
    Ok(table.rows)
}
