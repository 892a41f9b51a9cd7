//! Routes and next-hop objects of the kernel, and their changes (rtnetlink(7)).

use super::namespace::in_namespace;
use super::netlink::{MAX_DATAGRAM, Netlink};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Changes of links, IPv4 addresses, routes of IPv4 and IPv6, and next-hop objects: bit n - 1 stands for group n
/// (`RTNLGRP_*`, linux/rtnetlink.h).
const GROUPS: u32 = 1 << 0 | 1 << 4 | 1 << 6 | 1 << 10 | 1 << 31;
/// Bytes of notifications that wait to be received: about 10,000 routes.
const RECEIVE_BUFFER: usize = 8 << 20;
/// `RTM_GETNEXTHOP` of linux/rtnetlink.h.
const RTM_GETNEXTHOP: u16 = 106;
/// Bytes of `struct rtmsg` and `struct nhmsg`.
const RTMSG: usize = 12;
const NHMSG: usize = 8;

/// Sockets to the kernel of a network namespace: one for notifications, one for requests.
pub struct RouteMonitor {
    notifications: OwnedFd,
    requests: Netlink,
    buffer: Box<[u8]>,
}

/// Result of [`RouteMonitor::receive`].
#[derive(Debug)]
pub enum RouteNotification<'a> {
    /// Messages of the kernel.
    Messages(&'a [u8]),
    /// Notifications were lost: all routes are to be requested.
    Lost,
    /// There are none at the moment.
    None,
}

impl RouteMonitor {
    /// Opens the sockets in a named network namespace, or that of the process. Changes from now on are received.
    ///
    /// # Errors
    /// The namespace does not exist, or a socket cannot be opened.
    pub fn open(namespace: Option<&str>) -> io::Result<RouteMonitor> {
        in_namespace(namespace, || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            // protocol 0 is NETLINK_ROUTE
            let notifications = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
            // ignore errors: without the capability notifications are lost earlier, which is reported
            let _ = sockopt::set_socket_recv_buffer_size_force(&notifications, RECEIVE_BUFFER);
            bind(&notifications, &SocketAddrNetlink::new(0, GROUPS))?;
            Ok(RouteMonitor { notifications, requests: Netlink::open()?, buffer: vec![0; MAX_DATAGRAM].into() })
        })
    }

    /// Receives notifications, without waiting.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn receive(&mut self) -> io::Result<RouteNotification<'_>> {
        let (len, from) = match recvfrom(&self.notifications, &mut self.buffer[..], RecvFlags::TRUNC) {
            Ok((_, len, from)) => (len, from),
            Err(Errno::NOBUFS) => return Ok(RouteNotification::Lost),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(RouteNotification::None),
            Err(e) => return Err(e.into()),
        };
        // root of the namespace may send to the groups, too
        let is_kernel =
            from.and_then(|from| SocketAddrNetlink::try_from(from).ok()).is_some_and(|from| from.pid() == 0);
        Ok(match self.buffer.get(..len) {
            _ if !is_kernel => RouteNotification::Messages(&[]),
            Some(messages) => RouteNotification::Messages(messages),
            // longer than the buffer
            None => RouteNotification::Lost,
        })
    }

    /// Requests all next-hop objects, and calls `each` with the message of every one.
    ///
    /// # Errors
    /// The kernel refuses the request, as those without next-hop objects do (before Linux 5.3), or the reply is malformed.
    pub fn next_hops(&self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.requests.dump_messages(RTM_GETNEXTHOP, &[0; NHMSG], each)
    }

    /// Requests all IPv4 or IPv6 routes, and calls `each` with the message of every one.
    ///
    /// # Errors
    /// The kernel refuses the request, or the reply is malformed.
    pub fn routes(&self, is_ipv4: bool, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let family = if is_ipv4 { libc::AF_INET } else { libc::AF_INET6 };
        let mut body = [0; RTMSG];
        body[0] = family as u8;
        self.requests.dump_messages(libc::RTM_GETROUTE, &body, each)
    }
}

impl AsFd for RouteMonitor {
    /// Returns the socket that is readable when there are notifications.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_replies_with_routes() {
        let mut monitor = RouteMonitor::open(None).unwrap();
        for is_ipv4 in [true, false] {
            monitor
                .routes(is_ipv4, &mut |message| {
                    // struct nlmsghdr, and RTM_NEWROUTE in it
                    assert_eq!(u32::from_ne_bytes(message[..4].try_into().unwrap()) as usize, message.len());
                    assert_eq!(u16::from_ne_bytes([message[4], message[5]]), libc::RTM_NEWROUTE);
                })
                .unwrap();
        }
        assert!(!matches!(monitor.receive().unwrap(), RouteNotification::Lost));
        assert!(RouteMonitor::open(Some("no-such-namespace")).is_err());
    }
}
