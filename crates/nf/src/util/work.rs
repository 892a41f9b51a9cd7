//! Busy work of a configured number of cycles per packet.

use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, Node, Operator, frame};
use packet::clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::Ethernet;

/// `work`: spends a configured number of cycles on each packet and swaps its MAC addresses (NetBricks, OSDI'16 §5.3,
/// Fig. 9: NFs of increasing complexity).
pub struct Work;

/// Settings of [`Work`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Time-stamp counter cycles spent on each packet, 0 to 1,000,000, in addition to the cost of swapping.
    cycles: u32,
}

/// Largest value of `cycles`: a third of a millisecond at 3 GHz.
const CYCLES_MAX: u32 = 1_000_000;

impl Nf for Work {
    type Settings = Settings;
    const KIND: &'static str = "work";
    const ABOUT: &'static str =
        "Spends a configured number of cycles on each packet and swaps its MAC addresses, for measurements.";
    const EXAMPLE: &'static str = "cycles = 300";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let cycles = settings.cycles;
        if cycles > CYCLES_MAX {
            let d = Diagnostic::new("too many cycles").key("cycles").value(cycles);
            return Err(d.remedy(format!("write 0 to {CYCLES_MAX}")));
        }
        // reading the counter takes time as well
        let overhead =
            (0..1000).map(|_| clock::cycles().wrapping_sub(clock::cycles()).wrapping_neg()).min().unwrap_or(0);
        let wait = u64::from(cycles).saturating_sub(overhead);
        Ok(frame()
            .parse::<Ethernet>()
            .transform(move |ethernet| {
                if wait != 0 {
                    let start = clock::cycles();
                    while clock::cycles().wrapping_sub(start) < wait {}
                }
                ethernet.header_mut().swap_addrs();
            })
            .compose())
    }
}

#[cfg(test)]
mod tests {
    use super::Work;
    use packet::clock;
    use testkit::Harness;

    #[test]
    fn spends_the_cycles_and_swaps_addresses() {
        let frame = wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).pad_to(60).to_vec();
        let mut nf = Harness::new::<Work>("cycles = 100000");
        let start = clock::cycles();
        let out = nf.feed(&vec![frame.clone(); 10]);
        assert!(clock::cycles() - start >= 10 * 100_000 - 10_000);
        assert_eq!(out.len(), 10);
        assert!(out.iter().all(|o| o[..6] == frame[6..12] && o[6..12] == frame[..6] && o[12..] == frame[12..]));
        assert_eq!(Harness::new::<Work>("").feed_one(&frame[..10]).unwrap_err(), "malformed_ethernet");
        assert!(Harness::try_new::<Work>("cycles = 1000001").is_err());
    }
}
