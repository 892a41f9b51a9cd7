//! OpenFlow flows that forward as the router of a chain file does.

use crate::dut::spec::ChainText;
use ipnet::IpNet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;

/// The settings of `l3fwd` that flows are made from.
#[derive(Deserialize)]
struct Router {
    #[serde(default)]
    interface: BTreeMap<String, Interface>,
    #[serde(flatten)]
    own: Routes,
    #[serde(default)]
    tenant: BTreeMap<String, Routes>,
    /// File of further routes.
    routes: Option<toml::Value>,
}

#[derive(Deserialize)]
struct Interface {
    addresses: Vec<IpNet>,
    mac: Option<String>,
    port: Option<String>,
    tenant: Option<String>,
}

/// Routes and neighbours of the router or a tenant.
#[derive(Default, Deserialize)]
struct Routes {
    #[serde(default)]
    route: Vec<Route>,
    #[serde(default)]
    neighbour: BTreeMap<IpAddr, String>,
}

#[derive(Deserialize)]
struct Route {
    prefix: IpNet,
    #[serde(default)]
    via: Vec<IpAddr>,
    #[serde(default)]
    hosts: bool,
}

/// Flows of a router.
pub(super) struct RouteFlows {
    router: Router,
    /// Numbers of OpenFlow ports by the name of the chain's port.
    ports: BTreeMap<String, usize>,
}

/// Port and MAC address of an interface.
struct Endpoint<'a> {
    port: usize,
    mac: &'a str,
}

impl RouteFlows {
    /// Reads the only router of a chain file.
    ///
    /// # Errors
    /// The problem, if there is not exactly one router.
    pub(super) fn new(chain: &ChainText) -> Result<RouteFlows, String> {
        let table: toml::Table = chain.text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
        let nfs = table.get("nf").and_then(toml::Value::as_table).into_iter().flat_map(|nfs| nfs.values());
        let mut routers = nfs.filter(|nf| nf.get("kind").and_then(toml::Value::as_str) == Some("l3fwd"));
        let (Some(router), None) = (routers.next(), routers.next()) else {
            return Err("has no router, or several: one NF of kind l3fwd is needed".to_owned());
        };
        let router: Router = router.clone().try_into().map_err(|e: toml::de::Error| e.message().to_owned())?;
        if router.routes.is_some() {
            return Err(
                "has a router with a file of routes, which are not made into flows: write them as `route`".to_owned()
            );
        }
        Ok(RouteFlows { router, ports: chain.ports.iter().cloned().zip(1..).collect() })
    }

    /// Writes the flows, one for each route, or for each address of a route with `hosts`. Returns their number.
    ///
    /// # Errors
    /// If a route has no or several next hops, or a next hop has no MAC address or is on no network.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<usize> {
        let tenants = self.router.tenant.iter().map(|(name, routes)| (Some(name), routes));
        let mut count = 0;
        for (tenant, routes) in tenants.chain([(None, &self.router.own)]) {
            for route in &routes.route {
                count += self.write_route(to, tenant, routes, route)?;
            }
        }
        Ok(count)
    }

    fn write_route(
        &self,
        to: &mut impl Write,
        tenant: Option<&String>,
        routes: &Routes,
        route: &Route,
    ) -> io::Result<usize> {
        let problem =
            |problem: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {problem}", route.prefix));
        let [via] = route.via[..] else { return Err(problem("needs one next hop")) };
        let next = routes.neighbour.get(&via).ok_or_else(|| problem("its next hop is no neighbour of the file"))?;
        let interfaces: Vec<&String> =
            self.router.interface.iter().filter(|(_, i)| i.tenant.as_ref() == tenant).map(|(name, _)| name).collect();
        let reaches = |name: &&&String| self.router.interface[**name].addresses.iter().any(|net| net.contains(&via));
        let out = interfaces.iter().find(reaches).ok_or_else(|| problem("its next hop is on no network"))?;
        let out = self.endpoint(out).ok_or_else(|| problem("its interface has no port or MAC address"))?;
        let (protocol, field) = if via.is_ipv4() { ("ip", "nw_dst") } else { ("ipv6", "ipv6_dst") };
        let mut count = 0;
        for name in interfaces.iter().filter(|name| !reaches(name)) {
            let from = self.endpoint(name).ok_or_else(|| problem("an interface has no port or MAC address"))?;
            let mut write = |net: IpNet| {
                count += 1;
                writeln!(
                    to,
                    "priority={},in_port={},{protocol},dl_dst={},{field}={net},\
                     actions=dec_ttl,mod_dl_src:{},mod_dl_dst:{next},output:{}",
                    net.prefix_len(),
                    from.port,
                    from.mac,
                    out.mac,
                    out.port,
                )
            };
            match route.prefix {
                IpNet::V4(net) if route.hosts => {
                    let last = u32::from(net.broadcast());
                    (u32::from(net.network())..=last)
                        .try_for_each(|a| write(IpNet::from(IpAddr::from(a.to_be_bytes()))))?;
                }
                _ if route.hosts => return Err(problem("hosts of IPv6 networks are not supported")),
                net => write(net)?,
            }
        }
        Ok(count)
    }

    /// Returns the port and the MAC address of an interface.
    fn endpoint(&self, name: &str) -> Option<Endpoint<'_>> {
        let interface = self.router.interface.get(name)?;
        let port = interface.port.as_deref().unwrap_or(name);
        Some(Endpoint { port: *self.ports.get(port)?, mac: interface.mac.as_deref()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn tenants_with_shared_ports_have_flows_for_their_routes() {
        let text = "[nf.r]\nkind = \"l3fwd\"\n\
             interface.a1 = { port = \"lan\", addresses = [\"10.0.0.1/24\"], mac = \"02:00:00:00:00:01\", tenant = \"a\" }\n\
             interface.a2 = { port = \"wan\", addresses = [\"10.1.0.1/24\"], mac = \"02:00:00:00:00:02\", tenant = \"a\" }\n\
             tenant.a.route = [{ prefix = \"198.18.0.0/31\", hosts = true, via = [\"10.1.0.9\"] },\n\
             { prefix = \"198.19.0.0/16\", via = [\"10.1.0.9\"] }]\n\
             tenant.a.neighbour = { \"10.1.0.9\" = \"02:00:00:00:00:09\" }\n";
        let chain = ChainText {
            file: PathBuf::new(),
            folder: PathBuf::new(),
            ports: vec!["lan".to_owned(), "wan".to_owned()],
            text: text.to_owned(),
            has_sandboxes: false,
        };
        let mut written = vec![];
        let flows = RouteFlows::new(&chain).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(flows.write(&mut written).unwrap(), 3);
        let actions = "actions=dec_ttl,mod_dl_src:02:00:00:00:00:02,mod_dl_dst:02:00:00:00:00:09,output:2";
        let flow = |len: u8, net: &str| {
            format!("priority={len},in_port=1,ip,dl_dst=02:00:00:00:00:01,nw_dst={net},{actions}\n")
        };
        let expected = [flow(32, "198.18.0.0/32"), flow(32, "198.18.0.1/32"), flow(16, "198.19.0.0/16")].concat();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
