//! The array access benchmark of NetBricks.

use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, Node, Operator, frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::{Ethernet, Ipv4, Udp};

/// `cells`: updates cells of a 512 KiB array selected by the UDP source port (NetBricks, OSDI'16 §5.2, Fig. 1: the cost
/// of bounds checks).
pub struct Cells;

/// Settings of [`Cells`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of cells to update per packet, 1 to 32.
    cells: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { cells: 1 }
    }
}

/// Number of cells: 65,536 of 8 bytes, indexed by a 16-bit number.
const CELLS: usize = 1 << 16;

/// Returns the cell to update after `cell`: a full-period linear congruential generator (multiplier 1 mod 4, odd
/// increment).
#[inline(always)]
fn next(cell: u16) -> u16 {
    cell.wrapping_mul(25173).wrapping_add(13849)
}

impl Nf for Cells {
    type Settings = Settings;
    const KIND: &'static str = "cells";
    const ABOUT: &'static str = "Updates cells of a 512 KiB array selected by the UDP source port, as in NetBricks \
         (Fig. 1). Drops packets other than UDP over IPv4.";
    const EXAMPLE: &'static str = "cells = 8";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let n = settings.cells;
        if !(1..=32).contains(&n) {
            return Err(Diagnostic::new("is not a valid number of cells")
                .key("cells")
                .value(n)
                .remedy("write 1 to 32"));
        }
        let mut array: Box<[u64; CELLS]> = vec![0; CELLS].try_into().expect("the length is CELLS");
        Ok(frame()
            .parse::<Ethernet>()
            .parse::<Ipv4>()
            .parse::<Udp>()
            .transform(move |udp| {
                let mut cell = udp.header().src_port();
                for _ in 0..n {
                    cell = next(cell);
                    array[cell as usize] += 1;
                }
            })
            .compose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Harness;

    #[test]
    fn the_generator_visits_all_cells() {
        let mut visited = [false; CELLS];
        let mut cell = 0;
        for _ in 0..CELLS {
            cell = next(cell);
            assert!(!std::mem::replace(&mut visited[cell as usize], true));
        }
    }

    #[test]
    fn rejects_an_invalid_number_of_cells() {
        assert!(Harness::try_new::<Cells>("cells = 33").unwrap_err().to_string().contains("33"));
        assert!(Harness::try_new::<Cells>("cells = 0").is_err());
        Harness::new::<Cells>("cells = 32");
    }
}
