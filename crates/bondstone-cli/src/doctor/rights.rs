//! What this user may do.

use super::text::{field, read};
use super::{Check, State};
use rustix::net::{AddressFamily, SocketType, socket};
use std::fs::OpenOptions;
use std::io;

/// Numbers of capabilities in `linux/capability.h`.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

pub(super) fn look() -> Vec<Check> {
    let mine = effective(&read("/proc/self/status").unwrap_or_default());
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path).map(drop);
    let xdp = socket(AddressFamily::XDP, SocketType::RAW, None).map(drop).map_err(io::Error::from);
    vec![tap(open("/dev/net/tun"), mine), packet(mine), af_xdp(xdp, mine), kvm(open("/dev/kvm"))]
}

/// The effective capabilities, as a set of bits, from `/proc/self/status`.
fn effective(status: &str) -> u64 {
    field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

fn has(mine: u64, capability: u32) -> bool {
    mine >> capability & 1 != 0
}

fn give(capabilities: &str) -> String {
    format!("run as root, or: sudo setcap {capabilities}+ep $(command -v bondstone)")
}

fn told(what: &str, opened: &io::Result<()>) -> String {
    opened.as_ref().map_or_else(|e| format!("{what}: {}", reason(e)), |()| format!("{what} opens"))
}

/// The words of an error without its number.
fn reason(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn yes(has: bool) -> &'static str {
    if has { "allowed" } else { "not allowed" }
}

fn tap(device: io::Result<()>, mine: u64) -> Check {
    let right = has(mine, NET_ADMIN);
    let state = if right && device.is_ok() { State::Ok } else { State::Missing };
    let found = format!("{}, CAP_NET_ADMIN {}", told("/dev/net/tun", &device), yes(right));
    let remedy = if right { "sudo modprobe tun".to_owned() } else { give("cap_net_admin") };
    Check::new("tap", state, found, "ports that are new kernel interfaces (tap:NAME)").remedy(remedy)
}

fn packet(mine: u64) -> Check {
    let right = has(mine, NET_RAW);
    let state = if right { State::Ok } else { State::Missing };
    let adds = "ports on kernel interfaces that are there already (af_packet:IF)";
    Check::new("af_packet", state, format!("CAP_NET_RAW {}", yes(right)), adds).remedy(give("cap_net_raw,cap_net_admin"))
}

fn af_xdp(socket: io::Result<()>, mine: u64) -> Check {
    let bpf = has(mine, BPF) || has(mine, SYS_ADMIN);
    let rights = bpf && has(mine, NET_ADMIN) && has(mine, NET_RAW);
    let state = if rights && socket.is_ok() { State::Ok } else { State::Missing };
    let found = format!("{}, CAP_BPF or CAP_SYS_ADMIN {}", told("an AF_XDP socket", &socket), yes(bpf));
    let remedy = if rights {
        "a kernel with CONFIG_XDP_SOCKETS".to_owned()
    } else {
        give("cap_net_raw,cap_net_admin,cap_bpf,cap_sys_admin")
    };
    Check::new("af_xdp", state, found, "the same, faster (af_xdp:IF)").remedy(remedy)
}

fn kvm(device: io::Result<()>) -> Check {
    let state = if device.is_ok() { State::Ok } else { State::Missing };
    let remedy = match &device {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => "sudo usermod -aG kvm $USER, then log in anew",
        _ => {
            "switch on virtualisation in the firmware, or nesting in the host, and: sudo modprobe kvm_intel || sudo modprobe kvm_amd"
        }
    };
    Check::new("KVM", state, told("/dev/kvm", &device), "NFs behind the wall of a virtual machine, at full speed")
        .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(13))
    }

    #[test]
    fn capabilities_are_bits() {
        let all = effective("Name:\tx\nCapPrm:\t0\nCapEff:\t000001fffeffffff\n");
        assert!([NET_ADMIN, NET_RAW, SYS_ADMIN, BPF].iter().all(|&c| has(all, c)));
        assert!(!has(all, 24));
        assert_eq!([effective(""), effective("CapEff: zz"), effective("CapEff:\t0000000000000000")], [0; 3]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let all = u64::MAX;
        assert_eq!(tap(Ok(()), all).state, State::Ok);
        assert!(tap(Ok(()), 0).remedy.unwrap().contains("cap_net_admin"));
        let no_device = tap(denied(), all);
        assert!(
            no_device.remedy.unwrap().contains("modprobe tun")
                && no_device.found.starts_with("/dev/net/tun: Permission denied,")
        );
        assert_eq!([packet(all).state, packet(1 << NET_ADMIN).state], [State::Ok, State::Missing]);
        assert_eq!(af_xdp(Ok(()), all).state, State::Ok);
        assert!(af_xdp(denied(), all).remedy.unwrap().contains("CONFIG_XDP_SOCKETS"));
        assert!(af_xdp(Ok(()), 1 << NET_RAW).remedy.unwrap().contains("cap_bpf"));
        assert_eq!(kvm(Ok(())).remedy, None);
        assert!(kvm(denied()).remedy.unwrap().contains("kvm $USER"));
        assert!(kvm(Err(io::Error::from_raw_os_error(2))).remedy.unwrap().contains("modprobe"));
    }
}
