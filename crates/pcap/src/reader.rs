//! Reading captures.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::classic::Classic;
use crate::error::{Error, Fault, FileName};
use crate::input::Input;
use crate::ng::{SECTION_HEADER, Section};
use crate::record::{Record, RecordSpan};

enum Format {
    Classic(Classic),
    Ng(Section),
    /// After the end or an error.
    Finished,
}

/// Reads a capture record by record, in the order of the file.
///
/// Reads are 64 KiB or more, so `R` need not be buffered.
pub struct Reader<R> {
    input: Input<R>,
    format: Format,
    file: FileName,
    records_read: u64,
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("file", &self.file)
            .field("records_read", &self.records_read)
            .finish_non_exhaustive()
    }
}

impl Reader<File> {
    /// Opens a capture: classic pcap or pcapng, plain or gzipped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let name = FileName::from(path.as_ref());
        match File::open(path) {
            Ok(file) => Self::named(file, name),
            Err(reason) => Err(Error::Open { file: name, reason }),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Reads a capture from a stream; waits for its header.
    pub fn new(stream: R) -> Result<Self, Error> {
        Self::named(stream, FileName::default())
    }

    fn named(stream: R, file: FileName) -> Result<Self, Error> {
        let mut input = match Input::new(stream) {
            Ok(input) => input,
            Err(fault) => return Err(explain(fault, file, 0, 0)),
        };
        match recognise(&mut input) {
            Ok(format) => Ok(Self { input, format, file, records_read: 0 }),
            Err(fault) => Err(explain(fault, file, 0, 0)),
        }
    }

    /// Returns the next record, or `None` at a clean end. The frame is valid until the next call.
    ///
    /// After an error the reader is finished: it returns `None`.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "the record borrows the reader, an Iterator's item cannot")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        let found = match &mut self.format {
            Format::Classic(classic) => classic.next(&mut self.input),
            Format::Ng(section) => section.next(&mut self.input),
            Format::Finished => return Ok(None),
        };
        match found {
            Ok(Some(RecordSpan { timestamp_ns, original_len, link_type, interface, at, length })) => {
                self.records_read += 1;
                let original_len = original_len.max(length as u32);
                let frame = self.input.bytes(at, length);
                Ok(Some(Record { timestamp_ns, original_len, link_type, interface, frame }))
            }
            Ok(None) => {
                self.format = Format::Finished;
                Ok(None)
            }
            Err(fault) => Err(self.fail(fault)),
        }
    }

    #[cold]
    fn fail(&mut self, fault: Fault) -> Error {
        self.format = Format::Finished;
        explain(fault, self.file.clone(), self.input.marked(), self.records_read)
    }

    /// Records returned so far.
    pub fn records_read(&self) -> u64 {
        self.records_read
    }
}

/// Detects the format of the stream from its first bytes.
fn recognise<R: Read>(input: &mut Input<R>) -> Result<Format, Fault> {
    let enough = input.ensure(4)?;
    let Some(&magic) = input.available().first_chunk::<4>().filter(|_| enough) else {
        return Err(if input.available().is_empty() {
            Fault::Format {
                problem: "empty, not even the header of a capture".to_owned(),
                remedy: "check that the capture was stopped cleanly and copied completely",
            }
        } else {
            Fault::Cut
        });
    };
    if magic == SECTION_HEADER.to_be_bytes() {
        return Ok(Format::Ng(Section::before_first()));
    }
    if let Some((order, unit_ns)) = Classic::recognise(magic)? {
        return Ok(Format::Classic(Classic::open(input, order, unit_ns)?));
    }
    let (what, remedy) = match magic {
        [0x28, 0xb5, 0x2f, 0xfd] => ("zstd-compressed", "decompress it first: zstd -d FILE"),
        [0x04, 0x22, 0x4d, 0x18] => ("lz4-compressed", "decompress it first: lz4 -d FILE"),
        [0xfd, b'7', b'z', b'X'] => ("xz-compressed", "decompress it first: xz -d FILE"),
        [b'B', b'Z', b'h', _] => ("bzip2-compressed", "decompress it first: bzip2 -d FILE"),
        [b'P', b'K', 3, 4] => ("a zip archive", "unpack it first: unzip FILE"),
        [0x1f, 0x8b, ..] => ("gzipped twice", "decompress it once: gzip -d FILE"),
        [b's', b'n', b'o', b'o'] => ("a snoop capture", "convert it: editcap -F pcapng IN OUT"),
        _ => ("not a capture", "give a pcap or pcapng file, plain or gzipped"),
    };
    Err(Fault::Format { problem: format!("{what} (starts with {magic:02x?})"), remedy })
}

fn explain(fault: Fault, file: FileName, offset: u64, records_read: u64) -> Error {
    match fault {
        Fault::Read(reason) => Error::Read { file, offset, records_read, reason },
        Fault::Gzip(reason) => Error::Gzip { file, offset, records_read, reason },
        Fault::Cut => Error::Truncated { file, offset, records_read },
        Fault::TooLong(length) => Error::FrameTooLong { file, record: records_read + 1, offset, length },
        Fault::Corrupt(problem) => Error::Corrupt { file, offset, records_read, problem },
        Fault::Format { problem, remedy } => Error::Format { file, offset, problem, remedy },
    }
}
