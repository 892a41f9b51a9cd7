//! What one node tells another about a packet, beside its bytes.

use crate::mbuf::NOTED;
use crate::{Meta, MetaMut};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of a note at most.
pub const NOTE_MOST: usize = 16;

/// Something that a node notes on a packet, for nodes behind it. A packet has one note: the last one.
///
/// It is known by its name: who asks for another type gets nothing. It goes with the packet along its chain, also to another
/// core, and is forgotten when the packet is sent or freed; a port that lies in memory, such as a ring, may keep it.
///
/// ```
/// use packet::{HeapPool, Note, Pool};
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Tenant {
///     vrf: u32,
///     class: u32,
/// }
/// impl Note for Tenant {
///     const NAME: &'static str = "tenant";
/// }
///
/// let mut packet = HeapPool::new(1).alloc_from(&[0; 60]).unwrap();
/// assert_eq!(packet.meta().note::<Tenant>(), None);
/// packet.meta_mut().set_note(Tenant { vrf: 7, class: 1 });
/// assert_eq!(packet.meta().note::<Tenant>(), Some(Tenant { vrf: 7, class: 1 }));
/// ```
///
/// A larger one does not compile:
/// ```compile_fail,E0080
/// # use packet::{HeapPool, Note, Pool};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes};
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Large([u64; 3]);
/// impl Note for Large {
///     const NAME: &'static str = "large";
/// }
/// HeapPool::new(1).alloc().unwrap().meta_mut().set_note(Large([0; 3]));
/// ```
pub trait Note: Copy + FromBytes + IntoBytes + Immutable + 'static {
    /// Its name, which no other type of note has: write `crate-name/type` where notes of several authors meet.
    const NAME: &'static str;
    /// The name as a number (FNV-1a), never 0.
    #[doc(hidden)]
    const TAG: u32 = {
        assert!(size_of::<Self>() <= NOTE_MOST, "a note has 16 bytes at most");
        let (name, mut hash, mut at) = (Self::NAME.as_bytes(), 0x811c_9dc5_u32, 0);
        while at < name.len() {
            hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        hash | 1 << 31
    };
}

impl Meta<'_> {
    /// The note, if it is one of this type.
    #[inline(always)]
    pub fn note<N: Note>(&self) -> Option<N> {
        let [tag, words @ ..] = &self.header().note;
        if self.header().ol_flags & NOTED == 0 || *tag != N::TAG {
            return None;
        }
        N::read_from_prefix(words.as_bytes()).ok().map(|(note, _)| note)
    }
}

impl MetaMut<'_> {
    /// Notes something, instead of what was noted before.
    #[inline(always)]
    pub fn set_note<N: Note>(&mut self, note: N) {
        let header = self.header();
        header.ol_flags |= NOTED;
        let [tag, words @ ..] = &mut header.note;
        *tag = N::TAG;
        // a note has no more bytes than there is room
        let _ = note.write_to_prefix(words.as_mut_bytes());
    }

    /// Forgets what was noted.
    pub fn clear_note(&mut self) {
        self.header().ol_flags &= !NOTED;
    }

    /// Notes what is noted on another packet.
    pub fn copy_note(&mut self, from: Meta<'_>) {
        let (noted, note) = (from.header().ol_flags & NOTED, from.header().note);
        let header = self.header();
        header.ol_flags = header.ol_flags & !NOTED | noted;
        header.note = note;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeapPool, Pool};

    impl Note for u32 {
        const NAME: &'static str = "test/number";
    }
    impl Note for [u8; 16] {
        const NAME: &'static str = "test/bytes";
    }

    #[test]
    fn a_note_is_read_as_what_it_is_and_goes_with_its_packet() {
        let pool = HeapPool::new(2);
        let mut packet = pool.alloc_from(&[7; 60]).unwrap();
        assert_eq!(packet.meta().note::<u32>(), None);
        packet.meta_mut().set_note(0xdead_beef_u32);
        assert_eq!((packet.meta().note::<u32>(), packet.meta().note::<[u8; 16]>()), (Some(0xdead_beef), None));
        packet.meta_mut().set_note([9; 16]);
        assert_eq!((packet.meta().note::<u32>(), packet.meta().note::<[u8; 16]>()), (None, Some([9; 16])));
        let mut other = pool.alloc().unwrap();
        other.meta_mut().copy_note(packet.meta());
        assert_eq!(other.meta().note(), Some([9_u8; 16]));
        packet.meta_mut().clear_note();
        assert_eq!(packet.meta().note::<[u8; 16]>(), None);
        assert_eq!(packet.data(), [7; 60]);
        drop(other);
        assert_eq!(pool.alloc().unwrap().meta().note::<[u8; 16]>(), None, "a new packet has none");
    }
}
