//! The kernel's router, with nftables in front of it or not.

use super::attach::Attached;
use super::{About, Driver, DutError, Kind, Plan, Ports, Site, Started, bridge, rhythm};
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
    attached: Option<Attached>,
}

impl Router {
    pub(crate) fn new(plan: &Plan) -> Router {
        Router { ports: plan.ports.clone(), filters: plan.kind == Kind::Nftables, attached: None }
    }
}

impl Driver for Router {
    fn start(&mut self, site: &mut Site) -> Result<Started, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let namespace = attached.kernel(site)?;
        let run = |site: &mut Site, words: &str| namespace.run(site, &words.split(' ').collect::<Vec<_>>());
        let mac = site.sent.dst_mac;
        run(site, &format!("ip link set p0 address {mac}"))?;
        run(site, "ip addr add 198.18.255.254/16 dev p0")?;
        run(site, "ip addr add 192.0.2.1/30 dev p1")?;
        let (hop, hop_mac) = NEXT_HOP;
        run(site, &format!("ip neigh add {hop} lladdr {hop_mac} dev p1 nud permanent"))?;
        for destination in site.sent.destinations.clone() {
            run(site, &format!("ip route replace {destination} via {hop} dev p1"))?;
        }
        if let Some(table) = site.table("routes.batch", |tables, file| tables::ip_batch(tables, "p1", file))? {
            run(site, "ip addr add 10.255.0.1/24 dev p1")?;
            let path = table.display().to_string();
            namespace.run(site, &["ip", "-batch", &path])?;
        }
        for file in ["all/rp_filter", "default/rp_filter", "p0/rp_filter"] {
            namespace.set(site, &format!("/proc/sys/net/ipv4/conf/{file}"), "0")?;
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
        let about = About { version: bridge::kernel(), configuration: site.notes(), remarks };
        let devices = attached.outer.clone();
        self.attached = Some(attached);
        Ok(Started { devices, about })
    }

    fn check(&mut self) -> Result<(), DutError> {
        self.attached.as_mut().and_then(|a| a.namespace.as_mut()).map_or(Ok(()), |n| n.check("router"))
    }

    fn cannot(&self, act: Act) -> Option<&'static str> {
        matches!(act, Act::Reset { .. }).then_some("measure the reset of kind = \"bridge\" or \"command\"")
    }

    /// Changes: routes that no packet of the tests takes are added and deleted in turn.
    fn act(&mut self, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let Some(attached) = &self.attached else { return Ok(Acted::default()) };
        let namespace = attached.kernel(site)?;
        let Act::Changes { per_second } = act else { return Ok(Acted::default()) };
        Ok(rhythm::changes(per_second, stop, |n| {
            let verb = if n.is_multiple_of(2) { "add" } else { "del" };
            let words = format!("ip route {verb} 203.0.113.{}/32 via {} dev p1", n / 2 % 256, NEXT_HOP.0);
            namespace.line(&words.split(' ').collect::<Vec<_>>()).succeeds()
        }))
    }

    fn stop(&mut self) {
        self.attached = None;
    }
}
