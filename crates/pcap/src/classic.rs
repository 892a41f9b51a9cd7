//! Classic pcap: a 24-byte header, then records of 16 bytes and a frame (pcap-savefile(5),
//! draft-ietf-opsawg-pcap §4, §5).

use std::io::Read;

use crate::error::Fault;
use crate::input::{Input, Order};
use crate::record::RecordSpan;
use crate::{LinkType, MAX_FRAME};

/// Magic number of files with microseconds.
pub(crate) const MAGIC_US: u32 = 0xa1b2_c3d4;
/// Magic number of files with nanoseconds.
pub(crate) const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// The version written since 1998. Up to 2.3 the two lengths of a record stood in either order (libpcap, sf-pcap.c).
pub(crate) const VERSION: [u16; 2] = [2, 4];
/// Bytes before a frame.
pub(crate) const RECORD_HEADER: usize = 16;

/// Bytes before the first record.
pub(crate) const FILE_HEADER: usize = 24;

/// Magic numbers of formats that look like pcap and are not: their records have other headers.
const MODIFIED: [(u32, &str); 5] = [
    (0xa1b2_cd34, "Alexey Kuznetsov's modified pcap"),
    (0xa1b2_34cd, "Francisco Mesquita's modified pcap"),
    (0xa12b_3c4d, "Navtel's modified pcap"),
    (0x1c00_01ac, "IXIA's hardware-timestamped pcap (lcap)"),
    (0x1c00_01ab, "IXIA's software-timestamped pcap (lcap)"),
];

/// A classic pcap file whose header has been read.
#[derive(Debug)]
pub(crate) struct Classic {
    order: Order,
    /// Nanoseconds per unit of the fraction of a timestamp: 1 or 1000.
    unit_ns: u64,
    link_type: LinkType,
    /// Version below 2.4: of the two lengths the lesser is the captured one.
    unordered_lengths: bool,
}

