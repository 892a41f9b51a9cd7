//! pcapng out.

use crate::error::{Error, FileName};
use crate::ng::{AROUND_BODY, ENHANCED_PACKET, INTERFACE, OPT_END, OPT_TSRESOL, ORDER_MAGIC, SECTION_HEADER};
use crate::{LinkType, MAX_FRAME};
use std::io::{self, BufWriter, Write};

// block types and options that only a writer needs, draft-ietf-opsawg-pcapng §4, §3.5
const INTERFACE_STATISTICS: u32 = 5;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
/// Longest value of an option that is written; others are cut.
const MAX_OPTION: usize = 1024;

/// Writes pcapng: one section, several named interfaces, nanoseconds, comments of packets
/// (draft-ietf-opsawg-pcapng). Blocks are buffered until [`NgWriter::flush`].
///
/// ```
/// use pcap::{LinkType, NgWriter, Reader};
///
/// let mut writer = NgWriter::new(Vec::new(), LinkType::ETHERNET, 65_536, &["lan rx", "fw drops"])?;
/// writer.write(1, 1_700_000_000_123_456_789, 60, &[0; 60], Some("dropped by fw: rule"))?;
/// writer.statistics(1, 1_700_000_000_123_456_790, 3, 2)?;
/// let file: Vec<u8> = writer.finish()?;
///
/// let mut reader = Reader::new(&file[..])?;
/// assert_eq!(reader.next()?.unwrap().timestamp_ns, 1_700_000_000_123_456_789);
/// # Ok::<(), pcap::Error>(())
/// ```
#[derive(Debug)]
pub struct NgWriter<W: Write> {
    out: BufWriter<W>,
    block: Vec<u8>,
    records_written: u64,
}

impl<W: Write> NgWriter<W> {
    /// Begins a section with these interfaces; `snaplen` is the largest number of bytes of a frame that is written.
    ///
    /// # Errors
    /// The stream accepts no more.
    pub fn new(stream: W, link_type: LinkType, snaplen: u32, interfaces: &[&str]) -> Result<Self, Error> {
        let mut writer = NgWriter { out: BufWriter::new(stream), block: vec![], records_written: 0 };
        writer.put(&ORDER_MAGIC.to_le_bytes());
        // version 1.0, unknown length
        writer.put(&[1, 0, 0, 0]);
        writer.put(&u64::MAX.to_le_bytes());
        writer.option(SHB_USERAPPL, b"bondstone");
        writer.end_block(SECTION_HEADER)?;
        for name in interfaces {
            writer.put(&link_type.0.to_le_bytes());
            writer.put(&[0; 2]);
            writer.put(&snaplen.to_le_bytes());
            writer.option(IF_NAME, name.as_bytes());
            writer.option(OPT_TSRESOL, &[9]);
            writer.end_block(INTERFACE)?;
        }
        Ok(writer)
    }

    /// Appends a frame, at a time in nanoseconds since the Unix epoch; `original_len` is the length of the frame before it
    /// was cut.
    ///
    /// # Errors
    /// The frame is longer than [`MAX_FRAME`], or the stream accepts no more.
    pub fn write(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        original_len: u32,
        frame: &[u8],
        comment: Option<&str>,
    ) -> Result<(), Error> {
        if frame.len() > MAX_FRAME {
            let problem = format!("its frame has {} bytes, the limit is {MAX_FRAME}", frame.len());
            return Err(Error::Refused { file: FileName::default(), record: self.records_written + 1, problem });
        }
        self.put(&interface.to_le_bytes());
        self.put_time(timestamp_ns);
        self.put(&(frame.len() as u32).to_le_bytes());
        self.put(&original_len.max(frame.len() as u32).to_le_bytes());
        self.put_padded(frame);
        if let Some(comment) = comment {
            self.option(OPT_COMMENT, comment.as_bytes());
        }
        self.end_block(ENHANCED_PACKET)?;
        self.records_written += 1;
        Ok(())
    }

