//! Requests to the kernel by rtnetlink (rtnetlink(7)).

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

/// Bytes of a message header.
const HEADER: usize = 16;
/// Flag of `linux/netlink.h` that libc lacks.
const NLM_F_DUMP_INTR: i32 = 0x10;
/// Bytes of the largest datagram of the kernel, `NLMSG_GOODSIZE` or the size of the buffer up to 32 KiB.
pub(super) const MAX_DATAGRAM: usize = 32 << 10;

/// A socket to the kernel in the network namespace of the thread that opened it.
pub(super) struct Netlink {
    socket: OwnedFd,
    /// Sequence number of the last request.
    sequence: Cell<u32>,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        // protocol 0 is NETLINK_ROUTE
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        // a connected socket receives from the kernel only
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink { socket, sequence: Cell::new(0) })
    }

    /// Sends a request and waits for its acknowledgement.
    pub(super) fn request(&self, kind: u16, flags: i32, body: &[u8], attributes: &[(u16, &[u8])]) -> io::Result<()> {
        let sequence = self.send(kind, flags | libc::NLM_F_ACK, body, attributes)?;
        self.receive(sequence, &mut |_| ())
    }

    /// Requests all objects of a kind, and calls `each` with the body and attributes of every one.
    ///
    /// # Errors
    /// The kernel refuses it, or [`Interrupted`](io::ErrorKind::Interrupted): an object was changed meanwhile, and some
    /// may be missing.
    pub(super) fn dump(&self, kind: u16, body: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.dump_messages(kind, body, &mut |message| each(&message[HEADER..]))
    }

    /// As [`dump`](Netlink::dump), with the whole messages.
    pub(super) fn dump_messages(&self, kind: u16, body: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let sequence = self.send(kind, libc::NLM_F_DUMP, body, &[])?;
        let mut is_interrupted = false;
        self.receive(sequence, &mut |message| {
            is_interrupted |= is_of_interrupted_dump(message);
            each(message);
        })?;
        if is_interrupted { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// Sends a request and returns its sequence number.
    fn send(&self, kind: u16, flags: i32, body: &[u8], attributes: &[(u16, &[u8])]) -> io::Result<u32> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
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
        message[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        message[8..12].copy_from_slice(&sequence.to_ne_bytes());
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(sequence)
    }

    /// Receives the messages that reply to a request until its last one.
    fn receive(&self, sequence: u32, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut datagram = vec![0; MAX_DATAGRAM];
        loop {
            let (_, len) = recv(&self.socket, &mut datagram[..], RecvFlags::TRUNC)?;
            let messages = datagram.get(..len).ok_or_else(invalid)?;
            if let Some(result) = read(messages, sequence, each) {
                return result;
            }
        }
    }
}

/// Returns true if the kernel has changed its objects since it began to send them.
fn is_of_interrupted_dump(message: &[u8]) -> bool {
    let flags = message.get(6..8).map_or(0, |flags| i32::from(u16::from_ne_bytes([flags[0], flags[1]])));
    flags & NLM_F_DUMP_INTR != 0
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the reply of the kernel is malformed")
}

/// Calls `each` with every message of a datagram that has this sequence number, of which all have at least a header; returns
/// the result of the request once it is in a message.
fn read(mut messages: &[u8], sequence: u32, each: &mut dyn FnMut(&[u8])) -> Option<io::Result<()>> {
    while !messages.is_empty() {
        let Some((header, _)) = messages.split_first_chunk::<HEADER>() else { return Some(Err(invalid())) };
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (len, kind) = (word(0) as usize, i32::from(u16::from_ne_bytes([header[4], header[5]])));
        let Some(body) = messages.get(HEADER..len) else { return Some(Err(invalid())) };
        if word(8) == sequence {
            match kind {
                libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                    let code = body.first_chunk().map(|code| i32::from_ne_bytes(*code));
                    return Some(match code.ok_or_else(invalid) {
                        Ok(0) if is_of_interrupted_dump(messages) => Err(io::ErrorKind::Interrupted.into()),
                        Ok(0) => Ok(()),
                        Ok(code) => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
                        Err(e) => Err(e),
                    });
                }
                libc::NLMSG_NOOP => {}
                _ => each(&messages[..len]),
            }
        }
        messages = messages.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Returns the value of the first attribute of a kind.
pub(super) fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let header: [u8; 4] = *attributes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..len)?;
        if u16::from_ne_bytes([header[2], header[3]]) == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: i32, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend((kind as u16).to_ne_bytes());
        message.extend([0; 2]);
        message.extend(sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    #[test]
    fn only_replies_to_the_request_are_read() {
        let mut bodies = vec![];
        let refused = (-libc::EPERM).to_ne_bytes();
        let old = message(libc::NLMSG_ERROR, 1, &refused);
        assert!(read(&old, 2, &mut |body| bodies.push(body.to_vec())).is_none());
        let object = message(20, 2, b"object");
        let all = [&old[..], &object, &message(20, 3, b"of another"), &message(libc::NLMSG_DONE, 2, &[0; 4])].concat();
        assert!(matches!(read(&all, 2, &mut |body| bodies.push(body.to_vec())), Some(Ok(()))));
        assert_eq!(bodies, [&object[..HEADER + 6]]);
        let result = read(&old, 1, &mut |_| ());
        assert_eq!(result.unwrap().unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn a_dump_during_which_objects_change_is_interrupted() {
        let mut done = message(libc::NLMSG_DONE, 1, &[0; 4]);
        done[6..8].copy_from_slice(&(NLM_F_DUMP_INTR as u16).to_ne_bytes());
        let interrupted = read(&done, 1, &mut |_| ()).unwrap().unwrap_err();
        assert_eq!(interrupted.kind(), io::ErrorKind::Interrupted);
        assert!(is_of_interrupted_dump(&done) && !is_of_interrupted_dump(&message(20, 1, &[])));
    }

    #[test]
    fn malformed_messages_are_errors() {
        let good = message(20, 1, b"twelve bytes");
        for len in 1..good.len() {
            assert!(matches!(read(&good[..len], 1, &mut |_| panic!("incomplete")), Some(Err(_))), "{len}");
        }
        let mut zero = good;
        zero[..4].fill(0);
        assert!(matches!(read(&zero, 1, &mut |_| panic!("no length")), Some(Err(_))));
    }

    #[test]
    fn attributes_are_found_and_their_lengths_checked() {
        let attributes = [
            &6u16.to_ne_bytes()[..],
            &1u16.to_ne_bytes(),
            b"ab\0\0",
            &8u16.to_ne_bytes(),
            &2u16.to_ne_bytes(),
            b"four",
        ];
        let attributes = attributes.concat();
        assert_eq!(attribute(&attributes, 1), Some(&b"ab"[..]));
        assert_eq!(attribute(&attributes, 2), Some(&b"four"[..]));
        assert_eq!(attribute(&attributes, 3), None);
        assert_eq!(attribute(&attributes[..14], 2), None);
        // a length of 0 must not be read again and again
        assert_eq!(attribute(&[0; 8], 1), None);
    }

    #[test]
    fn the_kernel_replies() {
        let netlink = Netlink::open().unwrap();
        let mut addresses = 0;
        // struct ifaddrmsg
        netlink.dump(libc::RTM_GETADDR, &[0; 8], &mut |_| addresses += 1).unwrap();
        netlink.dump(libc::RTM_GETADDR, &[0; 8], &mut |_| addresses += 1).unwrap();
        assert!(addresses % 2 == 0);
        let none = netlink.request(libc::RTM_NEWLINK, 0, &[0; 16], &[]).unwrap_err();
        assert!(none.raw_os_error().is_some(), "{none}");
    }
}
