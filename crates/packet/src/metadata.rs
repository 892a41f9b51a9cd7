//! Packet metadata: typed values that one node stores with a packet for a later node.

use crate::mbuf::METADATA_FLAG;
use crate::{Meta, MetaMut};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Maximum size of packet metadata in bytes.
pub const METADATA_MAX: usize = 16;

/// A type of packet metadata: a value that a node stores with a packet for later nodes.
///
/// A packet has at most one value. [`Meta::metadata`] returns it to readers that ask for its type, identified by
/// [`NAME`](Metadata::NAME). It stays with the packet along its chain, also to another core, and is discarded when the
/// packet is sent or freed; ports in memory, such as rings, may keep it.
///
/// ```
/// use packet::{HeapPool, Metadata, Pool};
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Tenant {
///     vrf: u32,
///     class: u32,
/// }
/// impl Metadata for Tenant {
///     const NAME: &'static str = "tenant";
/// }
///
/// let mut packet = HeapPool::new(1).alloc_from(&[0; 60]).unwrap();
/// assert_eq!(packet.meta().metadata::<Tenant>(), None);
/// packet.meta_mut().set_metadata(Tenant { vrf: 7, class: 1 });
/// assert_eq!(packet.meta().metadata::<Tenant>(), Some(Tenant { vrf: 7, class: 1 }));
/// ```
///
/// A type of more than 16 bytes does not compile:
/// ```compile_fail,E0080
/// # use packet::{HeapPool, Metadata, Pool};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes};
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Large([u64; 3]);
/// impl Metadata for Large {
///     const NAME: &'static str = "large";
/// }
/// HeapPool::new(1).alloc().unwrap().meta_mut().set_metadata(Large([0; 3]));
/// ```
pub trait Metadata: Copy + FromBytes + IntoBytes + Immutable + 'static {
    /// Unique name of the type. Use `crate-name/type` if types of several authors are combined.
    const NAME: &'static str;
    /// Hash of the name (FNV-1a), never 0.
    #[doc(hidden)]
    const TAG: u32 = {
        assert!(size_of::<Self>() <= METADATA_MAX, "metadata has at most 16 bytes");
        let (name, mut hash, mut at) = (Self::NAME.as_bytes(), 0x811c_9dc5_u32, 0);
        while at < name.len() {
            hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        hash | 1 << 31
    };
}

impl Meta<'_> {
    /// Returns the metadata of the packet, if it has type `M`.
    #[inline(always)]
    pub fn metadata<M: Metadata>(&self) -> Option<M> {
        let [tag, words @ ..] = &self.header().metadata;
        if self.header().ol_flags & METADATA_FLAG == 0 || *tag != M::TAG {
            return None;
        }
        M::read_from_prefix(words.as_bytes()).ok().map(|(value, _)| value)
    }
}

impl MetaMut<'_> {
    /// Sets the metadata of the packet and replaces an earlier value.
    #[inline(always)]
    pub fn set_metadata<M: Metadata>(&mut self, value: M) {
        let header = self.header();
        header.ol_flags |= METADATA_FLAG;
        let [tag, words @ ..] = &mut header.metadata;
        *tag = M::TAG;
        // cannot fail: TAG asserts the size
        let _ = value.write_to_prefix(words.as_mut_bytes());
    }

    /// Removes the metadata of the packet.
    pub fn clear_metadata(&mut self) {
        self.header().ol_flags &= !METADATA_FLAG;
    }

    /// Copies the metadata of another packet, or removes it if that packet has none.
    pub fn copy_metadata(&mut self, from: Meta<'_>) {
        let (flag, metadata) = (from.header().ol_flags & METADATA_FLAG, from.header().metadata);
        let header = self.header();
        header.ol_flags = header.ol_flags & !METADATA_FLAG | flag;
        header.metadata = metadata;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeapPool, Pool};

    impl Metadata for u32 {
        const NAME: &'static str = "test/number";
    }
    impl Metadata for [u8; 16] {
        const NAME: &'static str = "test/bytes";
    }

    #[test]
    fn is_read_as_its_own_type_and_can_be_copied() {
        let pool = HeapPool::new(2);
        let mut packet = pool.alloc_from(&[7; 60]).unwrap();
        assert_eq!(packet.meta().metadata::<u32>(), None);
        packet.meta_mut().set_metadata(0xdead_beef_u32);
        assert_eq!((packet.meta().metadata::<u32>(), packet.meta().metadata::<[u8; 16]>()), (Some(0xdead_beef), None));
        packet.meta_mut().set_metadata([9; 16]);
        assert_eq!((packet.meta().metadata::<u32>(), packet.meta().metadata::<[u8; 16]>()), (None, Some([9; 16])));
        let mut other = pool.alloc().unwrap();
        other.meta_mut().copy_metadata(packet.meta());
        assert_eq!(other.meta().metadata(), Some([9_u8; 16]));
        packet.meta_mut().clear_metadata();
        assert_eq!(packet.meta().metadata::<[u8; 16]>(), None);
        assert_eq!(packet.data(), [7; 60]);
        drop(other);
        assert_eq!(pool.alloc().unwrap().meta().metadata::<[u8; 16]>(), None, "a new packet has no metadata");
    }
}
