//! State of the kernel's network interfaces, which some of DPDK's drivers use.

mod configure;
mod namespace;
mod netlink;
mod route_monitor;
mod tap;

pub use configure::{InterfaceConfig, configure, move_to_namespace};
pub use namespace::in_namespace;
pub use route_monitor::{RouteMonitor, RouteNotification};
pub use tap::{Tap, TapRead};

use core::ptr::null_mut;
use std::ffi::{CStr, CString};

/// `SIOCETHTOOL` of linux/sockios.h; `ETHTOOL_GDRVINFO` and `ETHTOOL_GGRO` of linux/ethtool.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GGRO: u32 = 0x2b;

/// `struct ethtool_drvinfo`; the first field is the command.
#[repr(C)]
struct EthtoolDrvinfo {
    command: u32,
    name: [u8; 32],
    other: [u8; 160],
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Returns true if this process's network namespace has an interface of this name.
pub fn exists(interface: &str) -> bool {
    index(interface).is_some()
}

/// Returns the index of an interface in the network namespace of this thread.
fn index(interface: &str) -> Option<u32> {
    let name = CString::new(interface).ok()?;
    // SAFETY: the name is NUL-terminated.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|index| *index != 0)
}

/// Returns the names of the interfaces of this process's network namespace.
pub fn names() -> Vec<String> {
    let mut names = vec![];
    // SAFETY: the list ends with an entry whose name is null, and is freed once.
    unsafe {
        let list = libc::if_nameindex();
        let mut next = list;
        while !next.is_null() && !(*next).if_name.is_null() {
            names.push(CStr::from_ptr((*next).if_name).to_string_lossy().into_owned());
            next = next.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}

/// Returns the flags of the interface, such as `IFF_UP`.
pub fn flags(interface: &str) -> Option<i32> {
    // SAFETY: this request returns flags and takes no pointer.
    let flags = unsafe { interface_ioctl(interface, libc::SIOCGIFFLAGS, null_mut()).map(|r| r.ifr_ifru.ifru_flags) };
    flags.map(i32::from)
}

/// Returns true if the interface exists, is up and has a carrier.
pub fn is_running(interface: &str) -> bool {
    let required = libc::IFF_UP | libc::IFF_RUNNING;
    flags(interface).is_some_and(|flags| flags & required == required)
}

/// Returns the first six bytes of the hardware address of the interface.
pub fn mac(interface: &str) -> Option<[u8; 6]> {
    // SAFETY: this request returns an address and takes no pointer.
    let address =
        unsafe { interface_ioctl(interface, libc::SIOCGIFHWADDR, null_mut()).map(|r| r.ifr_ifru.ifru_hwaddr) };
    address.and_then(|address| Some(address.sa_data.first_chunk::<6>()?.map(|byte| byte as u8)))
}

/// Returns the MTU of the interface in bytes, without the Ethernet header.
pub fn mtu(interface: &str) -> Option<u32> {
    // SAFETY: as above.
    let mtu = unsafe { interface_ioctl(interface, libc::SIOCGIFMTU, null_mut()).map(|r| r.ifr_ifru.ifru_mtu) };
    mtu.and_then(|mtu| mtu.try_into().ok())
}

/// Returns the name of the interface's driver, such as `veth`; `None` if the kernel does not report it.
pub fn driver(interface: &str) -> Option<String> {
    let mut driver = EthtoolDrvinfo { command: ETHTOOL_GDRVINFO, name: [0; 32], other: [0; 160] };
    // SAFETY: the structure is the one that the command fills.
    unsafe { interface_ioctl(interface, SIOCETHTOOL, (&raw mut driver).cast()) }?;
    Some(CStr::from_bytes_until_nul(&driver.name).ok()?.to_string_lossy().into_owned())
}

/// Returns true if generic receive offload (GRO) merges received packets of the interface.
pub fn gro_enabled(interface: &str) -> bool {
    let mut gro = EthtoolValue { command: ETHTOOL_GGRO, data: 0 };
    // SAFETY: as above.
    unsafe { interface_ioctl(interface, SIOCETHTOOL, (&raw mut gro).cast()) }.is_some() && gro.data != 0
}

/// Returns a request about an interface; `None` if its name is too long.
fn request(interface: &str) -> Option<libc::ifreq> {
    // SAFETY: plain bits.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}

/// Sends an ioctl about an interface and returns the result.
///
/// # Safety
/// `data` is null or what the request requires: for `SIOCETHTOOL`, a structure that begins with an ethtool command and
/// has the size that the command fills.
unsafe fn interface_ioctl(interface: &str, request: libc::c_ulong, data: *mut libc::c_char) -> Option<libc::ifreq> {
    let mut ifreq = self::request(interface)?;
    ifreq.ifr_ifru.ifru_data = data;
    // SAFETY: an ordinary socket, closed below; the name is NUL-terminated and all arguments outlive the call.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return None;
        }
        let rc = libc::ioctl(socket, request as _, &mut ifreq);
        libc::close(socket);
        (rc == 0).then_some(ifreq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_interfaces_and_rejects_invalid_names() {
        assert!(exists("lo") && mtu("lo").is_some() && names().iter().any(|name| name == "lo"));
        assert_eq!((flags("lo").map(|flags| flags & libc::IFF_LOOPBACK != 0), mac("lo")), (Some(true), Some([0; 6])));
        for none in ["", "no-such-if", "a name that is longer than any interface's", "nul\0"] {
            assert!(!exists(none) && flags(none).is_none() && mtu(none).is_none() && mac(none).is_none(), "{none}");
            assert!(driver(none).is_none() && !gro_enabled(none), "{none}");
        }
    }
}
