//! One of several ports for each flow.

use crate::fixture;
use crate::rows::{Pair, Ports, node};

pub(crate) const NAME: &str = "spread";

/// `spread` over two ports, by flows.
pub(crate) fn pair() -> Pair {
    let pair = Pair::new(NAME, Box::new(|| vec![node("spread", "ports = [\"a\", \"b\"]")]), fixture::native_spread);
    Pair { ports: Ports::Two, ..pair }
}
