//! Work of a known length.

use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, Node, Operator, frame};
use packet::clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::Ethernet;

/// `work`: spends a number of cycles on each packet and swaps its MAC addresses (OSDI'16 §5.3, Fig. 9: NFs of growing
/// complexity).
pub struct Work;

/// Settings of [`Work`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Cycles of the time-stamp counter spent on each packet, 0 to 1,000,000, beside what swapping costs.
    cycles: u32,
}

/// Cycles at most: at 3 GHz a third of a millisecond.
const MOST: u32 = 1_000_000;

impl Nf for Work {
    type Settings = Settings;
    const KIND: &'static str = "work";
    const ABOUT: &'static str = "Spends a number of cycles on each packet and swaps its MAC addresses: an NF of any complexity, for measurements.";
    const EXAMPLE: &'static str = "cycles = 300";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let cycles = settings.cycles;
        if cycles > MOST {
            let d = Diagnostic::new("is longer than any packet should take").key("cycles").value(cycles);
            return Err(d.remedy(format!("write 0 to {MOST}")));
        }
        // reading the counter is work, too
        let least = (0..1000).map(|_| clock::cycles().wrapping_sub(clock::cycles()).wrapping_neg()).min().unwrap_or(0);
        let wait = u64::from(cycles).saturating_sub(least);
        Ok(frame()
            .parse::<Ethernet>()
            .transform(move |ethernet| {
                if wait != 0 {
                    let from = clock::cycles();
                    while clock::cycles().wrapping_sub(from) < wait {}
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
    use testkit::Bench;

    #[test]
    fn takes_its_time_and_swaps() {
        let frame = wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).pad_to(60).to_vec();
        let mut nf = Bench::of::<Work>("cycles = 100000");
        let from = clock::cycles();
        let out = nf.feed(&vec![frame.clone(); 10]);
        assert!(clock::cycles() - from >= 10 * 100_000 - 10_000);
        assert_eq!(out.len(), 10);
        assert!(out.iter().all(|o| o[..6] == frame[6..12] && o[6..12] == frame[..6] && o[12..] == frame[12..]));
        assert_eq!(Bench::of::<Work>("").one(&frame[..10]).unwrap_err(), "malformed_ethernet");
        assert!(Bench::try_of::<Work>("cycles = 1000001").is_err());
    }
}
