//! What is measured, as a scenario says it.

use super::{Driver, DutError, Site, bondstone, bridge, command, external, ovs, remote, router, testpmd, vpp, wire};
use config::ChainFile;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A device under test that is no chain in this process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Which program.
    pub kind: Kind,
    /// How the generator is joined to it.
    pub ports: Ports,
    /// CPUs that it may use.
    pub cpus: Vec<usize>,
    /// What its programs run in.
    pub env: Env,
    /// What it does with packets.
    pub forward: Forward,
    /// The chain of `bondstone`, or that whose NFs are behind walls with this device as the switch between.
    pub chain: Option<ChainText>,
    /// Commands of the user's, of `command`.
    pub hooks: Hooks,
    /// Interfaces that the device is given, in the order of its ports; none where they are made for it.
    pub inner: Vec<String>,
    /// The machine that it runs on, if that is not this one.
    pub elsewhere: Option<Elsewhere>,
}

/// Another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// How ssh calls it.
    pub host: String,
    /// This program there, as its shell takes it.
    pub program: String,
}

/// A chain file that was read and found right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainText {
    /// Where it is.
    pub file: PathBuf,
    /// The folder from which what it names is looked for.
    pub folder: PathBuf,
    /// The names of its ports, in their order.
    pub ports: Vec<String>,
    /// All of it.
    pub text: String,
}

impl ChainText {
    /// Of a chain file.
    pub fn of(file: &ChainFile) -> ChainText {
        ChainText {
            file: file.file.clone(),
            folder: file.folder().to_owned(),
            ports: file.ports.iter().map(|p| p.name.clone()).collect(),
            text: file.text.clone(),
        }
    }

    /// The folder that it names files in; a chain of no folder names nothing.
    pub(crate) fn folder(&self) -> Option<&Path> {
        Some(&*self.folder).filter(|folder| *folder != Path::new(""))
    }

    /// Writes a text in its place into a folder where everything lies that it may name.
    ///
    /// # Errors
    /// When that cannot be.
    pub(crate) fn beside(&self, site: &Site, text: &str) -> Result<PathBuf, DutError> {
        let folder = site.path("chain");
        std::fs::create_dir(&folder).map_err(|e| site.file_error(&folder, &e))?;
        if let Some(from) = self.folder() {
            let from = from.canonicalize().map_err(|e| site.file_error(from, &e))?;
            for entry in std::fs::read_dir(&from).map_err(|e| site.file_error(&from, &e))?.flatten() {
                let link = folder.join(entry.file_name());
                std::os::unix::fs::symlink(entry.path(), &link).map_err(|e| site.file_error(&link, &e))?;
            }
        }
        let file = folder.join("as-measured.toml");
        std::fs::write(&file, text).map_err(|e| site.file_error(&file, &e))?;
        Ok(file)
    }
}

/// Commands of a device that the user drives. Each is run by `sh -c`, with `BONDSTONE_FOLDER`, `BONDSTONE_CPUS` and for every
/// port `BONDSTONE_PORT0`, …, the socket or interface of the device's side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooks {
    /// Runs until the device is to stop.
    pub start: String,
    /// Succeeds once it is ready.
    pub ready: Option<String>,
    /// Is run before `start` is ended.
    pub stop: Option<String>,
    /// Resets the device; it is over when the device should forward again.
    pub reset: Option<String>,
    /// Makes the change of number `$BONDSTONE_CHANGE`.
    pub change: Option<String>,
}

/// Programs that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A chain of this program in a process of its own.
    Bondstone,
    /// DPDK's testpmd.
    Testpmd,
    /// Open vSwitch with its userspace datapath.
    Ovs,
    /// FD.io VPP.
    Vpp,
    /// The kernel's bridge in a network namespace.
    Bridge,
    /// The kernel's router in a network namespace.
    Router,
    /// The kernel's router with nftables.
    Nftables,
    /// Commands of the user's.
    Command,
    /// A cable between the generator's ports; not for scenarios.
    Wire,
    /// Nothing that this program starts: what is at the other end of these ports.
    External,
}

/// What a device's programs run in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Env {
    /// Nothing: they are processes beside the generator.
    #[default]
    Native,
    /// Containers of runc.
    Container,
}

/// How a generator is joined to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ports {
    /// Shared memory: the device is the switch's side.
    VhostUser,
    /// veth pairs, at the generator's end by AF_PACKET.
    AfPacket,
    /// veth pairs, at the generator's end by AF_XDP.
    AfXdp,
    /// These devices, as in a chain file.
    Devices(Vec<String>),
}

/// What a device does with packets, and so what may differ between one that was sent and one that came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Forward {
    /// From each port to the next: nothing.
    #[default]
    Ports,
    /// By MAC address: nothing.
    Bridge,
    /// By IP address: MAC addresses, and a time to live that is one less.
    Route,
    /// By the table of NFPA's trace that is sent: whatever that says.
    Table,
    /// Something of its own: all that matters is that the packet comes.
    Any,
}

