//! Outputs of messages.

use crate::record::Encoding;
use std::io::{Result, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// Output of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Standard error.
    #[default]
    Stderr,
    /// The journal of systemd, with fields.
    Journald,
    /// The local syslog server.
    Syslog,
}

/// Representation of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// An object of JSON in each line.
    Json,
}

impl Output {
    /// Returns the path of the socket of the server.
    pub fn default_socket(self) -> Option<PathBuf> {
        match self {
            Output::Stderr => None,
            Output::Journald => Some("/run/systemd/journal/socket".into()),
            Output::Syslog => Some("/dev/log".into()),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Output::Stderr => "standard error",
            Output::Journald => "journald",
            Output::Syslog => "syslog",
        }
    }

    /// Returns the encoding for this output; `priority` is true if the reader of standard error is journald.
    pub(crate) fn encoding(self, format: Format, priority: bool) -> Encoding {
        match (self, format) {
            (Output::Stderr, Format::Text) => Encoding::Text,
            (Output::Stderr, Format::Json) => Encoding::Json { priority },
            (Output::Journald, _) => Encoding::Journald,
            (Output::Syslog, format) => Encoding::Syslog { json: format == Format::Json },
        }
    }
}

/// A socket of journald or syslog: each write sends a datagram. It is connected again when the server was restarted.
pub(crate) struct Datagrams {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl Datagrams {
    pub(crate) fn connect(path: PathBuf) -> Result<Datagrams> {
        let mut datagrams = Datagrams { path, socket: None };
        datagrams.connected()?;
        Ok(datagrams)
    }

    fn connected(&mut self) -> Result<&UnixDatagram> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&self.path)?;
                socket
            }
        };
        Ok(self.socket.insert(socket))
    }
}

impl Write for Datagrams {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let is_new = self.socket.is_none();
        match self.connected()?.send(bytes) {
            Err(e) => {
                self.socket = None;
                if is_new { Err(e) } else { self.connected()?.send(bytes) }
            }
            sent => sent,
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_server_receives_later_datagrams() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(Datagrams::connect(path.clone()).is_err());
        let server = UnixDatagram::bind(&path).unwrap();
        let mut client = Datagrams::connect(path.clone()).unwrap();
        client.write_all(b"first").unwrap();
        let mut received = [0; 16];
        assert_eq!(server.recv(&mut received).unwrap(), 5);
        drop(server);
        std::fs::remove_file(&path).unwrap();
        assert!(client.write_all(b"lost").is_err());
        let server = UnixDatagram::bind(&path).unwrap();
        client.write_all(b"second").unwrap();
        assert_eq!(server.recv(&mut received).unwrap(), 6);
    }
}
