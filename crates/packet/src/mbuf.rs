//! The buffer header, with the layout of DPDK's `rte_mbuf`.

use core::ffi::c_void;

/// Flag in `ol_flags`: `timestamp` and `truncated` are valid. The `dpdk` crate registers it as a dynamic flag.
pub const TIMESTAMP_FLAG: u64 = 1 << 32;
/// Flag in `ol_flags`: `metadata` is valid. The `dpdk` crate registers it as a dynamic flag.
pub const METADATA_FLAG: u64 = 1 << 33;

/// The header of a packet buffer: 128 bytes on two cache lines, with every field at its offset in DPDK's `rte_mbuf`
/// (the `dpdk` crate checks them at build time). In heap packets `pool` is null and `shinfo` refers to the counter of
/// the pool.
#[repr(C, align(64))]
pub struct Mbuf {
    /// First byte of the buffer.
    pub buf_addr: *mut u8,
    /// I/O address of the buffer, for devices.
    pub buf_iova: u64,
    /// Offset of the packet's first byte from `buf_addr`.
    pub data_off: u16,
    /// References to this buffer; 1 in every [`Packet`](crate::Packet).
    pub refcnt: u16,
    /// Segments in the chain; 1 in every [`Packet`](crate::Packet).
    pub nb_segs: u16,
    /// Number of the port that received the packet.
    pub port: u16,
    /// Offload and dynamic flags.
    pub ol_flags: u64,
    /// Packet type that the device detected.
    pub packet_type: u32,
    /// Length in bytes over all segments.
    pub pkt_len: u32,
    /// Length in bytes of this segment.
    pub data_len: u16,
    /// VLAN tag that the device stripped.
    pub vlan_tci: u16,
    /// Receive-side-scaling hash, valid with `RTE_MBUF_F_RX_RSS_HASH`.
    pub rss: u32,
    /// Second half of DPDK's hash union.
    pub hash_rest: u32,
    /// Outer VLAN tag that the device stripped.
    pub vlan_tci_outer: u16,
    /// Size of the buffer in bytes.
    pub buf_len: u16,
    /// Pool of the buffer; null for a heap packet.
    pub pool: *mut c_void,
    /// Next segment.
    pub next: *mut Mbuf,
    /// Header lengths for offloads.
    pub tx_offload: u64,
    /// Shared data of an external buffer; the pool counter of a heap packet.
    pub shinfo: *mut c_void,
    /// Bytes between this header and the buffer.
    pub priv_size: u16,
    /// IEEE 1588 flags.
    pub timesync: u16,
    /// Reserved for DPDK's own dynamic fields.
    pub dynfield: u32,
    /// Nanoseconds since the Unix epoch; valid with [`TIMESTAMP_FLAG`].
    pub timestamp: u64,
    /// Number of bytes that the capture cut off at the end of the frame; valid with [`TIMESTAMP_FLAG`].
    pub truncated: u32,
    /// Packet metadata: a tag of its type and 16 bytes; valid with [`METADATA_FLAG`].
    pub metadata: [u32; 5],
}

const _: () = assert!(size_of::<Mbuf>() == 128);
