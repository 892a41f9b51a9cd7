//! TLS records and the ClientHello (RFC 8446), the first message of a client.

use crate::{Header, Malformed, View, fixed};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// Content type of handshake records.
pub const HANDSHAKE: u8 = 22;
/// Longest payload of a record in bytes: that of TLS 1.2 with expansion (RFC 5246 §6.2.3).
pub const MAX_RECORD: usize = (1 << 14) + 2048;
/// Longest ClientHello that [`join`] joins, in bytes.
pub const MAX_HELLO: usize = 64 << 10;
/// Most records that [`join`] joins.
const MAX_RECORDS: usize = 64;

/// Type of a ClientHello among handshake messages.
const CLIENT_HELLO: u8 = 1;
/// Length of type and length of a handshake message in bytes.
const MESSAGE_HEADER: usize = 4;

/// Numbers of extensions.
const SERVER_NAME: u16 = 0;
const APPLICATION_PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// The 5-byte header of a record (RFC 8446 §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TlsRecord {
    content_type: u8,
    version: U16,
    length: U16,
}

impl TlsRecord {
    /// Returns the content type: 20 for change cipher spec, 21 for alert, 22 for handshake, 23 for application data.
    #[inline(always)]
    pub fn content_type(&self) -> u8 {
        self.content_type
    }

    /// Returns the version, 0x0301 to 0x0303; TLS 1.3 has that of TLS 1.2.
    #[inline(always)]
    pub fn version(&self) -> u16 {
        self.version.get()
    }

    /// Returns the length of the payload in bytes.
    #[inline(always)]
    pub fn length(&self) -> u16 {
        self.length.get()
    }
}

impl Header for TlsRecord {
    const NAME: &'static str = "tls";
    const NOT: &'static str = "not_tls";
    const MALFORMED: &'static str = "malformed_tls";

    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        // the bytes that there are identify the protocol
        match bytes {
            [20..=24, 3, ..] | [20..=24] | [] => {}
            [20..=24, ..] => return Err(Malformed::Version),
            _ => return Err(Malformed::Kind),
        }
        let length = usize::from(fixed::<Self>(bytes)?.length());
        if length > MAX_RECORD {
            return Err(Malformed::Range);
        }
        if bytes.len() < size_of::<Self>() + length {
            return Err(Malformed::Short);
        }
        Ok(size_of::<Self>())
    }

    fn extent(bytes: &[u8]) -> usize {
        let length = |header: &Self| size_of::<Self>() + usize::from(header.length());
        fixed::<Self>(bytes).map_or(bytes.len(), |header| bytes.len().min(length(header)))
    }
}

/// A complete record.
pub type Record<'a> = View<'a, TlsRecord>;

/// Reads numbers and vectors from the front of bytes.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a number of `len` bytes, at most 3.
    fn number(&mut self, len: usize) -> Result<usize, Malformed> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Reads a vector behind its length of `len` bytes.
    fn vector(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let len = self.number(len)?;
        self.take(len)
    }
}

/// A checked ClientHello (RFC 8446 §4.1.2): all lengths in it are consistent.
///
/// ```no_run
/// use wire::tls::ClientHello;
///
/// # let stream: &[u8] = &[];
/// let hello = ClientHello::of_stream(stream)?; // the first bytes of a connection
/// let name = hello.server_name(); // Some(b"example.com")
/// # Ok::<(), wire::Malformed>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientHello<'a> {
    repr: Repr<'a>,
}

