//! The first bytes of a stream, of which parts arrive in any order.

/// Bytes kept of a stream: enough for a ClientHello with post-quantum keys.
pub(super) const BYTES: usize = 4096;
/// Most separate parts.
const PARTS_MAX: usize = 16;

/// A connection ID of QUIC, at most 20 bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ConnectionId {
    bytes: [u8; 20],
    length: u8,
}

impl ConnectionId {
    pub(super) fn new(bytes: &[u8]) -> ConnectionId {
        let mut id = ConnectionId::default();
        let length = bytes.len().min(id.bytes.len());
        id.bytes[..length].copy_from_slice(&bytes[..length]);
        ConnectionId { length: length as u8, ..id }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The first bytes of a stream.
pub(super) struct StreamStart {
    bytes: Box<[u8; BYTES]>,
    /// Start and end of the parts that have arrived.
    parts: [(u16, u16); PARTS_MAX],
    parts_len: usize,
    /// TCP sequence number of the first byte.
    pub(super) sequence: u32,
    /// Connection ID of QUIC from which the keys are derived.
    pub(super) connection: ConnectionId,
}

impl StreamStart {
    pub(super) fn new() -> StreamStart {
        StreamStart {
            bytes: Box::new([0; BYTES]),
            parts: [(0, 0); PARTS_MAX],
            parts_len: 0,
            sequence: 0,
            connection: ConnectionId::default(),
        }
    }

    /// Removes all bytes.
    pub(super) fn clear(&mut self) {
        self.parts_len = 0;
        self.connection = ConnectionId::default();
    }

    /// Inserts a part. Bytes beyond the end, and parts that are not adjacent to one of the 16 kept, are discarded.
    pub(super) fn insert(&mut self, offset: usize, part: &[u8]) {
        let end = offset.saturating_add(part.len()).min(BYTES);
        let Some(part) = end.checked_sub(offset).and_then(|length| part.get(..length)).filter(|part| !part.is_empty())
        else {
            return;
        };
        let (mut start, mut stop) = (offset as u16, end as u16);
        // merges all parts that it touches
        let mut kept = 0;
        let mut parts = [(0, 0); PARTS_MAX];
        for known in self.parts.iter().take(self.parts_len) {
            if known.0 <= stop && start <= known.1 {
                (start, stop) = (start.min(known.0), stop.max(known.1));
            } else {
                parts[kept] = *known;
                kept += 1;
            }
        }
        if kept == PARTS_MAX {
            return;
        }
        parts[kept] = (start, stop);
        (self.parts, self.parts_len) = (parts, kept + 1);
        self.bytes[offset..end].copy_from_slice(part);
    }

    /// Returns the bytes from the first on without gaps.
    pub(super) fn bytes(&self) -> &[u8] {
        let first = self.parts.iter().take(self.parts_len).find(|part| part.0 == 0);
        let end = first.map_or(0, |part| usize::from(part.1));
        self.bytes.get(..end).unwrap_or_default()
    }

    /// Returns true if there is no room for more.
    pub(super) fn is_full(&self) -> bool {
        self.bytes().len() == BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_vector_of_options(parts in prop::collection::vec((0..200usize, 0..40usize), 0..12)) {
            let mut start = StreamStart::new();
            let mut model = vec![None; 400];
            for (offset, length) in parts {
                let part: Vec<u8> = (offset..offset + length).map(|at| at as u8).collect();
                start.insert(offset, &part);
                part.iter().zip(offset..).for_each(|(byte, at)| model[at] = Some(*byte));
            }
            let expected: Vec<u8> = model.iter().map_while(|byte| *byte).collect();
            prop_assert_eq!(start.bytes(), expected);
        }
    }

    #[test]
    fn keeps_a_bounded_number_of_bytes_and_parts() {
        let mut start = StreamStart::new();
        start.insert(BYTES - 2, &[1; 100]);
        start.insert(BYTES + 5, &[1; 100]);
        start.insert(usize::MAX, &[1; 100]);
        (0..100).for_each(|n| start.insert(2 * n + 1, &[n as u8]));
        assert!(start.bytes().is_empty());
        start.insert(0, &[7; BYTES]);
        assert!(start.is_full());
    }
}
