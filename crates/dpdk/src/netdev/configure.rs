//! Configuration of kernel interfaces.

use super::namespace::{in_namespace, open_namespace};
use super::netlink::{Netlink, attribute};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd as _;

/// Smallest MTU with which an interface has IPv6 addresses (RFC 8200 §5).
const MIN_IPV6_MTU: u32 = 1280;

/// Settings of net.ipv6.conf.INTERFACE: the kernel ignores router advertisements and redirects, by which a host could
/// divert its packets; derives the link-local address from the MAC address (RFC 4291 appendix A); and uses it at once.
const IPV6_SETTINGS: [(&str, &str); 5] =
    [("accept_ra", "0"), ("autoconf", "0"), ("accept_redirects", "0"), ("addr_gen_mode", "0"), ("accept_dad", "0")];

/// Configuration of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig<'a> {
    /// MAC address.
    pub mac: [u8; 6],
    /// Longest IP packet in bytes.
    pub mtu: u32,
    /// Addresses with prefix lengths.
    pub addresses: &'a [(IpAddr, u8)],
}

/// Moves an interface into a network namespace that is named as `ip netns` does, and brings it up there.
///
/// # Errors
/// The namespace does not exist, or the interface cannot be moved.
pub fn move_to_namespace(interface: &str, namespace: &str) -> io::Result<()> {
    Link::open(interface)?.move_to(&open_namespace(namespace)?)?;
    in_namespace(Some(namespace), || Link::open(interface)?.set(libc::IFF_UP, &[]))
}

/// Sets the MAC address, the MTU and the addresses of an interface in the current or in another network namespace, and
/// brings it up. Other addresses are removed, except the link-local one of the MAC address. The kernel accepts no router
/// advertisements and no redirects by the interface; in another namespace IPv4 redirects by none, as the kernel requires
/// for a host.
///
/// # Errors
/// The step that failed, and the error of the system; or addresses that the MTU does not permit.
pub fn configure(interface: &str, namespace: Option<&str>, config: &InterfaceConfig<'_>) -> io::Result<()> {
    if config.mtu < MIN_IPV6_MTU
        && let Some((address, _)) = config.addresses.iter().find(|(address, _)| address.is_ipv6())
    {
        let problem = format!(
            "the address {address} needs an MTU of at least {MIN_IPV6_MTU} bytes (RFC 8200), not {}",
            config.mtu
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    in_namespace(namespace, || {
        let failed = |step: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("{step}: {e}"));
        let link = Link::open(interface).map_err(failed("opening the interface"))?;
        // first, as IPv6 has no settings below its smallest MTU
        let mtu = config.mtu.to_ne_bytes();
        link.request(0, 0, &[(libc::IFLA_MTU, &mtu)]).map_err(failed("setting the MTU"))?;
        if super::mac(interface) != Some(config.mac) {
            // the kernel derives the link-local address from the MAC address when the interface comes up
            link.set(0, &[]).map_err(failed("setting it down"))?;
            link.set(0, &[(libc::IFLA_ADDRESS, &config.mac)]).map_err(failed("setting the MAC address"))?;
        }
        for (setting, value) in IPV6_SETTINGS {
            set_sysctl("ipv6", interface, setting, value)?;
        }
        set_sysctl("ipv4", interface, "accept_redirects", "0")?;
        if namespace.is_some() {
            // a host accepts redirects if either is set (ip-sysctl of the kernel)
            set_sysctl("ipv4", "all", "accept_redirects", "0")?;
        }
        link.set(libc::IFF_UP, &[]).map_err(failed("setting it up"))?;
        let link_local = link_local_address(config.mac);
        for address in link.addresses().map_err(failed("reading the addresses"))? {
            if address != link_local && !config.addresses.contains(&address) {
                // ignore errors: it was removed by another program, or with another one of its network
                let _ = link.remove_address(address);
            }
        }
        config.addresses.iter().try_for_each(|address| link.add_address(*address)).map_err(failed("adding an address"))
    })
}

/// Sets a setting of an interface in the network namespace of this thread, if the kernel has the protocol.
fn set_sysctl(family: &str, interface: &str, setting: &str, value: &str) -> io::Result<()> {
    match std::fs::write(format!("/proc/sys/net/{family}/conf/{interface}/{setting}"), value) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            let problem = format!("setting net.{family}.conf.{interface}.{setting}={value}: {e}");
            Err(io::Error::new(e.kind(), problem))
        }
        _ => Ok(()),
    }
}

/// Returns the link-local address that the kernel derives from a MAC address (RFC 4291 appendix A).
fn link_local_address([a, b, c, d, e, f]: [u8; 6]) -> (IpAddr, u8) {
    let octets = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    (Ipv6Addr::from(octets).into(), 64)
}

/// An interface, and a socket to the kernel in its network namespace.
struct Link {
    netlink: Netlink,
    index: u32,
}

impl Link {
    fn open(interface: &str) -> io::Result<Link> {
        let index = super::index(interface).ok_or_else(io::Error::last_os_error)?;
        Ok(Link { netlink: Netlink::open()?, index })
    }

    fn move_to(&self, namespace: &File) -> io::Result<()> {
        let descriptor = namespace.as_raw_fd().to_ne_bytes();
        self.request(0, 0, &[(libc::IFLA_NET_NS_FD, &descriptor)])
    }

