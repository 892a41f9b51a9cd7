//! Taps (tun(4)) without a driver of DPDK.

use super::namespace::in_namespace;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

/// `TUNSETIFF` of linux/if_tun.h.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;

/// A tap that was created with its descriptor and ends with it.
#[derive(Debug)]
pub struct Tap(OwnedFd);

/// The result of reading a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapRead {
    /// A frame of this many bytes; as many as the buffer has if the frame is longer.
    Frame(usize),
    /// No frame waits.
    Empty,
    /// The interface was deleted.
    Deleted,
    /// The kernel cannot deliver frames now.
    Failed,
}

impl Tap {
    /// Creates a tap in the current network namespace, or in one that is named as `ip netns` does. It is down, and
    /// reading does not wait.
    ///
    /// # Errors
    /// An interface has this name ([`AlreadyExists`](io::ErrorKind::AlreadyExists)), the namespace does not exist, or the
    /// user may not create interfaces.
    pub fn create(name: &str, namespace: Option<&str>) -> io::Result<Tap> {
        in_namespace(namespace, || {
            let mut request = super::request(name).ok_or(io::ErrorKind::InvalidInput)?;
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
            // the tap is created in the namespace of the thread that opens the file
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = open("/dev/net/tun", flags, Mode::empty())
                .map_err(|e| io::Error::new(e.kind(), format!("/dev/net/tun: {e}")))?;
            // SAFETY: this request reads and writes a `struct ifreq`, which outlives the call.
            match unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &mut request) } {
                0 => Ok(Tap(file)),
                _ => Err(match io::Error::last_os_error() {
                    e if e.raw_os_error() == Some(libc::EBUSY) => io::ErrorKind::AlreadyExists.into(),
                    e => e,
                }),
            }
        })
    }

    /// Reads a frame that the kernel sends.
    pub fn read(&self, buffer: &mut [u8]) -> TapRead {
        loop {
            return match read(&self.0, &mut *buffer) {
                Ok(len) => TapRead::Frame(len),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => TapRead::Empty,
                Err(Errno::BADFD) => TapRead::Deleted,
                Err(_) => TapRead::Failed,
            };
        }
    }

    /// Has the kernel receive a frame, in two parts, before this returns.
    ///
    /// # Errors
    /// The interface is down or was deleted, or the kernel has no memory.
    pub fn write(&self, parts: [&[u8]; 2]) -> io::Result<()> {
        loop {
            match rustix::io::writev(&self.0, &parts.map(IoSlice::new)) {
                Err(Errno::INTR) => {}
                result => return Ok(result.map(drop)?),
            }
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
