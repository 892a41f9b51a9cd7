//! The client.

use crate::protocol::{Hello, Refusal, Request, Response, VERSION};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Error of a request.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The server cannot be reached, or closed the connection.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The server sent something else than the protocol permits.
    #[error("the server's response cannot be read: {0}")]
    Response(#[from] serde_json::Error),
    /// The server has another version of the protocol.
    #[error("the server has version {theirs} of the protocol, this program version {VERSION}: use the same program")]
    Version {
        /// Version of the server.
        theirs: u32,
    },
    /// The server refused the request.
    #[error("{0}")]
    Refused(Refusal),
}

/// A connection to a running instance.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    hello: Hello,
}

impl Client {
    /// Connects to a socket and reads the greeting.
    ///
    /// # Errors
    /// No process listens there, or the server has another version of the protocol.
    pub fn connect(socket: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut stream = BufReader::new(stream);
        let line = read_line(&mut stream)?;
        // a server with too many clients refuses others before it greets them
        if let Ok(Response::Error(refusal)) = serde_json::from_str(&line) {
            return Err(ClientError::Refused(refusal));
        }
        let hello: Hello = serde_json::from_str(&line)?;
        match hello.protocol {
            VERSION => Ok(Client { stream, hello }),
            theirs => Err(ClientError::Version { theirs }),
        }
    }

    /// Returns the greeting of the server.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Sends a request that a stream follows, and waits for its result. Reading the stream then waits without limit.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub fn stream<T: DeserializeOwned>(mut self, request: &Request) -> Result<(T, ResultStream), ClientError> {
        let result = self.call(request)?;
        self.stream.get_ref().set_read_timeout(None)?;
        Ok((result, ResultStream(self.stream)))
    }

    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// The connection is lost, or the server refuses the request.
    pub fn call<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_ref().set_read_timeout(Some(TIMEOUT + request.extra_time()))?;
        self.stream.get_mut().write_all(&line)?;
        match serde_json::from_str(&read_line(&mut self.stream)?)? {
            Response::Ok(value) => Ok(serde_json::from_value(value)?),
            Response::Error(refusal) => Err(ClientError::Refused(refusal)),
        }
    }
}

/// The stream that follows the result of a request.
#[derive(Debug)]
pub struct ResultStream(BufReader<UnixStream>);

impl ResultStream {
    /// Returns true if bytes were received that have not been read.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        !self.0.buffer().is_empty()
    }

    /// Returns what ends the stream: the server then writes the last part of it.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn ender(&self) -> std::io::Result<StreamEnder> {
        self.0.get_ref().try_clone().map(StreamEnder)
    }
}

impl Read for ResultStream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl BufRead for ResultStream {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.0.consume(bytes);
    }
}

/// Ends a [`ResultStream`], also from another thread.
#[derive(Debug)]
pub struct StreamEnder(UnixStream);

impl StreamEnder {
    /// Asks the server to end the stream.
    pub fn end(&self) {
        // ignore errors: the server has ended it
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

fn read_line(stream: &mut BufReader<UnixStream>) -> std::io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}
