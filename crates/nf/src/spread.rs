//! Several ports as one.

use crate::ports;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Nf, Node};
use packet::{BURST, Batch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::flow;

/// `spread`: hands packets to several ports as if they were one, as SoftNIC does with the interfaces of a virtual machine.
pub struct Spread;

/// Which port a packet goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// That of its flow, so that the order of its packets stays; what has no addresses goes to the first.
    #[default]
    Flow,
    /// The next one, for each burst: all get as much, and the packets of a flow may overtake each other.
    RoundRobin,
}

/// Settings of [`Spread`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Names of ports of the file, two to thirty.
    ports: Vec<String>,
    /// Which of them a packet goes to: "flow", the same for all of a flow in both directions; "round-robin", burst by burst.
    by: By,
}

struct Spreading {
    ports: u8,
    by: By,
    /// Whose turn it is.
    turn: u8,
}

impl Nf for Spread {
    type Settings = Settings;
    const KIND: &'static str = "spread";
    const ABOUT: &'static str =
        "Hands packets to several ports as if they were one: those of a flow to the same, or each burst to the next.";
    const SPREAD: graph::Spread = graph::Spread::Any;
    const EXAMPLE: &'static str = "ports = [\"lan\", \"wan\"]";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.ports.clone()
    }

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { ports, by } = settings;
        ports::check(ports, "packets are spread over two to thirty ports")?;
        Ok(Spreading { ports: ports.len() as u8, by: *by, turn: 0 })
    }
}

impl Node for Spreading {
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        // the first output is the path's, and that of the first port the second
        match self.by {
            By::RoundRobin => {
                cx.leave_by(1 + self.turn);
                self.turn = (self.turn + 1) % self.ports;
            }
            By::Flow => {
                let (ports, mut of, mut n, mut others) = (u32::from(self.ports), [0; BURST], 0, 0u32);
                batch.for_each(
                    #[inline(always)]
                    |packet| {
                        let port = flow::share(flow::symmetric_hash(packet.data()), ports) as u8;
                        of[n & (BURST - 1)] = port;
                        others |= u32::from(port != 0) << n;
                        n += 1;
                    },
                );
                if others != 0 {
                    batch.extract_mask(others, |n, packet| cx.emit(1 + of[n & (BURST - 1)], packet));
                }
                cx.leave_by(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;
    use testkit::Bench;
    use wire::build;

    fn frames(flows: u16) -> Vec<Vec<u8>> {
        (0..flows).map(|n| build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000 + n, 53).to_vec()).collect()
    }

    #[test]
    fn bursts_go_in_turn() {
        let mut nf = Bench::of::<Spread>("ports = [\"a\", \"b\", \"c\"]\nby = \"round-robin\"");
        for turn in [1, 2, 3, 1] {
            let out = nf.feed_by(0, &frames(10));
            let expected: Vec<_> = (0..4).map(|port| if port == turn { frames(10) } else { vec![] }).collect();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_flow_stays_at_its_port_both_ways() {
        let mut nf = Bench::of::<Spread>("ports = [\"a\", \"b\"]");
        let there = nf.feed_by(0, &frames(1000));
        assert!(
            there[0].is_empty() && there[1..].iter().all(|port| port.len() > 400),
            "{:?}",
            there.iter().map(Vec::len)
        );
        assert_eq!(nf.feed_by(0, &frames(1000)), there);
        let back: Vec<_> =
            (0..1000).map(|n| build::udp4([10, 0, 0, 2], [10, 0, 0, 1], 53, 1000 + n).to_vec()).collect();
        let back = nf.feed_by(0, &back);
        assert_eq!(back.iter().map(Vec::len).collect::<Vec<_>>(), there.iter().map(Vec::len).collect::<Vec<_>>());
        // what has no addresses
        assert_eq!(nf.feed_by(0, &[vec![0; 60]])[1].len(), 1);
    }

    #[test]
    fn ports_that_are_none_are_refused() {
        for settings in ["", "ports = [\"a\"]", "ports = [\"a\", \"a\"]"] {
            assert!(Bench::try_of::<Spread>(settings).unwrap_err().key == Some("ports"), "{settings}");
        }
    }
}