impl Classic {
    /// Byte order and nanoseconds per unit of a file that starts with `magic`; an error for the known variants.
    pub(crate) fn recognise(magic: [u8; 4]) -> Result<Option<(Order, u64)>, Fault> {
        for order in [Order::Little, Order::Big] {
            match order.u32(magic) {
                MAGIC_US => return Ok(Some((order, 1000))),
                MAGIC_NS => return Ok(Some((order, 1))),
                word => {
                    if let Some((_, name)) = MODIFIED.iter().find(|(magic, _)| *magic == word) {
                        return Err(Fault::Format {
                            problem: format!("{name} (magic {word:#010x}) is not supported"),
                            remedy: "convert it with Wireshark (editcap -F pcapng IN OUT) or the program that wrote it",
                        });
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads the file header.
    pub(crate) fn open<R: Read>(input: &mut Input<R>, order: Order, unit_ns: u64) -> Result<Self, Fault> {
        let header: [u8; FILE_HEADER] = input.array()?.ok_or(Fault::Cut)?;
        let [_, _, _, _, _, link] = order.words(&header);
        let major = order.u16([header[4], header[5]]);
        let minor = order.u16([header[6], header[7]]);
        if major != VERSION[0] || minor > VERSION[1] {
            return Err(Fault::Format {
                problem: format!("pcap version {major}.{minor} is not supported, only 2.0 to 2.4 are"),
                remedy: "convert it to pcapng with the program that wrote it",
            });
        }
        // The upper half tells about a frame check sequence (draft-ietf-opsawg-pcap §4); it is left in the frame.
        Ok(Self { order, unit_ns, link_type: LinkType(link as u16), unordered_lengths: minor < VERSION[1] })
    }

    /// Returns the next record, or `None` at the end.
    #[inline]
    pub(crate) fn next<R: Read>(&self, input: &mut Input<R>) -> Result<Option<RecordSpan>, Fault> {
        input.mark();
        let Some(header) = input.array::<RECORD_HEADER>()? else {
            return if input.available().is_empty() { Ok(None) } else { Err(Fault::Cut) };
        };
        let [seconds, fraction, mut length, mut original_len] = self.order.words(&header);
        if self.unordered_lengths {
            (length, original_len) = (length.min(original_len), length.max(original_len));
        }
        if length as usize > MAX_FRAME {
            return Err(Fault::TooLong(length));
        }
        if !input.ensure(length as usize)? {
            return Err(Fault::Cut);
        }
        Ok(Some(RecordSpan {
            timestamp_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns,
            original_len,
            link_type: self.link_type,
            interface: 0,
            at: input.take(length as usize),
            length: length as usize,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{classic, read_all};
    use crate::{Error, LinkType, MAX_FRAME, Reader};

    #[test]
    fn both_magics_in_both_orders_give_the_same_nanoseconds() {
        for big in [false, true] {
            for (magic, fraction, expected) in
                [(super::MAGIC_US, 999_999, 7_999_999_000), (super::MAGIC_NS, 999_999_999, 7_999_999_999)]
            {
                let file = classic(big, magic, 113, &[(7, fraction, 3, 60, &[1, 2, 3])]);
                let (records, end) = read_all(&file);
                assert!(end.is_none(), "{end:?}");
                assert_eq!(records.len(), 1);
                assert_eq!(records[0].timestamp_ns, expected);
                assert_eq!(records[0].original_len, 60);
                assert_eq!(records[0].link_type, LinkType::LINUX_SLL);
                assert_eq!(records[0].frame, [1, 2, 3]);
            }
        }
    }

    #[test]
    fn times_past_2038_are_unsigned() {
        let file = classic(false, super::MAGIC_NS, 1, &[(u32::MAX, 1, 0, 0, &[])]);
        assert_eq!(read_all(&file).0[0].timestamp_ns, 4_294_967_295_000_000_001);
    }

    #[test]
    fn upper_half_of_the_link_type_is_no_part_of_it() {
        let file = classic(true, super::MAGIC_US, 0x2400_0001, &[(1, 1, 1, 1, &[9])]);
        assert_eq!(read_all(&file).0[0].link_type, LinkType::ETHERNET);
    }

    #[test]
    fn modified_variants_and_other_versions_are_named() {
        for (magic, name) in super::MODIFIED {
            for bytes in [magic.to_le_bytes(), magic.to_be_bytes()] {
                let error = Reader::new(&bytes[..]).unwrap_err().to_string();
                assert!(error.contains(name) && error.contains("editcap"), "{error}");
            }
        }
        let mut file = classic(false, super::MAGIC_US, 1, &[]);
        file[6] = 5;
        let error = Reader::new(&file[..]).unwrap_err().to_string();
        assert!(error.starts_with("capture: pcap version 2.5 is not supported, only 2.0 to 2.4 are; "), "{error}");
    }

    #[test]
    fn before_version_2_4_the_lesser_length_is_the_captured_one() {
        let records = [(1, 0, 3, 60, &[1, 2, 3][..]), (2, 0, 60, 2, &[4, 5])];
        let mut file = classic(true, super::MAGIC_US, 1, &records);
        file[7] = 3;
        let (records, end) = read_all(&file);
        assert!(end.is_none(), "{end:?}");
        assert!(records.iter().all(|r| r.original_len == 60));
        assert_eq!(records.iter().map(|r| r.frame.len()).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn a_frame_above_the_limit_is_reported_and_ends_the_reading() {
        let longest = vec![7; MAX_FRAME];
        let limit = MAX_FRAME as u32;
        let file = classic(
            false,
            super::MAGIC_US,
            1,
            &[(1, 0, limit, limit, &longest), (2, 0, limit + 1, limit + 1, &[0; 64]), (3, 0, 0, 0, &[])],
        );
        let mut reader = Reader::new(&file[..]).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().frame, longest);
        match reader.next() {
            Err(Error::FrameTooLong { record: 2, offset, length: 262_145, .. }) => {
                assert_eq!(offset, 24 + 16 + 262_144)
            }
            other => panic!("{other:?}"),
        }
        assert!(reader.next().unwrap().is_none(), "after an error the reader is finished");
    }
}
