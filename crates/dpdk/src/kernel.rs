//! What the kernel says of its interfaces, on which some of DPDK's drivers sit.

use core::ptr::null_mut;
use std::ffi::{CStr, CString};

/// `SIOCETHTOOL`, `ETHTOOL_GDRVINFO` and `ETHTOOL_GGRO` of linux/sockios.h and linux/ethtool.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET_DRIVER: u32 = 3;
const GET_GRO: u32 = 0x2b;

/// `struct ethtool_drvinfo`, whose first field the command is.
#[repr(C)]
struct Driver {
    command: u32,
    name: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Whether there is an interface of this name in this process's network namespace.
pub fn exists(interface: &str) -> bool {
    // SAFETY: the name is NUL-terminated.
    CString::new(interface).is_ok_and(|name| unsafe { libc::if_nametoindex(name.as_ptr()) } != 0)
}

/// Whether it is there, up, and has somebody at its other end.
pub fn running(interface: &str) -> bool {
    // SAFETY: flags are what this request gives, and no pointer goes in.
    let flags = unsafe { ask(interface, libc::SIOCGIFFLAGS, null_mut()).map(|r| r.ifr_ifru.ifru_flags) };
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    flags.is_some_and(|flags| i32::from(flags) & wanted == wanted)
}

/// Longest packet that it carries, bytes, without the Ethernet header.
pub fn mtu(interface: &str) -> Option<u32> {
    // SAFETY: as above.
    let mtu = unsafe { ask(interface, libc::SIOCGIFMTU, null_mut()).map(|r| r.ifr_ifru.ifru_mtu) };
    mtu.and_then(|mtu| mtu.try_into().ok())
}

/// The interface's driver, such as `veth`; `None` where the kernel does not tell.
pub fn driver(interface: &str) -> Option<String> {
    let mut driver = Driver { command: GET_DRIVER, name: [0; 32], rest: [0; 160] };
    // SAFETY: the structure is the one that the command fills.
    unsafe { ask(interface, SIOCETHTOOL, (&raw mut driver).cast()) }?;
    Some(CStr::from_bytes_until_nul(&driver.name).ok()?.to_string_lossy().into_owned())
}

/// Whether the interface joins received packets to longer ones.
pub fn joins_packets(interface: &str) -> bool {
    let mut gro = Value { command: GET_GRO, data: 0 };
    // SAFETY: as above.
    unsafe { ask(interface, SIOCETHTOOL, (&raw mut gro).cast()) }.is_some() && gro.data != 0
}

/// What the kernel answers to a request about an interface.
///
/// # Safety
/// `data` is null or what the request asks for: for `SIOCETHTOOL` a structure that begins with a command of ethtool's and
/// is as long as that command fills.
unsafe fn ask(interface: &str, request: libc::c_ulong, data: *mut libc::c_char) -> Option<libc::ifreq> {
    // SAFETY: plain bits.
    let mut about: libc::ifreq = unsafe { core::mem::zeroed() };
    if interface.len() >= about.ifr_name.len() {
        return None;
    }
    for (to, from) in about.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    about.ifr_ifru.ifru_data = data;
    // SAFETY: an ordinary socket, closed below; the name is NUL-terminated and all outlives the call.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return None;
        }
        let rc = libc::ioctl(socket, request as _, &mut about);
        libc::close(socket);
        (rc == 0).then_some(about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is() {
        assert!(exists("lo") && mtu("lo").is_some());
        for none in ["", "no-such-if", "a name that is longer than any interface's", "nul\0"] {
            assert!(!exists(none) && !running(none) && mtu(none).is_none(), "{none}");
            assert!(driver(none).is_none() && !joins_packets(none), "{none}");
        }
    }
}
