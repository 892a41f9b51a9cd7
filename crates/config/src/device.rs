//! Device strings: what a port is.

use crate::Function;
use std::fmt;
use std::path::PathBuf;

/// What a port is. The text after the first comma goes to DPDK's driver as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// `pcap:FILE`: a capture file (pcap or pcapng, also gzipped), read when a path begins with the port, written when
    /// one ends with it.
    Pcap(String),
    /// A device of DPDK's: a virtual one by its driver's name and arguments, or a PCI address.
    Dpdk {
        /// The device's name, such as `net_tap_lan` or `0000:01:00.0`. That of a virtual function is not known yet; this is
        /// `sriov_` and its port then.
        name: String,
        /// The driver's arguments; may be empty.
        arguments: String,
        /// How the user wrote it.
        written: String,
        /// The virtual function that has to be made for it.
        function: Option<Function>,
    },
    /// A further queue of a port's device, as a port of its own: a way through a wall; no file can name one.
    Queue {
        /// The port that has the device, and its first queue.
        of: String,
        /// Its number, from 1.
        nth: usize,
    },
    /// A way through a wall by rings in shared memory; no file can name one.
    Rings {
        /// The wall's socket.
        socket: PathBuf,
        /// Its number among the ways of that wall.
        lane: usize,
        /// How many there are.
        lanes: usize,
    },
}

/// Kinds of device, the argument their target becomes, and what they are; also the order in which help names them.
pub(crate) const KINDS: [(&str, &str, &str); 10] = [
    ("pcap", "", "a capture file"),
    ("null", "", "blank frames in, nothing out"),
    ("ring", "", "a queue in memory: what is sent to it is received from it"),
    ("tap", "net_tap,iface", "a new kernel interface"),
    ("af_packet", "net_af_packet,iface", "an existing kernel interface"),
    ("af_xdp", "net_af_xdp,iface", "an existing kernel interface, by AF_XDP"),
    ("memif", "net_memif,socket-abstract=no,socket", "shared memory with one trusted process"),
    ("vhost", "net_vhost,iface", "shared memory with a VM or virtio-user process, as its switch"),
    ("virtio-user", "net_virtio_user,path", "shared memory with a vhost-user switch"),
    ("sriov", "", "a virtual function of a NIC, made for the run"),
];

/// Bytes that a packet buffer holds; DPDK's null driver makes longer frames without looking.
const LONGEST_FRAME: u16 = 2048;

