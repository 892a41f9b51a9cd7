//! The kernel's router, with nftables in front of it or not.

use super::attach::Attached;
use super::{About, Driver, DutError, Kind, Plan, Ports, Running, Site, bridge, rhythm};
use crate::bed::{Act, Acted};
use std::sync::atomic::AtomicBool;
use traffic::nfpa::tables;

/// Rules of the firewall that no packet of the tests matches, and that every packet is compared with.
const RULES: u32 = 10;
/// Who is told that the packets' destinations are behind the second port; nobody has these addresses.
const NEXT_HOP: (&str, &str) = ("192.0.2.2", "02:00:00:00:00:02");

pub(crate) struct Router {
    ports: Ports,
    filters: bool,
}

impl Router {
    pub(crate) fn new(plan: &Plan) -> Router {
        Router { ports: plan.ports.clone(), filters: plan.kind == Kind::Nftables }
    }
}

impl Driver for Router {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let namespace = attached.kernel(site)?;
        let run = |site: &mut Site, words: &str| namespace.run(site, &words.split(' ').collect::<Vec<_>>());
        let (mac, into, out) = (site.sent.dst_mac, attached.entry(), attached.exit());
        run(site, &format!("ip link set {into} address {mac}"))?;
        run(site, &format!("ip addr add 198.18.255.254/16 dev {into}"))?;
        run(site, &format!("ip addr add 192.0.2.1/30 dev {out}"))?;
        let (hop, hop_mac) = NEXT_HOP;
        run(site, &format!("ip neigh add {hop} lladdr {hop_mac} dev {out} nud permanent"))?;
        for destination in site.sent.destinations.clone() {
            run(site, &format!("ip route replace {destination} via {hop} dev {out}"))?;
        }
        if let Some(table) = site.table("routes.batch", |tables, file| tables::ip_batch(tables, out, file))? {
            run(site, &format!("ip addr add 10.255.0.1/24 dev {out}"))?;
            let path = table.display().to_string();
            namespace.run(site, &["ip", "-batch", &path])?;
        }
        for of in ["all", "default", into] {
            namespace.set(site, &format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"), "0")?;
        }
        namespace.set(site, "/proc/sys/net/ipv4/ip_forward", "1")?;
        let mut remarks = vec![bridge::remark(site)];
        if self.filters {
            run(site, "nft add table ip t")?;
            run(site, "nft add chain ip t f { type filter hook forward priority 0 ; policy accept ; }")?;
            for rule in 0..RULES {
                run(site, &format!("nft add rule ip t f ip saddr 203.0.113.{rule} udp dport {} drop", 1000 + rule))?;
            }
            remarks.push(format!("{RULES} rules of nftables that no packet matches, then accept"));
        }
        let about = About { version: bridge::kernel(), remarks, ..About::default() };
        Ok(Running::new(site, attached, vec![], about))
    }

    fn cannot(&self, act: Act) -> Option<&'static str> {
        matches!(act, Act::Reset { .. }).then_some("measure the reset of kind = \"bridge\" or \"command\"")
    }

    /// Changes: routes that no packet of the tests takes are added and deleted in turn; with nftables, rules that none matches.
    fn act(&mut self, running: &Running, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let attached = running.attached();
        let namespace = attached.kernel(site)?;
        let Act::Changes { per_second } = act else { return Ok(Acted::default()) };
        let line = |words: &str| namespace.line(&words.split(' ').collect::<Vec<_>>());
        if self.filters {
            let mut last = None;
            return Ok(rhythm::changes(per_second, stop, |n| match last.take() {
                None => {
                    let rule = format!("ip saddr 203.0.113.{} udp dport 2000 drop", n / 2 % 256);
                    let said = line(&format!("nft --echo --handle insert rule ip t f {rule}")).quietly(site);
                    last = said.ok().and_then(|said| handle(&said));
                    last.is_some()
                }
                Some(handle) => line(&format!("nft delete rule ip t f handle {handle}")).succeeds(),
            }));
        }
        Ok(rhythm::changes(per_second, stop, |n| {
            let verb = if n.is_multiple_of(2) { "add" } else { "del" };
            let out = attached.exit();
            line(&format!("ip route {verb} 203.0.113.{}/32 via {} dev {out}", n / 2 % 256, NEXT_HOP.0)).succeeds()
        }))
    }
}

/// What nft calls a rule that it has made.
fn handle(said: &str) -> Option<u64> {
    said.split_once("# handle ")?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_handle_is_found() {
        let said =
            "insert rule ip t f ip saddr 203.0.113.7 udp dport 2000 drop # handle 14\n# new generation 12 by process 5";
        assert_eq!((super::handle(said), super::handle("Error: no")), (Some(14), None));
    }
}
