//! Captures out.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::classic::{MAGIC_NS, RECORD_HEADER, VERSION};
use crate::error::{Error, FileName};
use crate::{LinkType, MAX_FRAME};

/// Bytes gathered before a write.
const BUFFER: usize = 256 * 1024;

#[derive(Debug)]
enum Sink<W: Write> {
    Plain(W),
    /// At the fastest level: captures are written while packets arrive.
    Gzip(GzEncoder<W>),
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(inner) => inner.write(bytes),
            Self::Gzip(inner) => inner.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(inner) => inner.flush(),
            Self::Gzip(inner) => inner.flush(),
        }
    }
}

/// Writes a classic pcap file: version 2.4, little endian, nanoseconds, one link type
/// (pcap-savefile(5), draft-ietf-opsawg-pcap §4, §5).
///
/// Writes are gathered in a buffer of 256 KiB, so an error may come some records late; [`Writer::finish`] reports the
/// last ones. Dropping a writer writes what it can and reports nothing.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: BufWriter<Sink<W>>,
    file: FileName,
    records_written: u64,
    /// A write failed, perhaps within a record: nothing may follow.
    broken: bool,
}

impl Writer<File> {
    /// Creates or replaces a file; gzipped when its name ends in `.gz`.
    pub fn create(path: impl AsRef<Path>, link_type: LinkType) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = FileName::from(path);
        let gzip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        match File::create(path) {
            Ok(file) if gzip => Self::begin(Sink::Gzip(GzEncoder::new(file, Compression::fast())), name, link_type),
            Ok(file) => Self::begin(Sink::Plain(file), name, link_type),
            Err(reason) => Err(Error::Create { file: name, reason }),
        }
    }
}

impl<W: Write> Writer<W> {
    /// Writes to a stream, not compressed.
    pub fn new(stream: W, link_type: LinkType) -> Result<Self, Error> {
        Self::begin(Sink::Plain(stream), FileName::default(), link_type)
    }

    /// Writes to a stream, gzipped.
    pub fn gzip(stream: W, link_type: LinkType) -> Result<Self, Error> {
        Self::begin(Sink::Gzip(GzEncoder::new(stream, Compression::fast())), FileName::default(), link_type)
    }

    fn begin(sink: Sink<W>, file: FileName, link_type: LinkType) -> Result<Self, Error> {
        let mut writer = Self { out: BufWriter::with_capacity(BUFFER, sink), file, records_written: 0, broken: false };
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&MAGIC_NS.to_le_bytes());
        header[4..6].copy_from_slice(&VERSION[0].to_le_bytes());
        header[6..8].copy_from_slice(&VERSION[1].to_le_bytes());
        // Bytes 8 to 16, time zone and accuracy, are zero.
        header[16..20].copy_from_slice(&(MAX_FRAME as u32).to_le_bytes());
        header[20..24].copy_from_slice(&u32::from(link_type.0).to_le_bytes());
        let written = writer.out.write_all(&header);
        writer.check(written)?;
        Ok(writer)
    }

    /// Appends a record.
    ///
    /// `timestamp_ns` counts nanoseconds since the Unix epoch, until the year 2106. `original_len` is the length of the
    /// frame before it was cut, bytes; where it was not cut, `frame.len()` or anything below.
    #[inline]
    pub fn write(&mut self, timestamp_ns: u64, original_len: u32, frame: &[u8]) -> Result<(), Error> {
        let Ok(seconds) = u32::try_from(timestamp_ns / 1_000_000_000) else {
            return Err(self.refuse(format!("its time, {timestamp_ns} ns, is after 2106, the last year of pcap")));
        };
        if frame.len() > MAX_FRAME {
            return Err(self.refuse(format!("its frame has {} bytes, the limit is {MAX_FRAME}", frame.len())));
        }
        let length = frame.len() as u32;
        let mut header = [0; RECORD_HEADER];
        header[0..4].copy_from_slice(&seconds.to_le_bytes());
        header[4..8].copy_from_slice(&((timestamp_ns % 1_000_000_000) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&length.to_le_bytes());
        header[12..16].copy_from_slice(&original_len.max(length).to_le_bytes());
        self.usable()?;
        let written = self.out.write_all(&header).and_then(|()| self.out.write_all(frame));
        self.check(written)?;
        self.records_written += 1;
        Ok(())
    }

    /// Hands everything written so far to the operating system, so that others can read it.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.usable()?;
        let flushed = self.out.flush();
        self.check(flushed)
    }

    /// Writes what is buffered, ends the compressed stream if there is one, and returns what was written to.
    pub fn finish(mut self) -> Result<W, Error> {
        self.usable()?;
        let Self { out, file, records_written: record, .. } = self;
        let failed = |reason| Error::Write { file, record, reason };
        let inner = match out.into_inner().map_err(io::IntoInnerError::into_error) {
            Ok(Sink::Plain(inner)) => Ok(inner),
            Ok(Sink::Gzip(encoder)) => encoder.finish(),
            Err(reason) => Err(reason),
        };
        inner.and_then(|mut inner| inner.flush().map(|()| inner)).map_err(failed)
    }

    /// Records accepted so far.
    pub fn records_written(&self) -> u64 {
        self.records_written
    }

    #[inline]
    fn check(&mut self, result: io::Result<()>) -> Result<(), Error> {
        result.map_err(|reason| self.failed(reason))
    }

    #[inline]
    fn usable(&mut self) -> Result<(), Error> {
        self.check(if self.broken { Err(io::Error::other("an earlier write failed")) } else { Ok(()) })
    }

    #[cold]
    fn failed(&mut self, reason: io::Error) -> Error {
        self.broken = true;
        Error::Write { file: self.file.clone(), record: self.records_written + 1, reason }
    }

    #[cold]
    fn refuse(&self, problem: String) -> Error {
        Error::Refused { file: self.file.clone(), record: self.records_written + 1, problem }
    }
}

#[cfg(test)]
mod tests;
