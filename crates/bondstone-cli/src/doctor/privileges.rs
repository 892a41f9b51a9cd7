//! Checks of privileges.

use super::sysfs::{field, read};
use super::{Check, State};
use rustix::net::{AddressFamily, SocketType, socket};
use std::fs::OpenOptions;
use std::io;

/// Numbers of capabilities in `linux/capability.h`.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

pub(super) fn checks() -> Vec<Check> {
    let capabilities = effective(&read("/proc/self/status").unwrap_or_default());
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path).map(drop);
    let xdp = socket(AddressFamily::XDP, SocketType::RAW, None).map(drop).map_err(io::Error::from);
    vec![
        tap(open("/dev/net/tun"), capabilities),
        packet(capabilities),
        af_xdp(xdp, capabilities),
        kvm(sandbox::probe_kvm()),
    ]
}

/// Parses the effective capabilities in `/proc/self/status` as a bit set.
fn effective(status: &str) -> u64 {
    field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

fn has(capabilities: u64, capability: u32) -> bool {
    capabilities >> capability & 1 != 0
}

fn grant(capabilities: &str) -> String {
    format!("run as root, or: sudo setcap {capabilities}+ep $(command -v bondstone)")
}

fn access(what: &str, opened: &io::Result<()>) -> String {
    opened.as_ref().map_or_else(|e| format!("{what}: {}", reason(e)), |()| format!("{what} accessible"))
}

/// Returns the message of an error without its number.
fn reason(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn state_of(has: bool) -> &'static str {
    if has { "available" } else { "missing" }
}

fn tap(device: io::Result<()>, capabilities: u64) -> Check {
    let permitted = has(capabilities, NET_ADMIN);
    let state = if permitted && device.is_ok() { State::Ok } else { State::Missing };
    let found = format!("{}, CAP_NET_ADMIN {}", access("/dev/net/tun", &device), state_of(permitted));
    let remedy = if permitted { "sudo modprobe tun".to_owned() } else { grant("cap_net_admin") };
    Check::new("tap", state, found, "ports on new kernel interfaces (tap:NAME)").remedy(remedy)
}

fn packet(capabilities: u64) -> Check {
    let permitted = has(capabilities, NET_RAW);
    let state = if permitted { State::Ok } else { State::Missing };
    let provides = "ports on existing kernel interfaces (af_packet:IF)";
    Check::new("af_packet", state, format!("CAP_NET_RAW {}", state_of(permitted)), provides)
        .remedy(grant("cap_net_raw,cap_net_admin"))
}

fn af_xdp(socket: io::Result<()>, capabilities: u64) -> Check {
    let bpf = has(capabilities, BPF) || has(capabilities, SYS_ADMIN);
    let permitted = bpf && has(capabilities, NET_ADMIN) && has(capabilities, NET_RAW);
    let state = if permitted && socket.is_ok() { State::Ok } else { State::Missing };
    let found = format!("{}, CAP_BPF or CAP_SYS_ADMIN {}", access("AF_XDP socket", &socket), state_of(bpf));
    let remedy = if permitted {
        "a kernel with CONFIG_XDP_SOCKETS".to_owned()
    } else {
        grant("cap_net_raw,cap_net_admin,cap_bpf,cap_sys_admin")
    };
    Check::new("af_xdp", state, found, "ports on existing kernel interfaces, faster (af_xdp:IF)").remedy(remedy)
}

fn kvm(device: io::Result<()>) -> Check {
    let state = if device.is_ok() { State::Ok } else { State::Missing };
    let found = device.as_ref().map_or_else(|e| format!("/dev/kvm: {}", reason(e)), |()| "creates VMs".to_owned());
    let remedy = match &device {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => "sudo usermod -aG kvm $USER, then log in again",
        _ => {
            "enable virtualisation in the firmware, or nesting on the host; then: sudo modprobe kvm_intel || sudo \
             modprobe kvm_amd"
        }
    };
    Check::new("KVM", state, found, "NFs in virtual machines with hardware virtualisation").remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(13))
    }

    #[test]
    fn parses_capabilities() {
        let all = effective("Name:\tx\nCapPrm:\t0\nCapEff:\t000001fffeffffff\n");
        assert!([NET_ADMIN, NET_RAW, SYS_ADMIN, BPF].iter().all(|&c| has(all, c)));
        assert!(!has(all, 24));
        assert_eq!([effective(""), effective("CapEff: zz"), effective("CapEff:\t0000000000000000")], [0; 3]);
    }

    #[test]
    fn missing_privileges_have_remedies() {
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
