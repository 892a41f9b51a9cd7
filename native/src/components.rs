//! Components: flow table, classifier, state, links between cores, streams, timers and NFs without a C baseline, each
//! compared with an alternative.

mod adversarial;
mod classifier;
mod flow_table;
mod nat64;
mod nf_loop;
mod qos;
#[path = "../../crates/nf/src/firewall/tests/sets.rs"]
#[expect(dead_code, reason = "the tests of the firewall use all of it")]
mod sets;
mod shuffle;
mod state;
mod table;
mod timers;
mod tuple_merge;
mod window;

use dpdk::Mempool;
use std::sync::Arc;
use table::ComponentTable;

pub(crate) use table::ComponentRow;

/// Measures the rows whose name contains `only`, on `core`, and those that need two CPUs also on `other`.
pub(crate) fn run(
    only: &str,
    pairs: usize,
    (core, other): (usize, Option<usize>),
    pool: &Arc<Mempool>,
) -> anyhow::Result<Vec<ComponentRow>> {
    let mut table = ComponentTable::new(only, pairs);
    flow_table::rows(&mut table)?;
    classifier::rows(&mut table)?;
    state::rows(&mut table, (core, other))?;
    shuffle::rows(&mut table, (core, other))?;
    window::rows(&mut table)?;
    timers::rows(&mut table)?;
    nat64::rows(&mut table, pool);
    qos::rows(&mut table, pool);
    adversarial::rows(&mut table, pool);
    Ok(table.rows)
}