impl<'a> ClientHello<'a> {
    /// Checks the handshake message at the start of `bytes`, without a record header.
    ///
    /// # Errors
    /// [`Malformed::Kind`] for another message, [`Malformed::Short`] if it is not complete, [`Malformed::Option`] if a
    /// length in it is not consistent.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        if reader.number(1)? != usize::from(CLIENT_HELLO) {
            return Err(Malformed::Kind);
        }
        let body = reader.vector(3)?;
        match Repr::of_body(body) {
            // the message is complete, so the error is in it
            Err(Malformed::Short) => Err(Malformed::Option),
            repr => Ok(ClientHello { repr: repr? }),
        }
    }

    /// Checks the ClientHello in the record at the start of a stream. One that continues in another record has to be
    /// [joined](join).
    ///
    /// # Errors
    /// Like [`new`](ClientHello::new); and [`Malformed::Kind`], [`Malformed::Version`] or [`Malformed::Range`] if the
    /// bytes are not a handshake record. [`Malformed::Short`] also if the message continues in another record.
    pub fn of_stream(stream: &'a [u8]) -> Result<Self, Malformed> {
        let record = Record::new(stream)?;
        if record.header().content_type() != HANDSHAKE {
            return Err(Malformed::Kind);
        }
        Self::new(record.payload())
    }

    /// Returns the version field: 0x0303 for TLS 1.2 and 1.3; see
    /// [`supported_versions`](ClientHello::supported_versions).
    pub fn version(&self) -> u16 {
        self.repr.version
    }

    /// Returns the random number.
    pub fn random(&self) -> &'a [u8; 32] {
        self.repr.random
    }

    /// Returns the session identifier, at most 32 bytes.
    pub fn session_id(&self) -> &'a [u8] {
        self.repr.session_id
    }

    /// Returns the cipher suites.
    pub fn cipher_suites(&self) -> impl Iterator<Item = u16> + use<'a> {
        words(self.repr.cipher_suites)
    }

    /// Returns types and data of the extensions, in order.
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions(Reader(self.repr.extensions.unwrap_or_default()))
    }

    /// Returns the data of the first extension of a type.
    pub fn extension(&self, kind: u16) -> Option<&'a [u8]> {
        self.extensions().find(|(known, _)| *known == kind).map(|(_, data)| data)
    }

    /// Returns the host name of the server that the client asks for (RFC 6066 §3); `None` if there is none or the
    /// extension is malformed.
    pub fn server_name(&self) -> Option<&'a [u8]> {
        let mut names = Reader(Reader(self.extension(SERVER_NAME)?).vector(2).ok()?);
        // the only type of name
        (names.number(1).ok()? == 0).then_some(())?;
        names.vector(2).ok().filter(|name| !name.is_empty())
    }

    /// Returns the application protocols that the client offers (ALPN, RFC 7301), up to the first error.
    pub fn application_protocols(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let list = self.extension(APPLICATION_PROTOCOLS).and_then(|data| Reader(data).vector(2).ok());
        let mut list = Reader(list.unwrap_or_default());
        core::iter::from_fn(move || list.vector(1).ok())
    }

    /// Returns the versions that the client supports: 0x0304 for TLS 1.3 (RFC 8446 §4.2.1); none without the extension.
    pub fn supported_versions(&self) -> impl Iterator<Item = u16> + use<'a> {
        let list = self.extension(SUPPORTED_VERSIONS).and_then(|data| Reader(data).vector(1).ok());
        words(list.unwrap_or_default())
    }

    /// Returns the message as a value.
    pub fn repr(&self) -> Repr<'a> {
        self.repr
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + use<'_> {
    bytes.chunks_exact(2).map(|pair| pair.iter().fold(0, |word, byte| word << 8 | u16::from(*byte)))
}

/// The extensions of a [`ClientHello`].
#[derive(Clone)]
pub struct Extensions<'a>(Reader<'a>);

impl<'a> Iterator for Extensions<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.0.number(2).ok()?;
        Some((kind as u16, self.0.vector(2).ok()?))
    }
}

/// Joins the ClientHello at the start of a stream from its records into a buffer; returns its length, for
/// [`ClientHello::new`].
///
/// # Errors
/// [`Malformed::Short`] if the stream ends before the message, [`Malformed::Range`] if the message exceeds the buffer
/// or [`MAX_HELLO`] or has more than 64 records, and the other errors of [`ClientHello::of_stream`].
pub fn join(mut stream: &[u8], buffer: &mut [u8]) -> Result<usize, Malformed> {
    let mut joined = 0;
    for _ in 0..MAX_RECORDS {
        let record = Record::new(stream)?;
        if record.header().content_type() != HANDSHAKE {
            return Err(Malformed::Kind);
        }
        let part = record.payload();
        let to = buffer.get_mut(joined..joined + part.len()).ok_or(Malformed::Range)?;
        to.copy_from_slice(part);
        joined += part.len();
        let message = buffer.get(..joined).unwrap_or_default();
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Malformed::Kind);
        }
        if let [_, high, middle, low, ..] = *message {
            let len = MESSAGE_HEADER + usize::from(high) * 65_536 + usize::from(middle) * 256 + usize::from(low);
            if len > MAX_HELLO {
                return Err(Malformed::Range);
            }
            if len <= joined {
                return Ok(len);
            }
        }
        stream = stream.get(record.bytes().len()..).unwrap_or_default();
    }
    Err(Malformed::Range)
}

