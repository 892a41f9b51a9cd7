//! Checks that representors have ports, records their interfaces there, and counts the ports of DPDK.

use super::paths::Builder;
use crate::device::Device;
use crate::file::{self, File};
use crate::plan::{NfConfig, Port};
use graph::Target;
use toml::Spanned;

/// Adds a tap in its namespace and a chain for each representor that is to have one, unless the file has a port of its
/// name.
pub(super) fn add_ports(nfs: &[NfConfig], ports: &mut Vec<Port>, file: &mut File) {
    for nf in nfs {
        let span = nf.span_of("tenant");
        for representor in nf.factory.representors(&nf.name) {
            let Some(namespace) = representor.namespace else { continue };
            if ports.iter().any(|port| port.name == representor.name) {
                continue;
            }
            let Ok(device) = Device::parse(&format!("tap:{}", representor.interface), &representor.name) else {
                continue;
            };
            ports.push(Port {
                device,
                namespace: Some(namespace),
                device_span: span.clone(),
                ..Port::blank(&representor.name)
            });
            let spanned = |text: &str| Spanned::new(span.clone(), text.to_owned());
            let path = vec![spanned(&representor.name), spanned(&nf.name)];
            let chain = file::Chain::new(spanned(&representor.name), Spanned::new(span.clone(), path));
            file.chain.push(Spanned::new(span.clone(), chain));
        }
    }
}

impl Builder<'_> {
    /// Checks that each representor of an NF is connected in both directions.
    pub(super) fn representors(&mut self) {
        for nf in 0..self.nfs.len() {
            let config = &self.nfs[nf];
            let (name, span) = (config.name.clone(), config.span_of("interface"));
            for representor in config.factory.representors(&name) {
                let at = |names: &[String]| names.iter().position(|n| *n == representor.name);
                let config = &self.nfs[nf];
                let (Some(input), Some(output)) = (at(&config.inputs), at(&config.outputs)) else { continue };
                let port = &representor.name;
                let is_entered =
                    self.hops.iter().any(|hop| usize::from(hop.node) == nf && usize::from(hop.input) == input);
                let problem = match self.edges[nf][output] {
                    Target::Unconnected => Some((
                        "no port has the name of this representor",
                        format!("declare it: [port.{port}] with device = \"tap:{port}\""),
                    )),
                    _ if !is_entered => Some((
                        "no path begins with this representor: packets of the control plane are not received",
                        format!("add [[chain]] with path = [{port:?}, {name:?}]"),
                    )),
                    Target::Port(p) => self.ports.get_mut(usize::from(p)).and_then(|port| {
                        port.representor = Some(representor.clone());
                        unusable_tap(port)
                    }),
                    _ => None,
                };
                if let (Some((problem, remedy)), false) = (problem, self.checker.incomplete) {
                    self.checker.error(span.clone(), port, problem, remedy);
                }
            }
        }
    }

    /// Checks that DPDK can open the devices that it has to open.
    pub(super) fn ports_of_dpdk(&mut self, file: &File) {
        let mut all: Vec<&Port> = self.ports.iter().filter(|port| port.is_of_dpdk()).collect();
        all.sort_by_key(|port| port.device_span.start);
        if let Some(first) = all.get(Port::MAX_OF_DPDK) {
            let name = first.name.clone();
            let span = file.port.keys().find(|key| *key.get_ref() == name).map_or(0..0, Spanned::span);
            let problem =
                format!("the file has more than {} ports besides captures and taps of representors", Port::MAX_OF_DPDK);
            self.checker.error(span, &name, problem, "split the file");
        }
    }
}

/// Returns the problem and the remedy of a representor's tap that cannot be opened without DPDK.
fn unusable_tap(port: &Port) -> Option<(&'static str, String)> {
    let name = port.representor_tap()?;
    if port.existing {
        return Some(("the tap of a representor is created by the run", "remove existing = true".to_owned()));
    }
    let has_arguments = port.device.to_string().contains(',');
    has_arguments.then(|| ("the tap of a representor has no driver arguments", format!("write \"tap:{name}\"")))
}

#[cfg(test)]
mod tests {
    use crate::ChainFile;
    use std::path::Path;

    const ROUTER: &str = "[nf.router]\nkind = \"l3fwd\"\n\
         interface.lan = { addresses = [\"10.0.0.1/24\", \"fd01::1/64\"], mac = \"02:00:00:00:01:00\", mtu = 1400, \
         representor = \"host\" }\n";

    fn parse(more: &str) -> Result<ChainFile, String> {
        let text = format!(
            "bondstone = 1\n[port.lan]\ndevice = \"null\"\n{ROUTER}[[chain]]\npath = [\"lan\", \"router\"]\n{more}"
        );
        let errors = |errors: Vec<diagnostics::Diagnostic>| {
            errors.iter().map(|e| format!("{}: {e}\n", e.line.unwrap_or_default())).collect()
        };
        ChainFile::parse(&text, Path::new("router.toml"), &nf::registry()).map_err(errors)
    }

    const HOST: &str = "[port.host]\ndevice = \"tap:host0\"\n";
    const FROM_HOST: &str = "[[chain]]\npath = [\"host\", \"router\"]\n";

