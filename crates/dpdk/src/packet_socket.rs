//! The packet sockets of the driver `net_af_packet`, which DPDK opens itself and gives no access to.

use std::fs::read_dir;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A packet socket of this process or of another one. Several sockets of an interface each receive its packets.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Returns the packet sockets of this process that are bound to an interface of its network namespace.
    ///
    /// # Errors
    /// The descriptors of the process cannot be read, or it has too many.
    pub fn of_interface(interface: &str) -> io::Result<Vec<PacketSocket>> {
        let Ok(name) = std::ffi::CString::new(interface) else { return Ok(vec![]) };
        // SAFETY: the name is NUL-terminated.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let mut sockets = vec![];
        for entry in read_dir("/proc/self/fd")? {
            let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if index != 0 && bound_interface(fd) == Some(index) {
                // SAFETY: the descriptor is open, as it is a socket; its owner closes no port meanwhile.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                sockets.push(PacketSocket(fd.try_clone_to_owned()?));
            }
        }
        Ok(sockets)
    }

    /// Has the socket receive no packets from now on; those in its ring stay.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn close_input(&self) -> io::Result<()> {
        // BPF_RET | BPF_K, 0 bytes
        let mut none = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &raw mut none };
        self.set_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Has the socket receive packets again.
    ///
    /// # Errors
    /// Its input is not closed.
    pub fn open_input(&self) -> io::Result<()> {
        self.set_option(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
    }

    /// Returns the packets that were put into the ring of the socket since the last call, and those for which it had no
    /// room, modulo 2^32.
    ///
    /// # Errors
    /// This is no packet socket.
    pub fn take_counts(&self) -> io::Result<(u32, u32)> {
        let mut stats = [0_u32; 2];
        let mut len = size_of_val(&stats) as libc::socklen_t;
        // SAFETY: the option returns two numbers: of packets, drops included, and of drops (struct tpacket_stats).
        let rc = unsafe {
            let value = stats.as_mut_ptr().cast();
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &raw mut len)
        };
        if rc == 0 { Ok((stats[0].wrapping_sub(stats[1]), stats[1])) } else { Err(io::Error::last_os_error()) }
    }

    fn set_option<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        let (value, len) = (core::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the kernel reads the value, and the program that a filter points to.
        let rc = unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, value, len) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for PacketSocket {
    fn from(fd: OwnedFd) -> Self {
        PacketSocket(fd)
    }
}

/// Returns the index of the interface to which a packet socket is bound; `None` for other descriptors.
fn bound_interface(fd: i32) -> Option<u32> {
    // SAFETY: plain bits.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    let mut len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, and an error for what is no socket.
    let rc = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut len) };
    let is_packet = rc == 0 && i32::from(address.sll_family) == libc::AF_PACKET;
    is_packet.then_some(address.sll_ifindex as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    /// Opens a packet socket for loopback; `None` without the capability.
    fn on_loopback() -> Option<OwnedFd> {
        // SAFETY: an ordinary socket, which is owned below; the address has the size that is given.
        unsafe {
            let all = (libc::ETH_P_ALL as u16).to_be();
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return None;
            }
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = core::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = all;
            address.sll_ifindex = libc::if_nametoindex(c"lo".as_ptr()) as i32;
            let len = size_of_val(&address) as libc::socklen_t;
            assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len), 0);
            Some(fd)
        }
    }

    fn has_packet(fd: &OwnedFd) -> bool {
        let mut frame = [0_u8; 2048];
        // SAFETY: the buffer has the size that is given.
        unsafe { libc::recv(fd.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) > 0 }
    }

    #[test]
    fn a_closed_input_receives_nothing_until_it_is_opened() {
        let Some(fd) = on_loopback() else {
            return println!("skipped: no CAP_NET_RAW");
        };
        let sockets = PacketSocket::of_interface("lo").unwrap();
        assert_eq!((sockets.len(), PacketSocket::of_interface("no such").unwrap().len()), (1, 0));
        let send = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(&[1], socket.local_addr().unwrap()).unwrap();
        };
        sockets[0].close_input().unwrap();
        while has_packet(&fd) {}
        send();
        assert!(!has_packet(&fd));
        sockets[0].open_input().unwrap();
        send();
        assert!(has_packet(&fd));
        // without a ring
        assert_eq!(sockets[0].take_counts().unwrap().1, 0);
        assert!(sockets[0].open_input().is_err());
    }
}