/// A ClientHello as a value. Lists are in the form of the message, without their lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr<'a> {
    /// Version field.
    pub version: u16,
    /// Random number.
    pub random: &'a [u8; 32],
    /// Session identifier, at most 32 bytes.
    pub session_id: &'a [u8],
    /// Cipher suites, two bytes each, at least one.
    pub cipher_suites: &'a [u8],
    /// Compression methods, one byte each, at least one.
    pub compression_methods: &'a [u8],
    /// Extensions, each with type and length; `None` for a message that ends before them.
    pub extensions: Option<&'a [u8]>,
}

impl<'a> Repr<'a> {
    /// Parses a checked message.
    pub fn parse(hello: &ClientHello<'a>) -> Self {
        hello.repr
    }

    fn of_body(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(body);
        let version = reader.number(2)? as u16;
        let random = reader.take(32)?.first_chunk().ok_or(Malformed::Short)?;
        let (session_id, cipher_suites) = (reader.vector(1)?, reader.vector(2)?);
        let compression_methods = reader.vector(1)?;
        let extensions = if reader.0.is_empty() { None } else { Some(reader.vector(2)?) };
        if !reader.0.is_empty() {
            return Err(Malformed::Option);
        }
        let repr = Repr { version, random, session_id, cipher_suites, compression_methods, extensions };
        repr.check()?;
        Ok(repr)
    }

    fn check(&self) -> Result<(), Malformed> {
        let suites = self.cipher_suites.len();
        if self.session_id.len() > 32 || suites == 0 || !suites.is_multiple_of(2) || self.compression_methods.is_empty()
        {
            return Err(Malformed::Option);
        }
        let mut extensions = Reader(self.extensions.unwrap_or_default());
        while !extensions.0.is_empty() {
            extensions.number(2).and_then(|_| extensions.vector(2)).map_err(|_| Malformed::Option)?;
        }
        Ok(())
    }

    /// Returns the length of the body in bytes.
    fn body_len(&self) -> usize {
        let extensions = self.extensions.map_or(0, |extensions| 2 + extensions.len());
        let lists = [self.session_id, self.cipher_suites, self.compression_methods];
        2 + 32 + 1 + 2 + 1 + lists.iter().map(|list| list.len()).sum::<usize>() + extensions
    }

    /// Returns the length of the handshake message in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        MESSAGE_HEADER + self.body_len()
    }

    /// Writes the handshake message to the start of `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there are fewer than [`len`](Repr::len) bytes, [`Malformed::Range`] or
    /// [`Malformed::Option`] if a list does not fit its length field or is not one.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), Malformed> {
        self.check()?;
        let mut rest = bytes.get_mut(..self.len()).ok_or(Malformed::Short)?;
        let mut put = |part: &[u8]| {
            let (to, behind) = core::mem::take(&mut rest).split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = behind;
        };
        let length = |len: usize, bytes: usize| match (len as u32).to_be_bytes() {
            all if len >> (8 * bytes) == 0 => Ok(all),
            _ => Err(Malformed::Range),
        };
        put(&[CLIENT_HELLO]);
        put(&length(self.body_len(), 3)?[1..]);
        put(&self.version.to_be_bytes());
        put(self.random);
        let lists = [(self.session_id, 1), (self.cipher_suites, 2), (self.compression_methods, 1)];
        for (list, bytes) in lists.into_iter().chain(self.extensions.map(|extensions| (extensions, 2))) {
            put(&length(list.len(), bytes)?[4 - bytes..]);
            put(list);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
