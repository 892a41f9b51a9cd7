//! Device strings of ports.

use crate::source::nearest;
use crate::virtual_function::VirtualFunction;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The device of a port. Text after the first comma is passed to the DPDK driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// `pcap:FILE`: a capture file (pcap or pcapng, also gzipped), read if a path begins with the port and written if
    /// one ends with it.
    Pcap(String),
    /// A DPDK device: a virtual one by driver name and arguments, or a PCI address.
    Dpdk {
        /// Name, such as `net_tap_lan` or `0000:01:00.0`; `sriov_PORT` for a virtual function that does not exist yet.
        name: String,
        /// Driver arguments; may be empty.
        arguments: String,
        /// Text in the chain file.
        written: String,
        /// Virtual function to create; no partition that is sent to another process has one.
        #[serde(skip)]
        function: Option<VirtualFunction>,
    },
    /// A further queue of a sandbox crossing's device, as a port; files cannot name it.
    Queue {
        /// Port of the device and its first queue.
        port: String,
        /// Index of the queue, from 1.
        queue: usize,
    },
    /// A sandbox crossing by shared-memory rings; files cannot name it.
    Rings {
        /// Socket of the sandbox.
        socket: PathBuf,
        /// Index of the queue among those of the sandbox.
        queue: usize,
        /// Number of queues of the sandbox.
        queues: usize,
    },
}

/// Kinds of device with driver and target argument, and descriptions, in the order of the help text.
pub(crate) const KINDS: [(&str, &str, &str); 10] = [
    ("pcap", "", "a capture file"),
    ("null", "", "receives blank frames, discards sent ones"),
    ("ring", "", "an in-memory queue that returns the packets sent to it"),
    ("tap", "net_tap,iface", "a new kernel interface"),
    ("af_packet", "net_af_packet,iface", "an existing kernel interface"),
    ("af_xdp", "net_af_xdp,iface", "an existing kernel interface, through AF_XDP"),
    ("memif", "net_memif,socket-abstract=no,socket", "shared memory with one trusted process"),
    ("vhost", "net_vhost,iface", "shared memory with a VM or virtio-user process, as the switch"),
    ("virtio-user", "net_virtio_user,path", "shared memory with a vhost-user switch"),
    ("sriov", "", "a virtual function of a NIC, created for the run"),
];

/// Bytes that a packet buffer holds; DPDK's null driver does not check the length of its frames.
const LONGEST_FRAME: u16 = 2048;

