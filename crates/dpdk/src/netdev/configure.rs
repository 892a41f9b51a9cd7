//! Configuration of kernel interfaces by rtnetlink (rtnetlink(7)).

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of a message header.
const HEADER: usize = 16;
const REQUEST: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;

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
    Link::open_in(interface, namespace)?.set(libc::IFF_UP, &[])
}

/// Sets the MAC address, the MTU and the addresses of an interface in the current or in another network namespace, and
/// brings it up. `before` is its configuration by an earlier call, if there was one.
///
/// # Errors
/// The step that failed, and the error of the system.
pub fn configure(
    interface: &str,
    namespace: Option<&str>,
    before: Option<&InterfaceConfig<'_>>,
    config: &InterfaceConfig<'_>,
) -> io::Result<()> {
    let failed = |step: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("{step}: {e}"));
    let link = match namespace {
        Some(namespace) => Link::open_in(interface, namespace),
        None => Link::open(interface),
    };
    let link = link.map_err(failed("opening the interface"))?;
    if before.is_none_or(|before| before.mac != config.mac) {
        // the kernel derives the link-local address from the MAC address when the interface comes up
        link.set(0, &[]).map_err(failed("setting it down"))?;
        link.set(0, &[(libc::IFLA_ADDRESS, &config.mac)]).map_err(failed("setting the MAC address"))?;
    }
    let mtu = config.mtu.to_ne_bytes();
    link.set(libc::IFF_UP, &[(libc::IFLA_MTU, &mtu)]).map_err(failed("setting the MTU and up"))?;
    for address in before.map_or(&[][..], |before| before.addresses) {
        if !config.addresses.contains(address) {
            // ignore errors: it was removed by another program
            let _ = link.remove_address(*address);
        }
    }
    config.addresses.iter().try_for_each(|address| link.add_address(*address)).map_err(failed("adding an address"))
}

fn open_namespace(name: &str) -> io::Result<File> {
    File::open(format!("/run/netns/{name}"))
}

/// An interface, and a socket to the kernel in its network namespace.
struct Link {
    socket: OwnedFd,
    index: u32,
}

impl Link {
    fn open(interface: &str) -> io::Result<Link> {
        // protocol 0 is NETLINK_ROUTE
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let index = super::index(interface).ok_or_else(io::Error::last_os_error)?;
        Ok(Link { socket, index })
    }

    fn open_in(interface: &str, namespace: &str) -> io::Result<Link> {
        let namespace = open_namespace(namespace)?;
        let open = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Link::open(interface)
        };
        // only this thread enters the namespace; the socket remains in it
        std::thread::scope(|scope| scope.spawn(open).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
    }

    fn move_to(&self, namespace: &File) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let descriptor = namespace.as_raw_fd().to_ne_bytes();
        self.request(libc::RTM_NEWLINK, 0, &self.info(0, 0), &[(libc::IFLA_NET_NS_FD, &descriptor)])
    }

    /// Sets the flag `IFF_UP`, or clears it if `up` is 0, and attributes.
    fn set(&self, up: i32, attributes: &[(u16, &[u8])]) -> io::Result<()> {
        self.request(libc::RTM_NEWLINK, 0, &self.info(up, libc::IFF_UP), attributes)
    }

    /// Returns a `struct ifinfomsg`.
    fn info(&self, flags: i32, changed: i32) -> Vec<u8> {
        [[0; 4], self.index.to_ne_bytes(), flags.to_ne_bytes(), changed.to_ne_bytes()].concat()
    }

    fn add_address(&self, address: (IpAddr, u8)) -> io::Result<()> {
        self.change_address(libc::RTM_NEWADDR, CREATE, address)
    }

    fn remove_address(&self, address: (IpAddr, u8)) -> io::Result<()> {
        self.change_address(libc::RTM_DELADDR, 0, address)
    }

    fn change_address(&self, kind: u16, flags: u16, (address, prefix_len): (IpAddr, u8)) -> io::Result<()> {
        let (family, bytes) = match address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        // the NF uses the address at once, too
        let address_flags = if address.is_ipv6() { libc::IFA_F_NODAD as u8 } else { 0 };
        let body =
            [[family as u8, prefix_len, address_flags, libc::RT_SCOPE_UNIVERSE], self.index.to_ne_bytes()].concat();
        self.request(kind, flags, &body, &[(libc::IFA_LOCAL, &bytes), (libc::IFA_ADDRESS, &bytes)])
    }

    /// Sends a request and waits for its acknowledgement.
    fn request(&self, kind: u16, flags: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> io::Result<()> {
        let mut message = vec![0; HEADER];
        message.extend(body);
        for (kind, value) in attributes {
            message.extend((4 + value.len() as u16).to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(*value);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        let len = message.len() as u32;
        message[..4].copy_from_slice(&len.to_ne_bytes());
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        send(&self.socket, &message, SendFlags::empty())?;
        let mut reply = [0; 1024];
        let (len, _) = recv(&self.socket, &mut reply[..], RecvFlags::empty())?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let reply = reply.get(..len).ok_or_else(invalid)?;
        let (_, error) = reply.split_first_chunk::<HEADER>().ok_or_else(invalid)?;
        let error = error.first_chunk().map(|error| i32::from_ne_bytes(*error)).ok_or_else(invalid)?;
        if reply[4..6] != (libc::NLMSG_ERROR as u16).to_ne_bytes() {
            return Err(invalid());
        }
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
    }
}