    #[test]
    fn ports_of_representors_have_the_configuration_of_their_interfaces() {
        let file = parse(&format!("{HOST}namespace = \"control\"\n{FROM_HOST}")).unwrap();
        let port = file.ports.iter().find(|port| port.name == "host").unwrap();
        let of = port.representor.as_ref().unwrap();
        assert_eq!((of.mac, of.mtu, port.namespace.as_deref()), ([2, 0, 0, 0, 1, 0], 1400, Some("control")));
        let addresses: Vec<String> = of.addresses.iter().map(|(address, len)| format!("{address}/{len}")).collect();
        assert_eq!(addresses, ["10.0.0.1/24", "fd01::1/64"]);
        assert!(file.ports.iter().all(|port| port.name == "host" || port.representor.is_none()));
        // the output may lead to a port of another name, through another NF
        let edge = "[nf.watch]\nkind = \"count\"\n[[edge]]\nfrom = \"router.host\"\nto = \"watch\"\n\
             [[edge]]\nfrom = \"watch.out\"\nto = \"host\"\n";
        assert!(parse(&format!("{HOST}{FROM_HOST}{edge}")).is_ok());
    }

    #[test]
    fn interfaces_of_a_tenant_with_a_namespace_have_a_tap_in_it() {
        let text = "bondstone = 1\n[port.lan]\ndevice = \"null\"\n[nf.router]\nkind = \"l3fwd\"\n\
             interface.lan = { addresses = [\"10.0.0.1/24\"], tenant = \"blue\" }\n\
             tenant.blue = { namespace = \"blue\", frr.daemons = [\"bgpd\"] }\n[[chain]]\npath = [\"lan\", \"router\"]\n";
        let file = ChainFile::parse(text, Path::new("router.toml"), &nf::registry()).unwrap();
        let port = file.ports.iter().find(|port| port.name == "lan-rep").unwrap();
        assert_eq!((port.device.to_string().as_str(), port.namespace.as_deref()), ("tap:lan", Some("blue")));
        assert_eq!(port.representor.as_ref().map(|of| of.interface.as_str()), Some("lan"));
        assert_eq!(file.chains[1].path, ["lan-rep", "router"]);
        let planes = file.control_planes();
        assert_eq!((planes[0].namespace.as_str(), &planes[0].frr.as_ref().unwrap().daemons[0][..]), ("blue", "bgpd"));
    }

    #[test]
    fn representors_without_a_port_or_a_path_are_errors() {
        for (more, words) in [
            ("", ["6: ", "\"host\"", "no port", "[port.host]"]),
            (HOST, ["6: ", "\"host\"", "no path begins", "path = [\"host\", \"router\"]"]),
            (
                &format!("[port.host]\ndevice = \"tap:host0\"\nexisting = true\n{FROM_HOST}"),
                ["6: ", "\"host\"", "is created by the run", "remove existing"],
            ),
            (
                &format!("[port.host]\ndevice = \"tap:host0,mac=fixed\"\n{FROM_HOST}"),
                ["6: ", "\"host\"", "no driver arguments", "\"tap:host0\""],
            ),
        ] {
            let error = parse(more).err().unwrap();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    /// Returns a file with ports that DPDK opens, representors, and a capture.
    fn many(dpdk: usize, representors: usize) -> Result<ChainFile, String> {
        // a router has at most 64 interfaces
        let router = |n: usize| n / 50;
        let mut text = "bondstone = 1\n".to_owned();
        for n in 0..representors {
            if n % 50 == 0 {
                text += &format!("[nf.router{}]\nkind = \"l3fwd\"\n", router(n));
            }
            text += &format!("interface.i{n} = {{ addresses = [\"10.0.{n}.1/24\"], representor = \"r{n}\" }}\n");
        }
        for n in 0..representors {
            let of = router(n);
            text += &format!("[port.r{n}]\ndevice = \"tap:r{n}\"\n[[chain]]\npath = [\"r{n}\", \"router{of}\"]\n");
            text += &format!("[[edge]]\nfrom = \"router{of}.i{n}\"\nto = \"p0\"\n");
        }
        text += "[port.file]\ndevice = \"pcap:none.pcap\"\n";
        for n in 0..dpdk {
            text += &format!("[port.p{n}]\ndevice = \"null\"\n[[chain]]\npath = [\"p{n}\", \"file\"]\n");
        }
        let errors = |errors: Vec<diagnostics::Diagnostic>| errors.iter().map(|e| format!("{e}\n")).collect();
        ChainFile::parse(&text, Path::new("many.toml"), &nf::registry()).map_err(errors)
    }

    #[test]
    fn only_ports_of_dpdk_are_limited_to_those_of_dpdk() {
        let file = many(32, 200).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(file.ports.iter().filter(|port| port.representor_tap().is_some()).count(), 200);
        let error = many(33, 2).err().unwrap();
        assert!(error.contains("more than 32 ports") && error.contains("\"p32\""), "{error}");
    }

    #[test]
    fn only_new_taps_are_moved_to_a_namespace() {
        for (device, more, word) in [
            ("null", "namespace = \"r\"", "is for taps"),
            ("tap:host0", "namespace = \"r\"\nexisting = true", "exists before the run"),
            ("tap:host0", "namespace = \"a/b\"", "not a name"),
            ("tap:host0", "namespace = \"\"", "not a name"),
        ] {
            let error = parse(&format!("[port.host]\ndevice = {device:?}\n{more}\n{FROM_HOST}")).err().unwrap();
            assert!(error.contains(word), "{error}");
        }
    }
}
