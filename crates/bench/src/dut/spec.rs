//! Specification of an external device under test, as a scenario states it.

use super::QUEUE_SIZE;
use ::remote::RemoteHost;
use config::ChainFile;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A device under test outside of this process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DutSpec {
    /// Name of its driver.
    pub kind: String,
    /// Ports between generator and device.
    pub ports: Ports,
    /// CPUs that it may use.
    pub cpus: Vec<usize>,
    /// Environment of its programs.
    pub env: Env,
    /// Forwarding behaviour.
    pub forward: Forward,
    /// Chain that it runs, or whose sandboxed NFs it connects as the external switch.
    pub chain: Option<ChainText>,
    /// Commands that start and stop it, for drivers that take them.
    pub commands: CustomCommands,
    /// Existing interfaces that it uses, in the order of its ports; empty if they are created.
    pub interfaces: Vec<String>,
    /// Host that it runs on, if not this one.
    pub remote: Option<RemoteHost>,
}

/// The text of a checked chain file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainText {
    /// Path of the file.
    pub file: PathBuf,
    /// Directory that paths in it are relative to; empty if it names no files.
    pub folder: PathBuf,
    /// Names of its ports in order.
    pub ports: Vec<String>,
    /// Content of the file.
    pub text: String,
    /// True if NFs are in sandboxes.
    pub has_sandboxes: bool,
}

impl ChainText {
    /// Returns the text of a chain file.
    pub fn of(file: &ChainFile) -> ChainText {
        ChainText {
            file: file.file.clone(),
            folder: file.folder().to_owned(),
            ports: file.ports.iter().map(|p| p.name.clone()).collect(),
            text: file.text.clone(),
            has_sandboxes: !file.sandboxes.is_empty(),
        }
    }

    /// Returns the directory that paths in it are relative to, if it has one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        Some(&*self.folder).filter(|folder| *folder != Path::new(""))
    }
}

/// Custom commands of a device. Each is run by `sh -c` with the environment variables `BONDSTONE_FOLDER`,
/// `BONDSTONE_CPUS` and
/// `BONDSTONE_PORT0`, …, the device's socket or interface for each port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomCommands {
    /// Command that runs for as long as the device does.
    pub start: String,
    /// Command that succeeds once the device is ready.
    pub ready: Option<String>,
    /// Command that is run before `start` is terminated.
    pub stop: Option<String>,
    /// Command that resets the device; it returns when the device should forward again.
    pub reset: Option<String>,
    /// Command that makes the change of number `$BONDSTONE_CHANGE`.
    pub change: Option<String>,
}

/// Environment of a device's programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Env {
    /// Processes on the host.
    #[default]
    Native,
    /// Containers of runc.
    Container,
}

/// Ports between generator and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ports {
    /// vhost-user; the device is the back end.
    VhostUser,
    /// vhost-user; the device is the front end, as in a container.
    VirtioUser,
    /// memif; the device is the server.
    Memif,
    /// Interfaces that the device creates, opened by the generator with AF_PACKET.
    Tap,
    /// veth pairs, opened by the generator with AF_PACKET.
    AfPacket,
    /// veth pairs, opened by the generator with AF_XDP.
    AfXdp,
    /// Devices that the generator opens, as in a chain file.
    Devices(Vec<String>),
}

/// Forwarding behaviour of a device, which determines how a packet may be changed on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Forward {
    /// From each port to its neighbour; packets are unchanged.
    #[default]
    Ports,
    /// By MAC address; packets are unchanged.
    Bridge,
    /// By IP address; MAC addresses change and the TTL is decremented.
    Route,
    /// By the table of the NFPA trace that is sent; packets may change.
    Table,
    /// Unknown; packets may change.
    Any,
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
            _ => return Err("unknown forwarding behaviour; known are ports, bridge, route, table and any".to_owned()),
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
    /// Problem and remedy.
    type Err = (&'static str, &'static str);

    fn from_str(text: &str) -> Result<Env, (&'static str, &'static str)> {
        match text {
            "native" => Ok(Env::Native),
            "container" => Ok(Env::Container),
            "vm" => Err((
                "virtual machines cannot be started",
                "start it yourself and use kind = \"external\", or kind = \"command\" with its vhost-user sockets; or \
                 set env = \"container\"",
            )),
            _ => Err(("unknown environment", "set env = \"native\" or \"container\"")),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ports::VhostUser => f.write_str("vhost-user"),
            Ports::VirtioUser => f.write_str("virtio-user"),
            Ports::Memif => f.write_str("memif"),
            Ports::Tap => f.write_str("tap"),
            Ports::AfPacket => f.write_str("af_packet"),
            Ports::AfXdp => f.write_str("af_xdp"),
            Ports::Devices(all) => f.write_str(&all.join(" ")),
        }
    }
}

impl Ports {
    /// Returns true if the ports are sockets, which also containers can use.
    pub fn are_sockets(&self) -> bool {
        matches!(self, Ports::VhostUser | Ports::VirtioUser | Ports::Memif)
    }

    /// Returns the device that the generator opens for a socket or an interface, as in a chain file.
    pub(crate) fn generator_device(&self, port: &str) -> String {
        match self {
            Ports::VhostUser => format!("virtio-user:{port},queue_size={QUEUE_SIZE}"),
            Ports::VirtioUser => format!("vhost:{port}"),
            Ports::Memif => format!("memif:{port},role=client"),
            Ports::Tap | Ports::AfPacket => format!("af_packet:{port}"),
            Ports::AfXdp => format!("af_xdp:{port}"),
            Ports::Devices(_) => port.to_owned(),
        }
    }

    /// Returns the number of ports.
    pub fn count(&self) -> usize {
        match self {
            Ports::Devices(all) => all.len(),
            _ => 2,
        }
    }
}
