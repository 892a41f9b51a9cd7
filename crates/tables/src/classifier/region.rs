//! Rules as boxes in the space of packets, and cells of that space.

/// Bits of a key's last word.
pub(super) mod meta {
    /// Bits 0 to 7 are TCP flags, bits 8 to 15 the protocol: it stands there in an IPv4 header too.
    pub(in super::super) const PROTOCOL_AT: u32 = 8;
    pub(in super::super) const PROTOCOL: u32 = 0xff << PROTOCOL_AT;
    /// Offset above 0.
    pub(in super::super) const LATER: u32 = 1 << 16;
    /// Offset above 0 or more to follow.
    pub(in super::super) const FRAGMENT: u32 = 1 << 17;
    /// The ports are known.
    pub(in super::super) const PORTS: u32 = 1 << 18;
    /// ICMP type and code are known, and stand where the ports would.
    pub(in super::super) const ICMP: u32 = 1 << 19;
    /// The TCP flags are known.
    pub(in super::super) const FLAGS: u32 = 1 << 20;
    /// No key has it: what asks for it matches nothing.
    pub(in super::super) const NEVER: u32 = 1 << 31;
}

/// Most fields a key has: eight address words, two ports, the protocol.
pub(super) const FIELDS: usize = 11;

/// Values from `lo` to `hi`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) lo: u32,
    pub(super) hi: u32,
}

impl Span {
    fn contains(self, other: Self) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }
}

/// The packets that a rule matches: a span in every field (words of source, words of destination, source port, destination port,
/// protocol) and bits of the last word.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) spans: [Span; FIELDS],
    /// Words in an address: 1 or 4.
    pub(super) words: usize,
    pub(super) meta_value: u32,
    pub(super) meta_mask: u32,
    /// The rule's index.
    pub(super) rank: u32,
}

impl Region {
    /// Returns all packets whose addresses have `words` words.
    pub(super) fn all(words: usize, rank: u32) -> Self {
        let mut spans = [Span { lo: 0, hi: u32::MAX }; FIELDS];
        for (field, span) in spans.iter_mut().enumerate() {
            span.hi = full(field, words);
        }
        Self { spans, words, meta_value: 0, meta_mask: 0, rank }
    }

    pub(super) fn fields(&self) -> usize {
        2 * self.words + 3
    }

    pub(super) fn require(&mut self, mask: u32, value: u32) {
        self.meta_mask |= mask;
        self.meta_value |= value;
    }

    /// Returns true if every packet of `cell` is in the region.
    pub(super) fn covers(&self, cell: &Cell) -> bool {
        (0..self.fields()).all(|f| self.spans[f].contains(cell.bits[f].hull(full(f, self.words))))
            && self.meta_mask & !meta::PROTOCOL == 0
    }

    /// Returns true if any packet is in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        (0..self.fields()).all(|f| self.spans[f].lo <= other.spans[f].hi && other.spans[f].lo <= self.spans[f].hi)
            && (self.meta_value ^ other.meta_value) & self.meta_mask & other.meta_mask == 0
    }

    /// Returns true if within `cell` every packet of `other` is in this region.
    pub(super) fn hides(&self, other: &Self, cell: &Cell) -> bool {
        (0..self.fields()).all(|f| {
            self.spans[f].contains(other.spans[f]) || self.spans[f].contains(cell.bits[f].hull(full(f, self.words)))
        }) && {
            // the protocol is a span as well, and judged there
            let mask = self.meta_mask & !meta::PROTOCOL;
            mask & !other.meta_mask == 0 && (self.meta_value ^ other.meta_value) & mask == 0
        }
    }
}

/// Returns the greatest value of a field.
pub(super) fn full(field: usize, words: usize) -> u32 {
    match field.checked_sub(2 * words) {
        None => u32::MAX,
        Some(0 | 1) => 0xffff,
        Some(_) => 0xff,
    }
}

/// Part of the space of packets: some bits of each field are known.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) bits: [Bits; FIELDS],
}

impl Cell {
    pub(super) const ALL: Self = Self { bits: [Bits { value: 0, mask: 0 }; FIELDS] };
}

/// Values whose bits under `mask` are those of `value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bits {
    pub(super) value: u32,
    pub(super) mask: u32,
}

impl Bits {
    /// Creates a span from the smallest to the largest value, in a field whose largest value is `full`.
    fn hull(self, full: u32) -> Span {
        Span { lo: self.value, hi: self.value | (full & !self.mask) }
    }

    /// Returns true if any value is in `span`.
    pub(super) fn meets(self, span: Span) -> bool {
        self.at_least(span.lo).is_some_and(|x| x <= span.hi)
    }

    /// Returns the smallest value not below `from`.
    fn at_least(self, from: u32) -> Option<u32> {
        let wrong = (from ^ self.value) & self.mask;
        if wrong == 0 {
            return Some(from);
        }
        let top = 31 - wrong.leading_zeros();
        // the bit to raise: the wrong one if it is to be 1, else the lowest free 0 above it
        let raise = if self.value >> top & 1 == 1 {
            top
        } else {
            let above = !(self.mask | from) & (!1u32 << top);
            if above == 0 {
                return None;
            }
            above.trailing_zeros()
        };
        let below = (1u32 << raise) - 1;
        Some((from & !below) | 1 << raise | self.value & below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_value_is_what_a_scan_finds() {
        for mask in 0..64u32 {
            for value in (0..64u32).filter(|v| v & !mask == 0) {
                for from in 0..64u32 {
                    // bits above the sixth are free: 64 and on are always there
                    let scan = (from..128).find(|x| x & mask == value);
                    assert_eq!(Bits { value, mask }.at_least(from), scan, "{mask:#b} {value:#b} {from}");
                }
            }
        }
        let top = Bits { value: 0, mask: 1 };
        assert_eq!(top.at_least(u32::MAX), None);
        assert_eq!(Bits { value: 1, mask: u32::MAX }.at_least(2), None);
    }
}
