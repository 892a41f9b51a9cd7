//! QUIC versions 1 and 2, their drafts, and the versions of Google before them.

use super::bytes::{be32, byte};
use super::{Context, Verdict};
use crate::dpi::stream_start::StreamStart;
use ring::aead::quic::{AES_128 as HEADER_PROTECTION, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

const V1: u32 = 1;
const V2: u32 = 0x6b33_43cf;
/// Salts of the Initial secrets (RFC 9001 §5.2, RFC 9369 §3.3.1, and drafts 23 and 29).
const SALT_V1: [u8; 20] = *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const SALT_V2: [u8; 20] = *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9";
const SALT_29: [u8; 20] = *b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99";
const SALT_23: [u8; 20] = *b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02";
/// Longest connection ID in bytes.
const CONNECTION_ID_MAX: usize = 20;
/// Longest packet that is decrypted, in bytes.
const PACKET_MAX: usize = 2048;
/// Most packets of a datagram that are read, and most frames of a packet.
const PACKETS_MAX: usize = 4;
const FRAMES_MAX: usize = 256;

/// Returns true for versions in use: those of the IETF, of Meta and of Google.
fn is_version(version: u32) -> bool {
    match version {
        V1 | V2 | 0xff00_0001..=0xff00_0022 | 0xface_b000..=0xface_b00f => true,
        _ => matches!(version.to_be_bytes(), [b'Q' | b'T', b'0', b'0'..=b'9', b'0'..=b'9']),
    }
}

/// A long header (RFC 8999 §5.1).
struct LongHeader<'a> {
    first: u8,
    version: u32,
    destination: &'a [u8],
    /// Offset of the bytes behind the source connection ID.
    end: usize,
}

fn long_header(packet: &[u8]) -> Option<LongHeader<'_>> {
    let (first, version) = (byte(packet, 0)?, be32(packet, 1)?);
    let destination_len = usize::from(byte(packet, 5)?);
    let destination = packet.get(6..6 + destination_len)?;
    let source_len = usize::from(byte(packet, 6 + destination_len)?);
    let end = 7 + destination_len + source_len;
    let fits = destination_len <= CONNECTION_ID_MAX && source_len <= CONNECTION_ID_MAX && end <= packet.len();
    (first & 0x80 != 0 && fits).then_some(LongHeader { first, version, destination, end })
}

/// Recognises long headers of known versions, version negotiation, and the public header of Google's versions.
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    let [first, ..] = payload else { return Verdict::NoMatch };
    if first & 0x80 == 0 {
        // version and connection ID of 8 bytes
        let google = first & 9 == 9 && matches!(payload.get(9..13), Some([b'Q', b'0', b'0'..=b'9', b'0'..=b'9']));
        return Verdict::of(google);
    }
    // Google's versions have the lengths of connection IDs in one byte
    if be32(payload, 1).is_some_and(|version| version >> 24 == u32::from(b'Q') && is_version(version)) {
        return Verdict::of(payload.len() >= 20 && first & 0x40 != 0);
    }
    let Some(header) = long_header(payload) else { return Verdict::NoMatch };
    let rest = payload.get(header.end..).unwrap_or_default();
    match header.version {
        // version negotiation
        0 => {
            let versions = rest.as_chunks::<4>().0.iter().map(|version| u32::from_be_bytes(*version));
            let known = versions.take(64).any(is_version);
            Verdict::of(rest.len().is_multiple_of(4) && known)
        }
        version if is_version(version) => Verdict::of(header.first & 0x40 != 0 && rest.len() >= 16),
        // a version that the server is expected to reject (RFC 9000 §15)
        version if version & 0x0f0f_0f0f == 0x0a0a_0a0a && payload.len() >= 1200 => Verdict::NeedMore,
        _ => Verdict::NoMatch,
    }
}

/// Keys that protect the Initial packets of a client.
struct Keys {
    packet: LessSafeKey,
    iv: [u8; 12],
    header: HeaderProtectionKey,
}

/// Length of a secret in bytes.
struct SecretLength(usize);

impl KeyType for SecretLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives a secret by HKDF-Expand-Label with an empty context (RFC 8446 §7.1) and passes it to `use_okm`.
fn expand<L: KeyType, T>(
    secret: &Prk,
    label: &str,
    length: L,
    use_okm: impl FnOnce(ring::hkdf::Okm<'_, L>) -> Option<T>,
) -> Option<T> {
    let bytes = (length.len() as u16).to_be_bytes();
    let label_length = [6 + label.len() as u8];
    use_okm(secret.expand(&[&bytes, &label_length, b"tls13 ", label.as_bytes(), &[0]], length).ok()?)
}

impl Keys {
    /// Derives the keys from the connection ID that the client chose for the server (RFC 9001 §5.2).
    fn new(version: u32, destination: &[u8]) -> Option<Keys> {
        let salt = match version {
            V1 | 0xff00_0021 | 0xff00_0022 => &SALT_V1,
            V2 => &SALT_V2,
            0xff00_001d..=0xff00_0020 => &SALT_29,
            0xff00_0017..=0xff00_001c | 0xface_b002 => &SALT_23,
            _ => return None,
        };
        let [key, iv, hp] = match version {
            V2 => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
            _ => ["quic key", "quic iv", "quic hp"],
        };
        let initial = Salt::new(HKDF_SHA256, salt).extract(destination);
        let client = expand(&initial, "client in", HKDF_SHA256, |okm| Some(Prk::from(okm)))?;
        let packet = expand(&client, key, &AES_128_GCM, |okm| Some(LessSafeKey::new(UnboundKey::from(okm))))?;
        let mut nonce = [0; 12];
        expand(&client, iv, SecretLength(12), |okm| okm.fill(&mut nonce).ok())?;
        let header = expand(&client, hp, &HEADER_PROTECTION, |okm| Some(HeaderProtectionKey::from(okm)))?;
        Some(Keys { packet, iv: nonce, header })
    }
}

/// Reads a number of variable length (RFC 9000 §16) at an offset and advances it.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = byte(bytes, *at)?;
    let length = 1 << (first >> 6);
    let encoded = bytes.get(*at..*at + length)?;
    *at += length;
    let (head, tail) = encoded.split_first()?;
    Some(tail.iter().fold(u64::from(head & 0x3f), |number, byte| number << 8 | u64::from(*byte)))
}

