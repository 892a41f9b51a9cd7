//! Sending of log datagrams.

use std::net::UdpSocket;

/// Sends a datagram. An ICMP error that the previous datagram caused fails the first attempt, so a second one follows.
pub(super) fn send(socket: &UdpSocket, datagram: &[u8]) {
    // a lost datagram is not repeated: the server may be down or the network congested
    let _ = socket.send(datagram).or_else(|_| socket.send(datagram));
}
