//! Spreading flows over ports.

use crate::fixture;
use crate::pair::{Pair, Ports, node};

pub(crate) const NAME: &str = "spread";

/// Returns `spread` over two ports by flow.
pub(crate) fn pair() -> Pair {
    let pair = Pair::new(NAME, Box::new(|| vec![node("spread", "ports = [\"a\", \"b\"]")]), fixture::native_spread);
    Pair { ports: Ports::Two, ..pair }
}
