//! Build-time proof, for the linked DPDK release, that `packet::Mbuf` has the layout of `rte_mbuf`.

use core::mem::offset_of;
use dpdk_sys as sys;
use packet::Mbuf;

const _: () = {
    assert!(size_of::<Mbuf>() == sys::BS_MBUF_SIZE as usize);
    assert!(packet::HEADROOM == sys::BS_HEADROOM as usize);
    assert!(offset_of!(Mbuf, buf_addr) == sys::BS_OFF_BUF_ADDR as usize);
    assert!(offset_of!(Mbuf, data_off) == sys::BS_OFF_DATA_OFF as usize);
    assert!(offset_of!(Mbuf, refcnt) == sys::BS_OFF_REFCNT as usize);
    assert!(offset_of!(Mbuf, nb_segs) == sys::BS_OFF_NB_SEGS as usize);
    assert!(offset_of!(Mbuf, port) == sys::BS_OFF_PORT as usize);
    assert!(offset_of!(Mbuf, ol_flags) == sys::BS_OFF_OL_FLAGS as usize);
    assert!(offset_of!(Mbuf, packet_type) == sys::BS_OFF_PACKET_TYPE as usize);
    assert!(offset_of!(Mbuf, pkt_len) == sys::BS_OFF_PKT_LEN as usize);
    assert!(offset_of!(Mbuf, data_len) == sys::BS_OFF_DATA_LEN as usize);
    assert!(offset_of!(Mbuf, vlan_tci) == sys::BS_OFF_VLAN_TCI as usize);
    assert!(offset_of!(Mbuf, rss) == sys::BS_OFF_RSS as usize);
    assert!(offset_of!(Mbuf, vlan_tci_outer) == sys::BS_OFF_VLAN_TCI_OUTER as usize);
    assert!(offset_of!(Mbuf, buf_len) == sys::BS_OFF_BUF_LEN as usize);
    assert!(offset_of!(Mbuf, pool) == sys::BS_OFF_POOL as usize);
    assert!(offset_of!(Mbuf, next) == sys::BS_OFF_NEXT as usize);
    assert!(offset_of!(Mbuf, tx_offload) == sys::BS_OFF_TX_OFFLOAD as usize);
    assert!(offset_of!(Mbuf, shinfo) == sys::BS_OFF_SHINFO as usize);
    assert!(offset_of!(Mbuf, priv_size) == sys::BS_OFF_PRIV_SIZE as usize);
    assert!(offset_of!(Mbuf, timesync) == sys::BS_OFF_TIMESYNC as usize);
    assert!(offset_of!(Mbuf, dynfield) == sys::BS_OFF_DYNFIELD as usize);
};

/// Offset in bytes of Bondstone's dynamic field.
pub(crate) const DYNFIELD_OFFSET: usize = offset_of!(Mbuf, timestamp);
/// Size in bytes of Bondstone's dynamic field.
pub(crate) const DYNFIELD_SIZE: usize = size_of::<Mbuf>() - DYNFIELD_OFFSET;