/// Decrypts the Initial packets of a datagram from a client and adds the data of their CRYPTO frames to the start of
/// the handshake. Returns true if a packet was authentic.
///
/// `connection` is the destination connection ID of the first datagram of the flow, from which the keys are derived.
pub(in crate::dpi) fn read_initial(datagram: &[u8], connection: &[u8], handshake: &mut StreamStart) -> bool {
    let (mut rest, mut authentic) = (datagram, false);
    for _ in 0..PACKETS_MAX {
        let Some((end, read)) = read_packet(rest, connection, handshake) else { break };
        authentic |= read;
        rest = rest.get(end..).unwrap_or_default();
    }
    authentic
}

/// Reads a packet; returns its end, and true if it was an authentic Initial packet.
fn read_packet(packet: &[u8], connection: &[u8], handshake: &mut StreamStart) -> Option<(usize, bool)> {
    let header = long_header(packet)?;
    let initial = if header.version == V2 { 1 } else { 0 };
    let is_initial = header.first >> 4 & 3 == initial;
    let mut at = header.end;
    if is_initial {
        let token = usize::try_from(varint(packet, &mut at)?).ok()?;
        at = at.checked_add(token)?;
    }
    let length = usize::try_from(varint(packet, &mut at)?).ok()?;
    let end = at.checked_add(length)?;
    let body = packet.get(at..end)?;
    if !is_initial || body.len() < 20 || end > PACKET_MAX {
        return Some((end, false));
    }
    let connection = if connection.is_empty() { header.destination } else { connection };
    let keys = Keys::new(header.version, connection)?;
    let mut plain = [0; PACKET_MAX];
    plain.get_mut(..end)?.copy_from_slice(packet.get(..end)?);
    // header protection (RFC 9001 §5.4)
    let [first_mask, number_mask @ ..] = keys.header.new_mask(body.get(4..20)?).ok()?;
    plain[0] ^= first_mask & 0xf;
    let number_len = usize::from(plain[0] & 3) + 1;
    let mut nonce = keys.iv;
    for (i, mask) in number_mask.iter().enumerate().take(number_len) {
        let byte = plain.get_mut(at + i)?;
        *byte ^= mask;
        nonce[12 - number_len + i] ^= *byte;
    }
    let (head, cipher) = plain.get_mut(..end)?.split_at_mut_checked(at + number_len)?;
    let nonce = Nonce::assume_unique_for_key(nonce);
    match keys.packet.open_in_place(nonce, Aad::from(&*head), cipher) {
        Ok(frames) => {
            read_frames(frames, handshake);
            Some((end, true))
        }
        Err(_) => Some((end, false)),
    }
}

/// Adds the data of CRYPTO frames (RFC 9000 §19.6); other frames of Initial packets are skipped.
fn read_frames(frames: &[u8], handshake: &mut StreamStart) -> Option<()> {
    let mut at = 0;
    for _ in 0..FRAMES_MAX {
        // padding
        at += frames.get(at..)?.iter().take_while(|byte| **byte == 0).count();
        match varint(frames, &mut at)? {
            1 => {}
            kind @ (2 | 3) => {
                varint(frames, &mut at)?;
                varint(frames, &mut at)?;
                let ranges = varint(frames, &mut at)?.min(FRAMES_MAX as u64);
                varint(frames, &mut at)?;
                for _ in 0..ranges {
                    varint(frames, &mut at)?;
                    varint(frames, &mut at)?;
                }
                if kind == 3 {
                    for _ in 0..3 {
                        varint(frames, &mut at)?;
                    }
                }
            }
            6 => {
                let offset = usize::try_from(varint(frames, &mut at)?).ok()?;
                let length = usize::try_from(varint(frames, &mut at)?).ok()?;
                let end = at.checked_add(length)?;
                handshake.insert(offset, frames.get(at..end)?);
                at = end;
            }
            _ => return None,
        }
    }
    Some(())
}

/// Returns the destination connection ID of a long header.
pub(in crate::dpi) fn destination(datagram: &[u8]) -> Option<&[u8]> {
    long_header(datagram).map(|header| header.destination)
}

#[cfg(test)]
mod tests;
