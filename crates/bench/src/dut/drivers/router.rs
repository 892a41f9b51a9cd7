//! The Linux router, without and with an nftables rule set.

use super::common::{kernel, periodic};
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::spec::{DutSpec, Forward, Ports};
use crate::dut::started::StartedDevice;
use crate::trial::{Disturbance, DisturbanceReport};
use std::sync::atomic::AtomicBool;
use traffic::nfpa::tables;

/// Number of nftables rules; none matches a test packet, so every packet is compared with all of them.
const RULES: u32 = 10;
/// Unassigned address and MAC address of the next hop of all routes.
const NEXT_HOP: (&str, &str) = ("192.0.2.2", "02:00:00:00:00:02");
const PORTS: &[Ports] = &[Ports::AfPacket, Ports::AfXdp];

pub(crate) struct RouterDriver;

impl Driver for RouterDriver {
    fn name(&self) -> &'static str {
        "router"
    }

    fn summary(&self) -> &'static str {
        "the Linux router, in a network namespace"
    }

    fn ports(&self) -> &'static [Ports] {
        PORTS
    }

    fn default_forward(&self) -> Forward {
        Forward::Route
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(Router { ports: spec.ports.clone(), has_rules: false })
    }
}

pub(crate) struct NftablesDriver;

impl Driver for NftablesDriver {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn summary(&self) -> &'static str {
        "the Linux router with an nftables rule set"
    }

    fn ports(&self) -> &'static [Ports] {
        PORTS
    }

    fn default_forward(&self) -> Forward {
        Forward::Route
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(Router { ports: spec.ports.clone(), has_rules: true })
    }
}

struct Router {
    ports: Ports,
    has_rules: bool,
}

impl Device for Router {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let attachment = Attachment::new(context, &self.ports)?;
        let namespace = attachment.namespace(context)?;
        let run = |context: &mut DutContext, command: &str| namespace.run_text(context, command);
        let (mac, ingress, egress) = (context.traffic.dst_mac, attachment.ingress(), attachment.egress());
        run(context, &format!("ip link set {ingress} address {mac}"))?;
        run(context, &format!("ip addr add 198.18.255.254/16 dev {ingress}"))?;
        run(context, &format!("ip addr add 192.0.2.1/30 dev {egress}"))?;
        let (hop, hop_mac) = NEXT_HOP;
        run(context, &format!("ip neigh add {hop} lladdr {hop_mac} dev {egress} nud permanent"))?;
        for destination in context.traffic.destinations.clone() {
            run(context, &format!("ip route replace {destination} via {hop} dev {egress}"))?;
        }
        if let Some(table) = context.write_table("routes.batch", |t, file| tables::ip_batch(t, egress, file))? {
            run(context, &format!("ip addr add 10.255.0.1/24 dev {egress}"))?;
            let path = table.display().to_string();
            namespace.run(context, &["ip", "-batch", &path])?;
        }
        for interface in ["all", "default", ingress] {
            namespace.write(context, &format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"), "0")?;
        }
        namespace.write(context, "/proc/sys/net/ipv4/ip_forward", "1")?;
        let mut remarks = vec![kernel::cpu_remark(context)];
        if self.has_rules {
            run(context, "nft add table ip t")?;
            run(context, "nft add chain ip t f { type filter hook forward priority 0 ; policy accept ; }")?;
            for n in 0..RULES {
                let rule = format!("ip saddr 203.0.113.{n} udp dport {} drop", 1000 + n);
                run(context, &format!("nft add rule ip t f {rule}"))?;
            }
            remarks.push(format!("{RULES} nftables rules that match no packet, then accept"));
        }
        let description = Description { version: kernel::version(), remarks, ..Description::default() };
        Ok(StartedDevice::new(context, attachment, vec![], description))
    }

    fn unsupported(&self, disturbance: Disturbance) -> Option<&'static str> {
        matches!(disturbance, Disturbance::Reset { .. })
            .then_some("measure the reset of kind = \"bridge\" or \"command\"")
    }

    /// Changes: adds and deletes routes that no test packet uses; with nftables, rules that no test packet matches.
    fn disturb(
        &mut self,
        started: &StartedDevice,
        context: &DutContext,
        disturbance: Disturbance,
        stop: &AtomicBool,
    ) -> Result<DisturbanceReport, DutError> {
        let attachment = started.attachment();
        let namespace = attachment.namespace(context)?;
        let Disturbance::Changes { per_second } = disturbance else { return Ok(DisturbanceReport::default()) };
        let command = |words: &str| namespace.command(&words.split(' ').collect::<Vec<_>>());
        if self.has_rules {
            let mut inserted = None;
            return Ok(periodic::repeat_changes(per_second, stop, |n| match inserted.take() {
                None => {
                    let rule = format!("ip saddr 203.0.113.{} udp dport 2000 drop", n / 2 % 256);
                    let insert = command(&format!("nft --echo --handle insert rule ip t f {rule}"));
                    inserted = insert.run_unrecorded(context).ok().and_then(|output| parse_handle(&output));
                    inserted.is_some()
                }
                Some(handle) => command(&format!("nft delete rule ip t f handle {handle}")).succeeds(),
            }));
        }
        Ok(periodic::repeat_changes(per_second, stop, |n| {
            let verb = if n.is_multiple_of(2) { "add" } else { "del" };
            let (host, hop, egress) = (n / 2 % 256, NEXT_HOP.0, attachment.egress());
            command(&format!("ip route {verb} 203.0.113.{host}/32 via {hop} dev {egress}")).succeeds()
        }))
    }
}

/// Returns the handle of the rule that nft has inserted.
fn parse_handle(output: &str) -> Option<u64> {
    output.split_once("# handle ")?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parses_the_handle_of_a_rule() {
        let output =
            "insert rule ip t f ip saddr 203.0.113.7 udp dport 2000 drop # handle 14\n# new generation 12 by process 5";
        assert_eq!((super::parse_handle(output), super::parse_handle("Error: no")), (Some(14), None));
    }
}