impl Device {
    /// Reads a device string; `port` is the name of the port, from which the DPDK device is named.
    ///
    /// # Errors
    /// What is wrong with it, and the remedy.
    pub fn parse(text: &str, port: &str) -> Result<Device, (String, String)> {
        let (head, extra) = text.split_once(',').map_or((text, None), |(h, e)| (h, Some(e)));
        if is_pci(head) {
            return Ok(Self::dpdk(head.to_owned(), extra.unwrap_or_default().to_owned(), text));
        }
        if (head == "null" || head.starts_with("net_null") || head.starts_with("eth_null"))
            && let Some(size) = extra.into_iter().flat_map(|e| e.split(',')).find_map(|e| e.strip_prefix("size="))
            && !size.parse::<u16>().is_ok_and(|size| size <= LONGEST_FRAME)
        {
            return Err((format!("{size:?} is no size of a frame"), format!("write size=60 to size={LONGEST_FRAME}")));
        }
        if head.starts_with("net_") || head.starts_with("eth_") {
            return Ok(Self::dpdk(head.to_owned(), extra.unwrap_or_default().to_owned(), text));
        }
        let (kind, target) = head.split_once(':').map_or((head, None), |(k, t)| (k, Some(t)));
        let Some((_, driver, _)) = KINDS.iter().find(|(k, ..)| *k == kind) else {
            let known: Vec<_> = KINDS.iter().map(|(k, ..)| *k).collect();
            let near = crate::locate::nearest(kind, known.iter().copied());
            let remedy = near.map_or_else(
                || {
                    format!(
                        "use one of {}:TARGET, a PCI address like 0000:01:00.0, or a DPDK device like net_null0",
                        known.join(":, ")
                    )
                },
                |near| format!("did you mean {near:?}?"),
            );
            return Err((format!("no kind of device is called {kind:?}"), remedy));
        };
        let name = format!("net_{}_{port}", kind.replace('-', "_"));
        match (kind, target.filter(|t| !t.is_empty())) {
            ("pcap", Some(_)) => {
                // a file's name may hold commas
                Ok(Device::Pcap(text["pcap:".len()..].to_owned()))
            }
            ("null", None) | ("ring", _) => {
                let name = if kind == "ring" { format!("net_ring_{}", target.unwrap_or(port)) } else { name };
                Ok(Self::dpdk(name, extra.unwrap_or_default().to_owned(), text))
            }
            ("null", Some(t)) => {
                Err((format!("a null device has no target {t:?}"), "write null, or null,size=128".into()))
            }
            (_, None) => Err((format!("{kind} needs a target"), format!("write {kind}:{}", example(kind)))),
            ("sriov", Some(address)) if is_pci(address) => Self::function(whole_address(address), extra, port, text),
            (_, Some(target)) => {
                if target.contains([',', '=']) || target.contains(char::is_whitespace) {
                    return Err((format!("{target:?} cannot be a target"), format!("write {kind}:{}", example(kind))));
                }
                if let Some(fault) = target_fault(kind, target) {
                    return Err(fault);
                }
                if kind == "sriov" {
                    return Self::function(target.to_owned(), extra, port, text);
                }
                let (driver, argument) = driver.split_once(',').unwrap_or((driver, ""));
                let mut arguments = format!("{argument}={target}");
                match (kind, extra.is_some_and(|e| e.contains("role="))) {
                    // the first to come is the server, as with vhost
                    ("memif", false) => arguments.push_str(",role=server"),
                    ("virtio-user", _) if extra.is_none_or(|e| !e.contains("queue_size=")) => {
                        arguments.push_str(",queue_size=256")
                    }
                    _ => {}
                }
                if let Some(extra) = extra {
                    arguments.push(',');
                    arguments.push_str(extra);
                }
                // one driver matches its devices by prefix alone
                Ok(Self::dpdk(format!("{driver}_{port}"), arguments, text))
            }
        }
    }

    fn dpdk(name: String, arguments: String, written: &str) -> Device {
        Device::Dpdk { name, arguments, written: written.to_owned(), function: None }
    }

    fn function(of: String, extra: Option<&str>, port: &str, text: &str) -> Result<Device, (String, String)> {
        let (function, arguments) = Function::parse(of, extra)?;
        let (name, written) = (format!("sriov_{port}"), text.to_owned());
        Ok(Device::Dpdk { name, arguments, written, function: Some(function) })
    }

    /// Every kind of device and what it is, for help.
    pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
        KINDS.iter().map(|(kind, _, about)| (*kind, *about))
    }

    /// What must not be opened twice.
    pub fn identity(&self) -> String {
        match self {
            Device::Pcap(file) => format!("pcap:{file}"),
            Device::Dpdk { written, name, .. } if written.starts_with("null") => name.clone(),
            Device::Dpdk { written, name, .. } if written.starts_with("ring") => name.clone(),
            // each has one of its own
            Device::Dpdk { name, function: Some(_), .. } => name.clone(),
            Device::Dpdk { name, .. } if is_pci(name) => whole_address(name),
            Device::Dpdk { written, .. } => written.split(',').next().unwrap_or_default().to_owned(),
            Device::Queue { .. } | Device::Rings { .. } => self.to_string(),
        }
    }

    /// The same with its PCI address known.
    #[must_use]
    pub(crate) fn at(&self, address: &str) -> Device {
        let mut device = self.clone();
        if let Device::Dpdk { name, function, .. } = &mut device {
            (*name, *function) = (address.to_owned(), None);
        }
        device
    }

    /// The PCI address, when it is one.
    pub fn pci(&self) -> Option<&str> {
        match self {
            Device::Dpdk { name, .. } if is_pci(name) => Some(name),
            _ => None,
        }
    }

    /// The virtual function that has to be made for it, when it is one.
    pub fn virtual_function(&self) -> Option<&Function> {
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
            Device::Queue { of, nth } => write!(f, "wall-queue:{of},queue={nth}"),
            Device::Rings { socket, lane, .. } => write!(f, "wall-rings:{},lane={lane}", socket.display()),
        }
    }
}

