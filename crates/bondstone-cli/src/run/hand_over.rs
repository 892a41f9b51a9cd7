//! The messages between a process and the one that replaces it: frames over a socket that is the standard input of the
//! latter. First it sends a byte with its packet sockets, then it receives the state, and last it sends the result.

use dpdk::PacketSocket;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Environment variable with the [`Order`] for a process that replaces another one.
pub(super) const VARIABLE: &str = "BONDSTONE_SUCCESSOR";
/// Most descriptors in a message, `SCM_MAX_FD` of the kernel.
const MAX_SOCKETS: usize = 253;

/// The order to replace a process.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    /// Process that is replaced.
    pub(super) pid: u32,
    /// Chain file that it runs.
    pub(super) chain: PathBuf,
    /// CPUs that workers may use.
    pub(super) cpus: Vec<usize>,
    /// Time for which the chains have run.
    pub(super) elapsed: Duration,
    /// True if standard input is a file with the text of the chain file and the state rather than a socket.
    pub(super) resumes: bool,
}

/// The state of a process that has stopped receiving.
#[derive(Serialize, Deserialize)]
pub(super) struct Stopped {
    /// Time at which it stopped receiving, on the monotonic clock.
    pub(super) nanos: u64,
    /// Ports that had a link.
    pub(super) linked: Vec<String>,
    pub(super) state: runtime::SavedState,
}

impl Stopped {
    /// Returns the bytes of this.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(io::Error::other)
    }

    /// Reads what another process has written.
    pub(super) fn from_bytes(bytes: &[u8]) -> io::Result<Stopped> {
        postcard::from_bytes(bytes).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
    }
}

/// Writes a frame: its length in eight bytes, and its bytes.
pub(super) fn write_frame(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    to.write_all(&(frame.len() as u64).to_le_bytes())?;
    to.write_all(frame)
}

/// Reads a frame.
pub(super) fn read_frame(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let (len, mut frame) = (u64::from_le_bytes(len), vec![]);
    from.take(len).read_to_end(&mut frame)?;
    if frame.len() as u64 == len { Ok(frame) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// Sends that the process is prepared, with its packet sockets.
pub(super) fn send_prepared(to: &UnixStream, sockets: &[PacketSocket]) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other(format!("more than {MAX_SOCKETS} packet sockets")));
    }
    sendmsg(to, &[IoSlice::new(b"P")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Returns the packet sockets once the process is prepared; `None` before.
pub(super) fn receive_prepared(from: &UnixStream) -> io::Result<Option<Vec<PacketSocket>>> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
        Ok(message) if message.bytes == 0 => return Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(Some(fds.flatten().map(PacketSocket::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_descriptors_arrive_in_order() {
        let (mut old, mut new) = UnixStream::pair().unwrap();
        assert!(receive_prepared(&old).unwrap().is_none());
        let descriptor = std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        send_prepared(&new, &[descriptor.into()]).unwrap();
        assert_eq!(receive_prepared(&old).unwrap().map(|all| all.len()), Some(1));
        send_prepared(&new, &[]).unwrap();
        assert_eq!(receive_prepared(&old).unwrap().map(|all| all.len()), Some(0));
        write_frame(&mut old, b"state").unwrap();
        write_frame(&mut old, b"").unwrap();
        assert_eq!((read_frame(&mut new).unwrap(), read_frame(&mut new).unwrap()), (b"state".to_vec(), vec![]));
        // a process that ends within a frame
        old.write_all(&[9, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        drop(old);
        assert_eq!(read_frame(&mut new).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let (old, new) = UnixStream::pair().unwrap();
        drop(new);
        assert!(receive_prepared(&old).is_err());
    }
}
