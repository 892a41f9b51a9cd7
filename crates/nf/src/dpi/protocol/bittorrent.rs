//! BitTorrent: peers, trackers, DHT, local discovery and uTP.

use super::bytes::{be16, be32, be64, contains, is_start_of, starts_with};
use super::{Context, Transport, Verdict};

/// Start of the handshake of peers (BEP 3).
const HANDSHAKE: &[u8] = b"\x13BitTorrent protocol";
/// Protocol number of a connection to a UDP tracker (BEP 15).
const TRACKER: u64 = 0x0417_2710_1980;
/// Length of the header of uTP in bytes (BEP 29).
const UTP_HEADER: usize = 20;

/// Recognises handshakes, requests to trackers, DHT messages, local discovery and uTP connections.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    if payload.starts_with(HANDSHAKE) {
        return Verdict::Match;
    }
    match context.transport {
        Transport::Tcp if is_start_of(payload, HANDSHAKE) => Verdict::NeedMore,
        Transport::Tcp => {
            let request = [&b"GET /announce"[..], b"GET /scrape"].iter().any(|start| payload.starts_with(start));
            Verdict::of(request && contains(payload, b"info_hash="))
        }
        Transport::Udp => datagram(payload, context),
    }
}

fn datagram(payload: &[u8], context: &Context) -> Verdict {
    if is_dht(payload) || starts_with(payload, b"BT-SEARCH * HTTP/1.1\r\n") {
        return Verdict::Match;
    }
    if payload.len() == 16 && be64(payload, 0) == Some(TRACKER) && be32(payload, 8) == Some(0) {
        return Verdict::Match;
    }
    utp(payload, context)
}

/// Returns true for a bencoded query, response or error of the DHT (BEP 5).
fn is_dht(payload: &[u8]) -> bool {
    let starts = [&b"d1:ad2:id20:"[..], b"d1:rd2:id20:", b"d1:eli", b"d2:ip6:", b"d2:ip18:", b"d1:rd6:"];
    starts.iter().any(|start| payload.starts_with(start))
        && (payload.ends_with(b"e") || payload.len() > 1000)
        && (contains(payload, b"1:y1:") || payload.len() > 1000)
}

/// Recognises a SYN answered by a STATE packet of the same connection, and a handshake in the first data.
fn utp(payload: &[u8], context: &Context) -> Verdict {
    let [first, extension, ..] = payload else { return Verdict::NoMatch };
    if payload.len() < UTP_HEADER || first & 0xf != 1 || first >> 4 > 4 || *extension > 2 {
        return Verdict::NoMatch;
    }
    if payload.get(UTP_HEADER..).is_some_and(|data| data.starts_with(HANDSHAKE)) {
        return Verdict::Match;
    }
    let (kind, connection) = (first >> 4, be16(payload, 2));
    let peer = context.peer.bytes();
    let answers_syn = kind == 2 && peer.first() == Some(&0x41) && be16(peer, 2) == connection;
    match kind {
        _ if answers_syn => Verdict::Match,
        4 if payload.len() <= 30 && be16(payload, 16) == Some(1) && be32(payload, 8) == Some(0) => Verdict::NeedMore,
        _ => Verdict::NoMatch,
    }
}