impl Device {
    /// Parses a device string; the name of the DPDK device contains the name of the `port`.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn parse(text: &str, port: &str) -> Result<Device, (String, String)> {
        let (head, extra) = text.split_once(',').map_or((text, None), |(h, e)| (h, Some(e)));
        if let Some(variable) = head.strip_prefix('$') {
            let address = allocated_address(variable, |name| std::env::var(name).ok())?;
            return Ok(Self::dpdk(address, extra.unwrap_or_default().to_owned(), text));
        }
        if is_pci(head) {
            return Ok(Self::dpdk(head.to_owned(), extra.unwrap_or_default().to_owned(), text));
        }
        if (head == "null" || head.starts_with("net_null") || head.starts_with("eth_null"))
            && let Some(size) = extra.into_iter().flat_map(|e| e.split(',')).find_map(|e| e.strip_prefix("size="))
            && !size.parse::<u16>().is_ok_and(|size| size <= LONGEST_FRAME)
        {
            return Err((format!("{size:?} is not a frame size"), format!("write size=60 to size={LONGEST_FRAME}")));
        }
        if head.starts_with("net_") || head.starts_with("eth_") {
            return Ok(Self::dpdk(head.to_owned(), extra.unwrap_or_default().to_owned(), text));
        }
        let (kind, target) = head.split_once(':').map_or((head, None), |(k, t)| (k, Some(t)));
        if !KINDS.iter().any(|(k, ..)| *k == kind) {
            let known: Vec<_> = KINDS.iter().map(|(k, ..)| *k).collect();
            let near = nearest(kind, known.iter().copied());
            if let (None, true) = (near, is_interface_name(head)) {
                return Err(("is not a kind of device".to_owned(), format!("did you mean \"af_packet:{text}\"?")));
            }
            let remedy = near.map_or_else(
                || {
                    format!(
                        "use one of {}:TARGET, a PCI address like 0000:01:00.0, or a DPDK device like net_null0",
                        known.join(":, ")
                    )
                },
                |near| format!("did you mean {near:?}?"),
            );
            return Err((format!("unknown kind of device {kind:?}"), remedy));
        }
        match (kind, target.filter(|t| !t.is_empty())) {
            // the name of a file may contain commas
            ("pcap", Some(_)) => Ok(Device::Pcap(text["pcap:".len()..].to_owned())),
            ("null", None) | ("ring", _) => {
                let name = format!("net_{kind}_{}", target.unwrap_or(port));
                Ok(Self::dpdk(name, extra.unwrap_or_default().to_owned(), text))
            }
            ("null", Some(t)) => {
                Err((format!("a null device has no target, found {t:?}"), "write null or null,size=128".into()))
            }
            (_, None) => Err((format!("{kind} needs a target"), format!("write {kind}:{}", example(kind)))),
            ("sriov", Some(address)) if is_pci(address) => Self::function(full_pci_address(address), extra, port, text),
            (_, Some(target)) => Self::new(kind, target, extra, port),
        }
    }

    /// Returns the device of a kind with a target, such as an interface or socket, and extra driver arguments.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn new(kind: &str, target: &str, extra: Option<&str>, port: &str) -> Result<Device, (String, String)> {
        if target.contains([',', '=']) || target.contains(char::is_whitespace) {
            return Err((format!("{target:?} is not a valid target"), format!("write {kind}:{}", example(kind))));
        }
        if let Some(error) = target_error(kind, target) {
            return Err(error);
        }
        let and_extra = extra.map_or_else(String::new, |extra| format!(",{extra}"));
        let written = format!("{kind}:{target}{and_extra}");
        if kind == "sriov" {
            return Self::function(target.to_owned(), extra, port, &written);
        }
        let driver = KINDS.iter().find(|(known, ..)| *known == kind).map_or("", |(_, driver, _)| driver);
        let (driver, argument) = driver.split_once(',').unwrap_or((driver, ""));
        let default = match kind {
            // the side that opens the socket first is the server, as with vhost
            "memif" if extra.is_none_or(|e| !e.contains("role=")) => ",role=server",
            _ => "",
        };
        let mut arguments = format!("{argument}={target}{default}");
        if kind == "virtio-user" {
            // packed virtqueues cost both sides less, and are used if the other side supports them
            for (key, value) in [("queue_size", 256), ("packed_vq", 1)] {
                if extra.is_none_or(|e| !e.contains(&format!("{key}="))) {
                    arguments += &format!(",{key}={value}");
                }
            }
        }
        arguments += &and_extra;
        Ok(Self::dpdk(format!("{driver}_{port}"), arguments, &written))
    }

    /// Returns the device with a PCI address.
    pub(crate) fn with_address(address: &str) -> Device {
        Self::dpdk(address.to_owned(), String::new(), address)
    }

    /// Returns a device that needs nothing.
    pub(crate) fn blank(port: &str) -> Device {
        Self::dpdk(format!("net_null_{port}"), String::new(), "null")
    }

    fn dpdk(name: String, arguments: String, written: &str) -> Device {
        Device::Dpdk { name, arguments, written: written.to_owned(), function: None }
    }

    fn function(physical: String, extra: Option<&str>, port: &str, text: &str) -> Result<Device, (String, String)> {
        let (function, arguments) = VirtualFunction::parse(physical, extra)?;
        let (name, written) = (format!("sriov_{port}"), text.to_owned());
        Ok(Device::Dpdk { name, arguments, written, function: Some(function) })
    }

    /// Returns the kinds of device with their descriptions.
    pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
        KINDS.iter().map(|(kind, _, about)| (*kind, *about))
    }

    /// Returns an identity that no two ports may share.
    pub fn identity(&self) -> String {
        match self {
            Device::Pcap(file) => format!("pcap:{file}"),
            Device::Dpdk { written, name, .. } if written.starts_with("null") => name.clone(),
            Device::Dpdk { written, name, .. } if written.starts_with("ring") => name.clone(),
            // each port has a virtual function
            Device::Dpdk { name, function: Some(_), .. } => name.clone(),
            Device::Dpdk { name, .. } if is_pci(name) => full_pci_address(name),
            Device::Dpdk { written, .. } => written.split(',').next().unwrap_or_default().to_owned(),
            Device::Queue { .. } | Device::Rings { .. } => self.to_string(),
        }
    }

    /// Returns the device with the PCI address of its virtual function.
    #[must_use]
    pub(crate) fn with_pci_address(&self, address: &str) -> Device {
        let mut device = self.clone();
        if let Device::Dpdk { name, function, .. } = &mut device {
            (*name, *function) = (address.to_owned(), None);
        }
        device
    }

    /// Returns the PCI address, if it has one.
    pub fn pci_address(&self) -> Option<&str> {
        match self {
            Device::Dpdk { name, .. } if is_pci(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the parts of a device that is written as `SCHEME:TARGET`, without driver arguments; `None` for captures
    /// and PCI addresses.
    pub fn scheme_and_target(&self) -> Option<(&str, &str)> {
        let Device::Dpdk { written, .. } = self else { return None };
        written.split(',').next()?.split_once(':').filter(|_| self.pci_address().is_none())
    }

    /// Returns the virtual function to create, if there is one.
    pub fn virtual_function(&self) -> Option<&VirtualFunction> {
        match self {
            Device::Dpdk { function, .. } => function.as_ref(),
            Device::Pcap(_) | Device::Queue { .. } | Device::Rings { .. } => None,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Pcap(file) => write!(f, "pcap:{file}"),
            Device::Dpdk { written, .. } => f.write_str(written),
            Device::Queue { port, queue } => write!(f, "sandbox-queue:{port},queue={queue}"),
            Device::Rings { socket, queue, .. } => write!(f, "sandbox-rings:{},queue={queue}", socket.display()),
        }
    }
}

/// Returns the PCI address in an environment variable, `NAME` or `NAME[INDEX]`: the SR-IOV device plugin of Kubernetes
/// lists the devices of a container in `PCIDEVICE_*`, separated by commas.
fn allocated_address(variable: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, (String, String)> {
    let (name, index) = variable.strip_suffix(']').and_then(|v| v.split_once('[')).unwrap_or((variable, "0"));
    let Some(list) = value(name) else {
        let remedy = "request the device in Kubernetes, or write a PCI address like 0000:01:00.0";
        return Err((format!("the environment variable {name} is not set"), remedy.to_owned()));
    };
    let address = index.parse().ok().and_then(|index: usize| list.split(',').nth(index)).filter(|item| is_pci(item));
    address.map(str::to_owned).ok_or_else(|| {
        let remedy = format!("write ${name} for the first address, ${name}[1] for the second");
        (format!("the environment variable {name} contains {list:?}, no PCI address with this index"), remedy)
    })
}

/// Returns true for a word that looks like the name of a kernel interface: it ends with a number, such as `eth0`.
fn is_interface_name(text: &str) -> bool {
    text.len() <= 15
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// Returns the problem and the remedy if the kernel does not accept the name of an interface or socket.
fn target_error(kind: &str, target: &str) -> Option<(String, String)> {
    /// Longest name of an interface (`IFNAMSIZ`) and longest path of a socket (`sun_path`), without the NUL.
    const LONGEST: (usize, usize) = (15, 107);
    let socket = matches!(kind, "memif" | "vhost" | "virtio-user");
    if !socket && (target.contains(['/', ':']) || matches!(target, "." | "..")) {
        return Some((format!("{target:?} is not an interface name"), format!("write {kind}:{}", example(kind))));
    }
    if socket && !target.starts_with('/') {
        let problem = format!("{target:?} is not an absolute path");
        return Some((problem, format!("write {kind}:{}", example(kind))));
    }
    let longest = if socket { LONGEST.1 } else { LONGEST.0 };
    (target.len() > longest).then(|| {
        let problem = format!("{target:?} is longer than {longest} bytes");
        (problem, "choose a shorter name".to_owned())
    })
}

fn example(kind: &str) -> &'static str {
    match kind {
        "pcap" => "capture.pcap",
        "memif" | "vhost" | "virtio-user" => "/run/bondstone/port.sock",
        "tap" => "lan0",
        _ => "eth0",
    }
}

/// Returns a PCI address in the notation of the kernel.
#[must_use]
pub fn full_pci_address(written: &str) -> String {
    let domain = if written.len() < "0000:00:00.0".len() { "0000:" } else { "" };
    format!("{domain}{}", written.to_lowercase())
}

/// Returns true for a PCI address such as `0000:01:00.0` or `01:00.0`.
fn is_pci(text: &str) -> bool {
    let Some((address, function)) = text.rsplit_once('.') else { return false };
    let parts: Vec<_> = address.split(':').collect();
    let hex = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| b.is_ascii_hexdigit());
    let address = match parts[..] {
        [domain, bus, device] => hex(domain, 4) && hex(bus, 2) && hex(device, 2),
        [bus, device] => hex(bus, 2) && hex(device, 2),
        _ => false,
    };
    address && hex(function, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dpdk(text: &str) -> (String, String) {
        match Device::parse(text, "p").unwrap() {
            Device::Dpdk { name, arguments, .. } => (name, arguments),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn addresses_of_allocated_devices_are_read_from_the_environment() {
        let address = |variable| {
            let value = |name: &str| (name == "PCIDEVICE_VF").then(|| "0000:3b:02.1,0000:3b:02.3,net_null0".to_owned());
            allocated_address(variable, value).map_err(|(problem, _)| problem)
        };
        assert_eq!(address("PCIDEVICE_VF").unwrap(), "0000:3b:02.1");
        assert_eq!(address("PCIDEVICE_VF[0]").unwrap(), "0000:3b:02.1");
        assert_eq!(address("PCIDEVICE_VF[1]").unwrap(), "0000:3b:02.3");
        for invalid in ["PCIDEVICE_VF[2]", "PCIDEVICE_VF[3]", "PCIDEVICE_VF[x]", "PCIDEVICE_VF[]"] {
            assert!(address(invalid).unwrap_err().contains("no PCI address with this index"), "{invalid}");
        }
        for unset in ["PCIDEVICE_OTHER", "PCIDEVICE_VF[1", ""] {
            assert!(address(unset).unwrap_err().contains("is not set"), "{unset}");
        }
        assert!(Device::parse("$BONDSTONE_NO_SUCH_VARIABLE,iova=va", "p").is_err());
    }

    #[test]
    fn parses_every_kind_of_device() {
        let is = |text, name: &str, arguments: &str| assert_eq!(dpdk(text), (name.into(), arguments.into()), "{text}");
        assert_eq!(Device::parse("pcap:a,b.pcap", "p").unwrap(), Device::Pcap("a,b.pcap".into()));
        is("null", "net_null_p", "");
        is("null,size=128", "net_null_p", "size=128");
        is("ring", "net_ring_p", "");
        is("ring:mid", "net_ring_mid", "");
        is("tap:lan0", "net_tap_p", "iface=lan0");
        is("af_packet:eth0", "net_af_packet_p", "iface=eth0");
        is("af_packet:eth0,qpairs=2", "net_af_packet_p", "iface=eth0,qpairs=2");
        is("af_xdp:eth0", "net_af_xdp_p", "iface=eth0");
        is("memif:/m", "net_memif_p", "socket-abstract=no,socket=/m,role=server");
        is("memif:/m,role=client", "net_memif_p", "socket-abstract=no,socket=/m,role=client");
        is("vhost:/v", "net_vhost_p", "iface=/v");
        is("virtio-user:/v", "net_virtio_user_p", "path=/v,queue_size=256,packed_vq=1");
        is("0000:01:00.0", "0000:01:00.0", "");
        is("net_null7,copy=1", "net_null7", "copy=1");
        assert_eq!(Device::parse("0000:01:00.0", "p").unwrap().pci_address(), Some("0000:01:00.0"));
        assert_eq!(Device::parse("tap:x", "p").unwrap().pci_address(), None);
        let parts =
            |text| Device::parse(text, "p").unwrap().scheme_and_target().map(|(s, t)| (s.to_owned(), t.to_owned()));
        assert_eq!(parts("tap:x,mac=fixed"), Some(("tap".to_owned(), "x".to_owned())));
        assert!(["null", "pcap:a.pcap", "0000:01:00.0"].iter().all(|text| parts(text).is_none()));
    }

    #[test]
    fn parses_virtual_functions() {
        let of = |text: &str| {
            let device = Device::parse(text, "p").unwrap();
            assert_eq!((device.to_string().as_str(), device.pci_address()), (text, None));
            (device.virtual_function().unwrap().clone(), dpdk(text))
        };
        let plain = |physical: &str| VirtualFunction { physical: physical.into(), settings: vec![] };
        assert_eq!(of("sriov:eth2"), (plain("eth2"), ("sriov_p".into(), String::new())));
        assert_eq!(of("sriov:0000:01:00.0").0, plain("0000:01:00.0"));
        assert_eq!(of("sriov:0A:00.1").0, plain("0000:0a:00.1"));
        let (function, (_, arguments)) =
            of("sriov:eth2,mac=02:00:00:00:00:01,quanta_size=2048,vlan=7,trust=on,spoofchk=off,x");
        let settings = [("mac", "02:00:00:00:00:01"), ("vlan", "7"), ("trust", "on"), ("spoofchk", "off")];
        assert_eq!(function.settings, settings.map(|(key, value)| (key, value.to_owned())));
        assert_eq!(arguments, "quanta_size=2048,x");
        let identity = |port| Device::parse("sriov:eth2", port).unwrap().identity();
        assert_ne!(identity("one"), identity("two"), "each has one of its own");
        assert_eq!(Device::parse("tap:x", "p").unwrap().virtual_function(), None);
    }

    #[test]
    fn rejects_invalid_devices_with_a_remedy() {
        for (text, problem, remedy) in [
            ("tapp:lan0", "tapp", "tap"),
            ("tap", "needs a target", "tap:lan0"),
            ("tap:", "needs a target", "tap:lan0"),
            ("null:x", "no target", "null"),
            ("af_packet:a b", "not a valid target", "eth0"),
            ("memif:m.sock", "absolute path", "/run"),
            ("null,size=9000", "not a frame size", "2048"),
            ("net_null0,copy=1,size=60000", "not a frame size", "2048"),
            ("tap:sixteen-letters-", "longer than 15 bytes", "shorter"),
            ("af_xdp:../x", "not an interface name", "eth0"),
            ("sriov", "needs a target", "sriov:eth0"),
            ("sriov:01:00", "not an interface name", "eth0"),
            ("sriov:eth2,mac=01:00:00:00:00:01", "not a valid mac", "02:00"),
            ("sriov:eth2,vlan=4095", "not a valid vlan", "4094"),
            ("sriov:eth2,trust", "not a valid trust", "on or off"),
            ("sriov:eth2,vlan=7,vlan=8", "duplicate", "once"),
            ("", "unknown kind", "PCI"),
            ("eth0", "not a kind", "\"af_packet:eth0\""),
            ("enp3s0,qpairs=2", "not a kind", "\"af_packet:enp3s0,qpairs=2\""),
            ("quantum", "unknown kind", "PCI"),
        ] {
            let (p, c) = Device::parse(text, "p").unwrap_err();
            assert!(p.contains(problem) && c.contains(remedy), "{text}: {p} / {c}");
        }
    }
}