    /// Appends the numbers of frames that an interface has received, and that were lost before they could be written.
    ///
    /// # Errors
    /// The stream accepts no more.
    pub fn statistics(&mut self, interface: u32, timestamp_ns: u64, received: u64, lost: u64) -> Result<(), Error> {
        self.put(&interface.to_le_bytes());
        self.put_time(timestamp_ns);
        self.option(ISB_IFRECV, &received.to_le_bytes());
        self.option(ISB_IFDROP, &lost.to_le_bytes());
        self.end_block(INTERFACE_STATISTICS)
    }

    /// Returns the stream.
    pub fn get_ref(&self) -> &W {
        self.out.get_ref()
    }

    /// Passes all blocks so far to the stream.
    ///
    /// # Errors
    /// The stream accepts no more.
    pub fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.out.flush();
        flushed.map_err(|reason| self.failed(reason))
    }

    /// Passes all blocks to the stream and returns it.
    ///
    /// # Errors
    /// The stream accepts no more.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        let record = self.records_written;
        let failed = |reason| Error::Write { file: FileName::default(), record, reason };
        self.out.into_inner().map_err(|e| failed(e.into_error()))
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn put_time(&mut self, timestamp_ns: u64) {
        self.put(&((timestamp_ns >> 32) as u32).to_le_bytes());
        self.put(&(timestamp_ns as u32).to_le_bytes());
    }

    fn put_padded(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.put(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(MAX_OPTION)];
        self.put(&code.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put_padded(value);
    }

    /// Writes the block that was put together, whose last parts may be options.
    fn end_block(&mut self, kind: u32) -> Result<(), Error> {
        // without options the end is permitted as well (§3.5)
        self.put(&OPT_END.to_le_bytes());
        self.put(&[0; 2]);
        let len = (self.block.len() as u32 + AROUND_BODY).to_le_bytes();
        let parts = [&kind.to_le_bytes()[..], &len, &self.block, &len];
        let written = parts.into_iter().try_for_each(|part| self.out.write_all(part));
        self.block.clear();
        written.map_err(|reason| self.failed(reason))
    }

    fn failed(&self, reason: io::Error) -> Error {
        Error::Write { file: FileName::default(), record: self.records_written, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            frames in prop::collection::vec(
                (0..3_u32, any::<u64>(), prop::collection::vec(any::<u8>(), 0..70), 0..9_u32, any::<bool>()), 0..9,
            ),
        ) {
            let mut writer = NgWriter::new(vec![], LinkType::ETHERNET, 64, &["a", "with spaces", ""]).unwrap();
            for (interface, time, frame, more, has_comment) in &frames {
                let comment = has_comment.then_some("é".repeat(600));
                writer.write(*interface, *time, frame.len() as u32 + more, frame, comment.as_deref()).unwrap();
            }
            writer.statistics(2, 7, 8, 9).unwrap();
            let file = writer.finish().unwrap();
            let mut reader = Reader::new(&file[..]).unwrap();
            for (_, time, frame, more, _) in &frames {
                let record = reader.next().unwrap().unwrap();
                prop_assert_eq!((record.timestamp_ns, record.frame), (*time, &frame[..]));
                prop_assert_eq!(record.original_len, frame.len() as u32 + more);
            }
            prop_assert!(reader.next().unwrap().is_none());
        }
    }

    #[test]
    fn errors_of_the_stream_are_reported() {
        let mut full = [0; 8];
        let mut writer = NgWriter::new(&mut full[..], LinkType::ETHERNET, 64, &[]).unwrap();
        assert!(writer.flush().is_err());
        let mut writer = NgWriter::new(vec![], LinkType::ETHERNET, 64, &["a"]).unwrap();
        assert!(writer.write(0, 0, 0, &vec![0; MAX_FRAME + 1], None).is_err());
    }
}