impl Kind {
    /// All of them, with their names and what they are.
    pub const ALL: [(Kind, &'static str, &'static str); 9] = [
        (Kind::Bondstone, "bondstone", "a chain of Bondstone in a process of its own"),
        (Kind::Testpmd, "testpmd", "DPDK's testpmd"),
        (Kind::Ovs, "ovs", "Open vSwitch, userspace datapath"),
        (Kind::Vpp, "vpp", "FD.io VPP"),
        (Kind::Bridge, "bridge", "the kernel's bridge, in a network namespace"),
        (Kind::Router, "router", "the kernel's router, in a network namespace"),
        (Kind::Nftables, "nftables", "the kernel's router behind a rule set of nftables"),
        (Kind::Command, "command", "your own start, ready and stop commands"),
        (Kind::External, "external", "whatever is at the other end of these ports"),
    ];

    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("wire", |(_, name, _)| name)
    }

    /// What it does unless told otherwise.
    pub fn forward(self) -> Forward {
        match self {
            Kind::Router | Kind::Nftables => Forward::Route,
            Kind::Bridge => Forward::Bridge,
            _ => Forward::default(),
        }
    }

    /// Ports it can have, the first by default.
    pub fn ports(self) -> &'static [Ports] {
        match self {
            Kind::Bondstone | Kind::Ovs | Kind::Command => &[Ports::VhostUser, Ports::AfPacket, Ports::AfXdp],
            Kind::Testpmd | Kind::Vpp => &[Ports::VhostUser, Ports::AfPacket],
            Kind::Bridge | Kind::Router | Kind::Nftables => &[Ports::AfPacket, Ports::AfXdp],
            Kind::External | Kind::Wire => &[],
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let names = || Kind::ALL.map(|(_, name, _)| name).join(", ");
        let found = Kind::ALL.iter().find(|(_, name, _)| *name == text);
        found.map(|(kind, ..)| *kind).ok_or_else(|| format!("is no kind of device; there are {}", names()))
    }
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Forward, String> {
        Ok(match text {
            "ports" => Forward::Ports,
            "bridge" => Forward::Bridge,
            "route" => Forward::Route,
            "table" => Forward::Table,
            "any" => Forward::Any,
            _ => return Err("is nothing that a device does; there are ports, bridge, route, table and any".to_owned()),
        })
    }
}

impl fmt::Display for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Env::Native => "native",
            Env::Container => "container",
        })
    }
}

impl FromStr for Env {
    /// What is wrong, and the remedy.
    type Err = (&'static str, &'static str);

    fn from_str(text: &str) -> Result<Env, (&'static str, &'static str)> {
        match text {
            "native" => Ok(Env::Native),
            "container" => Ok(Env::Container),
            "vm" => Err((
                "virtual machines are not started yet",
                "start it yourself and say kind = \"external\", or kind = \"command\" with its vhost-user sockets; or \
                 write env = \"container\"",
            )),
            _ => Err(("is nothing that a device runs in", "write env = \"native\" or \"container\"")),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ports::VhostUser => f.write_str("vhost-user"),
            Ports::AfPacket => f.write_str("af_packet"),
            Ports::AfXdp => f.write_str("af_xdp"),
            Ports::Devices(all) => f.write_str(&all.join(" ")),
        }
    }
}

impl Ports {
    /// How many.
    pub fn count(&self) -> usize {
        match self {
            Ports::Devices(all) => all.len(),
            _ => 2,
        }
    }

    /// Of one word.
    ///
    /// # Errors
    /// What there is, for what `kind` cannot have.
    pub fn of(kind: Kind, text: &str) -> Result<Ports, String> {
        let found = kind.ports().iter().find(|ports| ports.to_string() == text).cloned();
        found.ok_or_else(|| {
            let all = kind.ports().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            format!("are no ports of {}; there are {all}", kind.name())
        })
    }
}

impl Plan {
    /// What stands in the device's place to know what generator and ports do by themselves: a cable, or the chain without
    /// NFs that is nearest to one. None where only the user can do it.
    pub fn without(&self) -> Option<Plan> {
        const CHAIN: &str = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                             chain = [{ path = [\"in\", \"out\"] }, { path = [\"out\", \"in\"] }]\n";
        let (kind, chain) = match self.ports {
            Ports::Devices(_) => return None,
            Ports::AfPacket | Ports::AfXdp => (Kind::Wire, None),
            Ports::VhostUser => {
                let ports = vec!["in".to_owned(), "out".to_owned()];
                let text = CHAIN.to_owned();
                (Kind::Bondstone, Some(ChainText { file: "wire.toml".into(), folder: PathBuf::new(), ports, text }))
            }
        };
        let (ports, cpus) = (self.ports.clone(), self.cpus.clone());
        let (env, forward, hooks) = (Env::Native, Forward::Ports, Hooks::default());
        Some(Plan { kind, ports, cpus, env, forward, chain, hooks, inner: vec![], elsewhere: None })
    }

    /// Who drives it.
    pub fn driver(&self) -> Box<dyn Driver + Send> {
        if let Some(elsewhere) = &self.elsewhere {
            return Box::new(remote::Remote::new(self, elsewhere));
        }
        match self.kind {
            Kind::Bondstone => Box::new(bondstone::Bondstone::new(self)),
            Kind::Testpmd => Box::new(testpmd::Testpmd::new(self)),
            Kind::Ovs => Box::new(ovs::Ovs::new(self)),
            Kind::Vpp => Box::new(vpp::Vpp::new(self)),
            Kind::Bridge => Box::new(bridge::Bridge::new(self)),
            Kind::Router | Kind::Nftables => Box::new(router::Router::new(self)),
            Kind::Command => Box::new(command::Hooked::new(self)),
            Kind::Wire => Box::new(wire::Wire::new(self)),
            Kind::External => Box::new(external::External::new(self)),
        }
    }
}
