//! The same program on other hosts, started by ssh: both sides send one line of JSON for each message through its
//! standard input and output.
#![forbid(unsafe_code)]

mod files;
mod host;

pub use files::Files;
pub use host::{RemoteHost, SAME_VERSION};

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

/// Largest request, with files, in bytes.
pub const MAX_REQUEST_BYTES: u64 = 256 << 20;
/// Time limit for the first message of a remote host.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the client sends a message if it has nothing else to send.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Time without a message after which the client is considered dead; a broken connection is not always reported.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

const _: () = assert!(CLIENT_TIMEOUT.as_secs() > 3 * KEEP_ALIVE_INTERVAL.as_secs());

/// First message of the remote host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program.
    pub bondstone: String,
}

impl Hello {
    /// Returns the greeting of this program.
    #[must_use]
    pub fn own() -> Hello {
        Hello { bondstone: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Checks that `host` has the version of this program.
    ///
    /// # Errors
    /// Both versions.
    pub fn check(&self, host: &str) -> Result<(), String> {
        let (own, other) = (Hello::own().bondstone, &self.bondstone);
        let other: String = other.chars().filter(|c| !c.is_control()).take(32).collect();
        if own == other {
            return Ok(());
        }
        Err(format!("the version of Bondstone is {own} here and {other} on {host}"))
    }
}

/// Writes a message.
///
/// # Errors
/// If the other side has closed the connection.
pub fn write_message(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads a line of at most `limit` bytes; a longer one is cut. Returns `None` at the end.
pub fn read_line(from: &mut impl BufRead, limit: u64) -> Option<Vec<u8>> {
    let mut line = vec![];
    let read = from.by_ref().take(limit).read_until(b'\n', &mut line);
    read.is_ok_and(|bytes| bytes > 0).then_some(line)
}