/// Why the kernel would not take the name of an interface or socket.
fn target_fault(kind: &str, target: &str) -> Option<(String, String)> {
    /// Longest name of an interface (`IFNAMSIZ`) and longest path of a socket (`sun_path`), without the NUL.
    const LONGEST: (usize, usize) = (15, 107);
    let socket = matches!(kind, "memif" | "vhost" | "virtio-user");
    if !socket && (target.contains(['/', ':']) || matches!(target, "." | "..")) {
        return Some((format!("{target:?} is no name of an interface"), format!("write {kind}:{}", example(kind))));
    }
    if socket && !target.starts_with('/') {
        let problem = format!("{target:?} is not a full path, which both sides of a socket can agree on");
        return Some((problem, format!("write {kind}:{}", example(kind))));
    }
    let longest = if socket { LONGEST.1 } else { LONGEST.0 };
    (target.len() > longest).then(|| {
        let problem = format!("{target:?} is too long: the kernel takes {longest} bytes");
        (problem, "choose a shorter one".to_owned())
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

/// A PCI address as the kernel writes it.
#[must_use]
pub fn whole_address(written: &str) -> String {
    let domain = if written.len() < "0000:00:00.0".len() { "0000:" } else { "" };
    format!("{domain}{}", written.to_lowercase())
}

/// `0000:01:00.0` or `01:00.0`.
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
    fn every_kind_of_device() {
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
        is("virtio-user:/v", "net_virtio_user_p", "path=/v,queue_size=256");
        is("0000:01:00.0", "0000:01:00.0", "");
        is("net_null7,copy=1", "net_null7", "copy=1");
        assert_eq!(Device::parse("0000:01:00.0", "p").unwrap().pci(), Some("0000:01:00.0"));
        assert_eq!(Device::parse("tap:x", "p").unwrap().pci(), None);
    }

    #[test]
    fn virtual_functions() {
        let of = |text: &str| {
            let device = Device::parse(text, "p").unwrap();
            assert_eq!((device.to_string().as_str(), device.pci()), (text, None));
            (device.virtual_function().unwrap().clone(), dpdk(text))
        };
        let plain = |of: &str| Function { of: of.into(), settings: vec![] };
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
    fn what_is_no_device_is_told_with_a_cure() {
        for (text, problem, remedy) in [
            ("tapp:lan0", "tapp", "tap"),
            ("tap", "needs a target", "tap:lan0"),
            ("tap:", "needs a target", "tap:lan0"),
            ("null:x", "no target", "null"),
            ("af_packet:a b", "cannot be", "eth0"),
            ("memif:m.sock", "full path", "/run"),
            ("null,size=9000", "no size", "2048"),
            ("net_null0,copy=1,size=60000", "no size", "2048"),
            ("tap:sixteen-letters-", "too long: the kernel takes 15", "shorter"),
            ("af_xdp:../x", "no name of an interface", "eth0"),
            ("sriov", "needs a target", "sriov:eth0"),
            ("sriov:01:00", "no name of an interface", "eth0"),
            ("sriov:eth2,mac=01:00:00:00:00:01", "cannot be its mac", "02:00"),
            ("sriov:eth2,vlan=4095", "cannot be its vlan", "4094"),
            ("sriov:eth2,trust", "cannot be its trust", "on or off"),
            ("sriov:eth2,vlan=7,vlan=8", "twice", "once"),
            ("", "no kind", "PCI"),
        ] {
            let (p, c) = Device::parse(text, "p").unwrap_err();
            assert!(p.contains(problem) && c.contains(remedy), "{text}: {p} / {c}");
        }
    }
}
