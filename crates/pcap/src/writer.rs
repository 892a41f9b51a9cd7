//! Captures out.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::classic::{FILE_HEADER, MAGIC_NS, RECORD_HEADER, VERSION};
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

impl<W: Write> Sink<W> {
    /// Writes all bytes so that the operating system has them; in case of an error returns how many it has at least.
    fn store(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        match self {
            Self::Plain(inner) => {
                let mut stored = 0;
                while stored < bytes.len() {
                    match inner.write(&bytes[stored..]) {
                        Ok(0) => return Err((stored, ErrorKind::WriteZero.into())),
                        Ok(n) => stored += n,
                        Err(e) if e.kind() == ErrorKind::Interrupted => {}
                        Err(e) => return Err((stored, e)),
                    }
                }
                inner.flush().map_err(|e| (stored, e))
            }
            // bytes in the compressor are flushed, too
            Self::Gzip(inner) => inner.write_all(bytes).and_then(|()| inner.flush()).map_err(|e| (0, e)),
        }
    }
}

/// Writes a classic pcap file: version 2.4, little endian, nanoseconds, one link type
/// (pcap-savefile(5), draft-ietf-opsawg-pcap §4, §5).
///
/// Records are gathered in a buffer of 256 KiB, so an error may come some records late: [`Writer::lost`] returns their
/// number, and [`Writer::finish`] reports errors of the last ones. Dropping a writer writes as many records as
/// possible and reports nothing.
#[derive(Debug)]
pub struct Writer<W: Write> {
    /// `None` once it is finished.
    out: Option<Sink<W>>,
    /// Whole records that are not stored yet, after the file header if that is not stored either.
    buffer: Vec<u8>,
    /// Bytes of the file header in the buffer.
    header: usize,
    file: FileName,
    records_written: u64,
    /// Records that could not be stored, and the bytes of their frames.
    lost: (u64, u64),
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
            Ok(file) if gzip => Ok(Self::begin(Sink::Gzip(GzEncoder::new(file, Compression::fast())), name, link_type)),
            Ok(file) => Ok(Self::begin(Sink::Plain(file), name, link_type)),
            Err(reason) => Err(Error::Create { file: name, reason }),
        }
    }
}

impl<W: Write> Writer<W> {
    /// Writes to a stream, not compressed.
    pub fn new(stream: W, link_type: LinkType) -> Result<Self, Error> {
        Ok(Self::begin(Sink::Plain(stream), FileName::default(), link_type))
    }

    /// Writes to a stream, gzipped.
    pub fn gzip(stream: W, link_type: LinkType) -> Result<Self, Error> {
        Ok(Self::begin(Sink::Gzip(GzEncoder::new(stream, Compression::fast())), FileName::default(), link_type))
    }

    fn begin(sink: Sink<W>, file: FileName, link_type: LinkType) -> Self {
        let mut writer = Self {
            out: Some(sink),
            buffer: Vec::with_capacity(BUFFER),
            header: FILE_HEADER,
            file,
            records_written: 0,
            lost: (0, 0),
            broken: false,
        };
        let mut header = [0; FILE_HEADER];
        header[0..4].copy_from_slice(&MAGIC_NS.to_le_bytes());
        header[4..6].copy_from_slice(&VERSION[0].to_le_bytes());
        header[6..8].copy_from_slice(&VERSION[1].to_le_bytes());
        // Bytes 8 to 16, time zone and accuracy, are zero.
        header[16..20].copy_from_slice(&(MAX_FRAME as u32).to_le_bytes());
        header[20..24].copy_from_slice(&u32::from(link_type.0).to_le_bytes());
        writer.buffer.extend_from_slice(&header);
        writer
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
        if self.broken || self.buffer.len() + RECORD_HEADER + frame.len() > BUFFER {
            let record = self.records_written + 1;
            self.store().map_err(|reason| self.failed(record, reason))?;
        }
        let length = frame.len() as u32;
        let mut header = [0; RECORD_HEADER];
        header[0..4].copy_from_slice(&seconds.to_le_bytes());
        header[4..8].copy_from_slice(&((timestamp_ns % 1_000_000_000) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&length.to_le_bytes());
        header[12..16].copy_from_slice(&original_len.max(length).to_le_bytes());
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(frame);
        self.records_written += 1;
        Ok(())
    }

    /// Hands all records written so far to the operating system, so that others can read them.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.store().map_err(|reason| self.failed(self.records_written, reason))
    }

    #[cold]
    fn store(&mut self) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        let stored = out.store(&self.buffer);
        if let Err((stored, _)) = &stored {
            self.broken = true;
            self.lost = lost(self.buffer.get(self.header..).unwrap_or_default(), stored.saturating_sub(self.header));
        }
        self.buffer.clear();
        self.header = 0;
        stored.map_err(|(_, reason)| reason)
    }

    /// Writes the buffered records, ends the compressed stream if there is one, and returns the stream written to.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        let inner = match self.out.take() {
            Some(Sink::Plain(inner)) => Ok(inner),
            Some(Sink::Gzip(encoder)) => encoder.finish(),
            None => Err(io::Error::other("it is finished")),
        };
        let inner = inner.and_then(|mut inner| inner.flush().map(|()| inner));
        inner.map_err(|reason| self.failed(self.records_written, reason))
    }

    /// Returns how many of the accepted records could not be stored after a write failed, and the bytes of their frames.
    /// Of a gzipped file, some of them may be readable nevertheless.
    pub fn lost(&self) -> (u64, u64) {
        self.lost
    }

    /// Records accepted so far.
    pub fn records_written(&self) -> u64 {
        self.records_written
    }

    #[cold]
    fn failed(&self, record: u64, reason: io::Error) -> Error {
        Error::Write { file: self.file.clone(), record, reason }
    }

    #[cold]
    fn refuse(&self, problem: String) -> Error {
        Error::Refused { file: self.file.clone(), record: self.records_written + 1, problem }
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        // errors: the owner asked for no result
        let _ = self.store();
    }
}

/// Returns the number of records that do not end within the first `stored` bytes, and the bytes of their frames.
fn lost(mut records: &[u8], mut stored: usize) -> (u64, u64) {
    let (mut count, mut bytes) = (0, 0);
    while let Some((header, rest)) = records.split_first_chunk::<RECORD_HEADER>() {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if RECORD_HEADER + length > stored {
            (count, bytes) = (count + 1, bytes + length as u64);
        }
        stored = stored.saturating_sub(RECORD_HEADER + length);
        records = rest.get(length..).unwrap_or_default();
    }
    (count, bytes)
}

#[cfg(test)]
mod tests;