    /// Sets the flag `IFF_UP`, or clears it if `up` is 0, and attributes.
    fn set(&self, up: i32, attributes: &[(u16, &[u8])]) -> io::Result<()> {
        self.request(up, libc::IFF_UP, attributes)
    }

    /// Sets those flags that are in `changed`, and attributes.
    fn request(&self, flags: i32, changed: i32, attributes: &[(u16, &[u8])]) -> io::Result<()> {
        // struct ifinfomsg
        let body = [[0; 4], self.index.to_ne_bytes(), flags.to_ne_bytes(), changed.to_ne_bytes()].concat();
        self.netlink.request(libc::RTM_NEWLINK, 0, &body, attributes)
    }

    fn add_address(&self, address: (IpAddr, u8)) -> io::Result<()> {
        self.change_address(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, address)
    }

    fn remove_address(&self, address: (IpAddr, u8)) -> io::Result<()> {
        self.change_address(libc::RTM_DELADDR, 0, address)
    }

    fn change_address(&self, kind: u16, flags: i32, (address, prefix_len): (IpAddr, u8)) -> io::Result<()> {
        let (family, bytes) = match address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        // the NF uses the address at once, too
        let address_flags = if address.is_ipv6() { libc::IFA_F_NODAD as u8 } else { 0 };
        let header = [family as u8, prefix_len, address_flags, libc::RT_SCOPE_UNIVERSE];
        let body = [header, self.index.to_ne_bytes()].concat();
        self.netlink.request(kind, flags, &body, &[(libc::IFA_LOCAL, &bytes), (libc::IFA_ADDRESS, &bytes)])
    }

    /// Returns the addresses of the interface with their prefix lengths.
    fn addresses(&self) -> io::Result<Vec<(IpAddr, u8)>> {
        let mut attempts = 0;
        loop {
            let mut addresses = vec![];
            let each = &mut |message: &[u8]| addresses.extend(address_of(message, self.index));
            attempts += 1;
            match self.netlink.dump(libc::RTM_GETADDR, &[0; ADDRESS_HEADER], each) {
                // an address of another interface was changed meanwhile
                Err(e) if e.kind() == io::ErrorKind::Interrupted && attempts < DUMP_ATTEMPTS => {}
                result => return result.map(|()| addresses),
            }
        }
    }
}

/// Attempts to read the addresses of a namespace while others change.
const DUMP_ATTEMPTS: usize = 10;
/// Bytes of a `struct ifaddrmsg`.
const ADDRESS_HEADER: usize = 8;

/// Returns the address in a message of type `RTM_NEWADDR`, if it is of the interface with this index.
fn address_of(message: &[u8], interface: u32) -> Option<(IpAddr, u8)> {
    let (&[_, prefix_len, _, _, a, b, c, d], attributes) = message.split_first_chunk::<ADDRESS_HEADER>()?;
    if u32::from_ne_bytes([a, b, c, d]) != interface {
        return None;
    }
    // only IPv4 addresses have both, which differ if the address has a peer
    let value = attribute(attributes, libc::IFA_LOCAL).or_else(|| attribute(attributes, libc::IFA_ADDRESS))?;
    let address = match value.len() {
        4 => IpAddr::from(*value.first_chunk::<4>()?),
        16 => IpAddr::from(*value.first_chunk::<16>()?),
        _ => return None,
    };
    Some((address, prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_interface() {
        let attribute = |kind: u16, value: &[u8]| {
            [&(4 + value.len() as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
        };
        let message = |attributes: &[Vec<u8>]| {
            [&[libc::AF_INET as u8, 24, 0, 0][..], &7u32.to_ne_bytes(), &attributes.concat()].concat()
        };
        let (own, peer) = (attribute(libc::IFA_LOCAL, &[10, 0, 0, 1]), attribute(libc::IFA_ADDRESS, &[10, 0, 0, 2]));
        let both = message(&[peer.clone(), own]);
        assert_eq!(address_of(&both, 7), Some((IpAddr::from([10, 0, 0, 1]), 24)));
        assert_eq!(address_of(&both, 8), None);
        assert_eq!(address_of(&message(&[peer]), 7), Some((IpAddr::from([10, 0, 0, 2]), 24)));
        assert_eq!(address_of(&message(&[attribute(libc::IFA_ADDRESS, &[1; 5])]), 7), None);
        assert_eq!(address_of(&both[..7], 7), None);
    }

    #[test]
    fn ipv6_needs_an_mtu_of_1280() {
        let addresses = [("10.0.0.1".parse().unwrap(), 24), ("fd00::1".parse().unwrap(), 64)];
        let config = |mtu, addresses| configure("no-such-if", None, &InterfaceConfig { mac: [2; 6], mtu, addresses });
        let error = config(1279, &addresses).unwrap_err().to_string();
        assert!(["fd00::1", "1280", "1279"].iter().all(|word| error.contains(word)), "{error}");
        for (mtu, addresses) in [(1280, &addresses[..]), (576, &addresses[..1])] {
            let error = config(mtu, addresses).unwrap_err().to_string();
            assert!(error.contains("opening the interface"), "{error}");
        }
    }

    #[test]
    fn link_local_addresses_contain_the_mac_address() {
        let expected = "fe80::ff:fe00:109".parse().unwrap();
        assert_eq!(link_local_address([2, 0, 0, 0, 1, 9]), (IpAddr::V6(expected), 64));
    }
}
