//! Checks that routers and tenants do not share what a routing daemon uses: namespaces, and servers for its routes.

use super::checker::Checker;
use crate::plan::{NfConfig, Port};
use graph::ControlPlane;
use std::collections::BTreeMap;

/// Names that the kernel has for other things: interfaces of each namespace, and settings of all interfaces.
const RESERVED: [&str; 3] = ["all", "default", "lo"];

impl Checker<'_> {
    pub(super) fn control_planes(&mut self, nfs: &[NfConfig], ports: &[Port]) {
        let (mut namespaces, mut servers) = (BTreeMap::new(), BTreeMap::new());
        for nf in nfs {
            for ControlPlane { tenant, namespace, .. } in nf.factory.control_planes() {
                let owner = owner(&nf.name, Some(&tenant));
                if let Some(other) = namespaces.insert(namespace.clone(), owner.clone()) {
                    let problem = format!("network namespace of {other} and of {owner}");
                    self.error(nf.span_of("tenant"), &namespace, problem, "use one for each tenant");
                }
            }
            for server in nf.factory.route_servers() {
                let key = if server.tenant.is_some() { "tenant" } else { "fpm" };
                let owner = owner(&nf.name, server.tenant.as_deref());
                let place = (server.namespace.clone(), server.listen, server.table);
                if let Some(other) = servers.insert(place, owner.clone()) {
                    let namespace = server.namespace.map_or(String::new(), |name| format!(" in namespace {name}"));
                    let problem = format!(
                        "address{namespace} at which {other} and {owner} receive the routes of table {}",
                        server.table
                    );
                    let remedy = "use different addresses, namespaces or tables";
                    self.error(nf.span_of(key), &server.listen.to_string(), problem, remedy);
                }
            }
        }
        for port in ports {
            self.names_of_the_kernel(port);
        }
    }

    /// Checks the names of the namespace and the tap of a port.
    fn names_of_the_kernel(&mut self, port: &Port) {
        for (name, what) in [(port.namespace.as_deref(), "network namespace"), (port.tap(), "tap")] {
            let Some(name) = name.filter(|name| name.starts_with('-') || RESERVED.contains(name)) else { continue };
            let remedy = format!("use a name that does not begin with - and is none of {}", RESERVED.join(", "));
            self.error(port.device_span.clone(), name, format!("cannot be the name of a {what}"), remedy);
        }
    }
}

fn owner(nf: &str, tenant: Option<&str>) -> String {
    tenant.map_or(nf.to_owned(), |tenant| format!("tenant {tenant} of {nf}"))
}

#[cfg(test)]
mod tests {
    use crate::ChainFile;
    use std::path::Path;

    /// Returns the errors of a file with two routers that have these settings.
    fn errors(first: &str, second: &str) -> String {
        let router = |n: usize, settings: &str| {
            format!(
                "[port.lan{n}]\ndevice = \"null\"\n[nf.router{n}]\nkind = \"l3fwd\"\n{settings}\n\
                 [[chain]]\npath = [\"lan{n}\", \"router{n}\"]\n"
            )
        };
        let text = format!("bondstone = 1\n{}{}", router(1, first), router(2, second));
        let errors = ChainFile::parse(&text, Path::new("two.toml"), &nf::registry()).err().unwrap_or_default();
        errors.iter().map(|e| format!("{e}\n")).collect()
    }

    fn tenant(router: usize, name: &str, settings: &str) -> String {
        format!(
            "interface.lan{router} = {{ addresses = [\"10.0.{router}.1/24\"], tenant = \"{name}\" }}\n\
             tenant.{name} = {{ {settings} }}"
        )
    }

    fn plain(router: usize, more: &str) -> String {
        format!("interface.lan{router} = {{ addresses = [\"10.0.{router}.1/24\"] }}\n{more}")
    }

    #[test]
    fn routers_do_not_share_a_namespace() {
        let blue = tenant(1, "blue", "namespace = \"shared\"");
        assert_eq!(errors(&blue, &tenant(2, "red", "namespace = \"other\"")), "");
        let error = errors(&blue, &tenant(2, "red", "namespace = \"shared\""));
        let words = ["\"shared\"", "tenant blue of router1", "tenant red of router2", "use one for each"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }

    #[test]
    fn a_table_at_an_address_is_that_of_one_router() {
        let with = |fpm: &str| plain(2, &format!("fpm = {{ {fpm} }}"));
        for (first, second, words) in [
            (plain(1, "fpm = {}"), with(""), Some(["127.0.0.1:2620", "router1 and router2", "table 254"])),
            (plain(1, "fpm = {}"), with("table = 10"), None),
            (plain(1, "fpm = {}"), with("listen = \"127.0.0.1:2621\""), None),
            (plain(1, "fpm = {}"), with("namespace = \"x\""), None),
            (
                tenant(1, "blue", "fpm.namespace = \"x\""),
                with("namespace = \"x\""),
                Some(["in namespace x", "tenant blue of router1 and router2", "127.0.0.1:2620"]),
            ),
        ] {
            let error = errors(&first, &second);
            let is_expected = words.map_or(error.is_empty(), |words| words.iter().all(|word| error.contains(word)));
            assert!(is_expected, "{first}\n{second}\n{error}");
        }
    }

    #[test]
    fn names_that_the_kernel_uses_are_refused() {
        for name in super::RESERVED.iter().chain(&["-x"]) {
            let error = errors(&tenant(1, "blue", &format!("namespace = \"{name}\"")), &plain(2, ""));
            assert!(error.contains(&format!("{name:?}: cannot be the name of a network namespace")), "{error}");
            let tap = format!("[port.t]\ndevice = \"tap:{name}\"\n[[chain]]\npath = [\"t\", \"lan2\"]");
            let error = errors(&plain(1, ""), &plain(2, &format!("\n{tap}\n")));
            assert!(error.contains(&format!("{name:?}: cannot be the name of a tap")), "{error}");
        }
    }
}
