//! Spreading packets over several ports.

use crate::settings::port_list;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Nf, Node};
use packet::{BURST, Batch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::flow;

/// `spread`: distributes packets over several ports, as SoftNIC does over the interfaces of a virtual machine.
pub struct Spread;

/// Maximum number of ports.
const MAX_PORTS: usize = 128;

/// Selection of the port of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// By symmetric flow hash, which preserves the packet order of a flow. Non-IP packets go to the first port.
    #[default]
    Flow,
    /// The next port for each burst. Load is balanced evenly, but packets of a flow may be reordered.
    RoundRobin,
}

/// Settings of [`Spread`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Names of 2 to 128 ports of the chain file.
    ports: Vec<String>,
    /// Selection of the port: "flow" sends all packets of a flow, in both directions, to one port; "round-robin" sends
    /// each burst to the next port.
    by: By,
}

struct SpreadNode {
    ports: u8,
    by: By,
    /// Port of the next burst, for round robin.
    next: u8,
}

impl Nf for Spread {
    type Settings = Settings;
    const KIND: &'static str = "spread";
    const ABOUT: &'static str =
        "Distributes packets over several ports by symmetric flow hash, or burst by burst in turn.";
    const SPREAD: graph::Spread = graph::Spread::Any;
    const EXAMPLE: &'static str = "ports = [\"lan\", \"wan\"]";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.ports.clone()
    }

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { ports, by } = settings;
        port_list::check(ports, 2..=MAX_PORTS, "packets are spread over 2 to 128 ports")?;
        Ok(SpreadNode { ports: ports.len() as u8, by: *by, next: 0 })
    }
}

impl Node for SpreadNode {
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        // output 0 is the next hop of the path; the outputs of the ports follow
        match self.by {
            By::RoundRobin => {
                cx.set_output(1 + self.next);
                self.next = (self.next + 1) % self.ports;
            }
            By::Flow => {
                let (ports, mut of, mut n, mut others) = (u32::from(self.ports), [0; BURST], 0, 0u64);
                batch.for_each(
                    #[inline(always)]
                    |packet| {
                        let port = flow::share(flow::symmetric_hash(packet.data()), ports) as u8;
                        of[n & (BURST - 1)] = port;
                        others |= u64::from(port != 0) << n;
                        n += 1;
                    },
                );
                if others != 0 {
                    batch.extract_mask(others, |n, packet| cx.emit(1 + of[n & (BURST - 1)], packet));
                }
                cx.set_output(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;
    use testkit::Harness;
    use wire::build;

    fn frames(flows: u16) -> Vec<Vec<u8>> {
        (0..flows).map(|n| build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000 + n, 53).to_vec()).collect()
    }

    #[test]
    fn sends_bursts_to_ports_in_turn() {
        let mut nf = Harness::new::<Spread>("ports = [\"a\", \"b\", \"c\"]\nby = \"round-robin\"");
        for turn in [1, 2, 3, 1] {
            let out = nf.feed_input(0, &frames(10));
            let expected: Vec<_> = (0..4).map(|port| if port == turn { frames(10) } else { vec![] }).collect();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn sends_both_directions_of_a_flow_to_one_port() {
        let mut nf = Harness::new::<Spread>("ports = [\"a\", \"b\"]");
        let lengths = |outputs: &[Vec<Vec<u8>>]| outputs.iter().map(Vec::len).collect::<Vec<_>>();
        let requests = nf.feed_input(0, &frames(1000));
        assert!(
            requests[0].is_empty() && requests[1..].iter().all(|port| port.len() > 400),
            "{:?}",
            lengths(&requests)
        );
        assert_eq!(nf.feed_input(0, &frames(1000)), requests);
        let replies: Vec<_> =
            (0..1000).map(|n| build::udp4([10, 0, 0, 2], [10, 0, 0, 1], 53, 1000 + n).to_vec()).collect();
        assert_eq!(lengths(&nf.feed_input(0, &replies)), lengths(&requests));
        // a frame without IP addresses
        assert_eq!(nf.feed_input(0, &[vec![0; 60]])[1].len(), 1);
    }

    #[test]
    fn rejects_too_few_and_duplicate_ports() {
        for settings in ["", "ports = [\"a\"]", "ports = [\"a\", \"a\"]"] {
            assert!(Harness::try_new::<Spread>(settings).unwrap_err().key == Some("ports"), "{settings}");
        }
    }
}
