//! A router whose control plane is in a namespace of its own.

use super::gateway::start_with_socket;
use super::instance::command;
use super::namespace::Namespace;
use super::{Running, Said, Scratch, Summary};

/// MAC address of the router's interface `lan`.
pub(crate) const LAN_MAC: &str = "02:00:00:00:01:00";

/// A router between the hosts `a` and `b`, whose control plane is in `control`.
pub(crate) struct Lab {
    pub(crate) scratch: Scratch,
    pub(crate) a: Namespace,
    pub(crate) b: Namespace,
    pub(crate) control: Namespace,
    _own: Namespace,
    pub(crate) bondstone: Running,
}

impl Lab {
    /// Starts a router; `more` is appended to its settings, in which `CONTROL` is the namespace of the control plane.
    pub(crate) fn start(name: &str, more: &str) -> Lab {
        let namespace = |of: &str| Namespace::new(&format!("{name}-{of}"));
        let (a, b, control, own) = (namespace("a"), namespace("b"), namespace("c"), namespace("own"));
        let scratch = Scratch::new();
        let text = format!(
            "bondstone = 1\n\
             port.lan = {{ device = \"tap:a0\", namespace = \"{a}\" }}\n\
             port.wan = {{ device = \"tap:b0\", namespace = \"{b}\" }}\n\
             port.lan-host = {{ device = \"tap:lan\", namespace = \"{control}\" }}\n\
             port.wan-host = {{ device = \"tap:wan\", namespace = \"{control}\" }}\n\
             chain = [{{ path = [\"lan\", \"router\"], cores = [0] }}, {{ path = [\"wan\", \"router\"], cores = [1] }},\n\
             {{ path = [\"lan-host\", \"router\"], cores = [0] }}, {{ path = [\"wan-host\", \"router\"], cores = [1] }}]\n\
             [nf.router]\nkind = \"l3fwd\"\n\
             interface.lan = {{ addresses = [\"10.1.0.1/24\", \"fd01::1/64\"], mac = \"{LAN_MAC}\", mtu = 1400, \
             representor = \"lan-host\" }}\n\
             interface.wan = {{ addresses = [\"10.2.0.1/24\", \"fd02::1/64\"], representor = \"wan-host\" }}\n{more}",
            a = a.0,
            b = b.0,
            control = control.0
        );
        let file = scratch.write("router.toml", text.replace("CONTROL", &control.0));
        let bondstone = start_with_socket(&own, &file, &scratch.path("sockets"));
        for (n, host, interface) in [(1, &a, "a0"), (2, &b, "b0")] {
            host.configure(interface, &[&format!("10.{n}.0.2/24"), &format!("fd0{n}::2/64")]);
            host.ip(&format!("route add default via 10.{n}.0.1"));
            host.ip(&format!("route add default via fd0{n}::1"));
        }
        Lab { scratch, a, b, control, _own: own, bondstone }
    }

    /// Replaces parts of the chain file and reloads it.
    #[track_caller]
    pub(crate) fn reload(&self, parts: &[(&str, &str)]) -> Said {
        let mut text = std::fs::read_to_string(self.scratch.path("router.toml")).unwrap();
        for (from, to) in parts {
            assert!(text.contains(from), "{from:?} in {text}");
            text = text.replace(from, to);
        }
        let file = self.scratch.write("router.toml", text);
        command(&self.scratch.path("sockets"), &["reload", file.to_str().unwrap()])
    }

    /// Stops the router, whose packets are all accounted for, and dropped by the usual reasons or those in `more`; returns its entry of the summary.
    #[track_caller]
    pub(crate) fn stop(self, more: &[&str]) -> Summary {
        let summary = self.bondstone.terminate().summary(130);
        let router = summary.nf("router");
        let expected = ["consumed", "multicast", "punt_exceeded", "neighbour_unresolved", "inject_refused"];
        let drops = router.0["drops"].as_object().unwrap();
        assert!(drops.keys().all(|reason| expected.contains(&&**reason) || more.contains(&&**reason)), "{}", router.0);
        router
    }
}
