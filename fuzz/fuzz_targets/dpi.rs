//! Recognition of applications: messages of all protocols, whole, cut and mutated, in segments and datagrams of a few flows;
//! Initial packets of QUIC with fuzzed frames under their encryption. Every packet is accounted for, and passes unchanged
//! but for its code point.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use std::sync::LazyLock;
use std::time::Duration;
use testkit::HarnessBuilder;
use wire::{TcpFlags, build};

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

const SETTINGS: [&str; 3] = [
    "flows = 64",
    "flows = 4\ninspected = 2\nreassembled = 1\npackets_max = 3\nidle = 1\nguess = true\nmark = { unknown = 1, http = \"ef\" }\n\
     hosts = { all = [\"*.com\", \"a.org\"] }",
    "flows = 100\ndrop = [\"tls\", \"all\", \"unknown\"]\nmark = { dns = \"af11\" }\nhosts = { all = [\"*.com\"] }",
];

/// Starts of messages, and the port of the server. Fuzzed bytes follow.
const MESSAGES: &[(u16, &[u8])] = &[
    (443, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    (443, b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03"),
    (6881, b"\x13BitTorrent protocol\0\0\0\0\0\0\0\0"),
    (6881, b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe"),
    (554, b"OPTIONS rtsp://a.com/ RTSP/1.0\r\n"),
    (5060, b"REGISTER sip:a.com SIP/2.0\r\n"),
    (1900, b"M-SEARCH * HTTP/1.1\r\nHOST:"),
    (80, b"GET / HTTP/1.1\r\nHost: a.com\r\n\r\n"),
    (80, b"HTTP/1.1 200 OK\r\n"),
    (22, b"SSH-2.0-"),
    (5672, b"AMQP\0\0\x09\x01"),
    (179, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x1d\x01\x04"),
    (67, b"\x01\x01\x06\x00"),
    (53, b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x03com\x00\x00\x01\x00\x01"),
    (5353, b"\0\0\0\0\0\x01\0\0\0\0\0\0\x05_http\x04_tcp\x05local\0\0\x0c\0\x01"),
    (137, b"\x80\x94\x01\x10\0\x01\0\0\0\0\0\0\x20"),
    (445, b"\0\0\0\x54\xffSMB\x72"),
    (445, b"\0\0\0\x54\xfeSMB\x40\0"),
    (3478, b"\0\x01\0\x08\x21\x12\xa4\x42"),
    (4433, b"\x16\xfe\xfd\0\0\0\0\0\0\0\0"),
    (123, b"\x23\0\x06\xec"),
    (161, b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19"),
    (88, b"\x6a\x81\x80\x30\x81\x7d\xa1\x03\x02\x01\x05\xa2\x03\x02\x01\x0a"),
    (389, b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0"),
    (3389, b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0"),
    (500, b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x21\x20\x22\x08"),
    (4500, b"\0\0\0\0\0\0\0\0\0\0\0\x01"),
    (1812, b"\x01\x07\0\x3c"),
    (51820, b"\x01\0\0\0"),
    (1194, b"\x38\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0"),
    (6379, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"),
    (5432, b"\0\0\0\x08\x04\xd2\x16\x2f"),
    (3306, b"\x4a\0\0\0\x0a8.0.3\0"),
    (1883, b"\x10\x10\0\x04MQTT\x04\x02"),
    (21, b"220 FTP server\r\n"),
    (25, b"220 a.com ESMTP\r\n"),
    (110, b"+OK POP3\r\n"),
    (143, b"* OK IMAP4rev1\r\n"),
    (5005, b"\x81\xc9\0\x07"),
    (5004, b"\x80\x60\0\x01\0\0\0\x01\0\0\0\x07"),
    (2152, b"\x30\xff\0\x24\0\0\0\x01\x45\0"),
    (4789, b"\x08\0\0\0\0\0\x01\0"),
];

/// Length of a secret in bytes.
struct SecretLength(usize);

impl KeyType for SecretLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives a secret by HKDF-Expand-Label (RFC 8446 §7.1).
fn expand<L: KeyType, T>(secret: &Prk, label: &str, length: L, from: impl FnOnce(ring::hkdf::Okm<'_, L>) -> T) -> T {
    let bytes = (length.len() as u16).to_be_bytes();
    let label_length = [6 + label.len() as u8];
    let info: [&[u8]; 5] = [&bytes, &label_length, b"tls13 ", label.as_bytes(), &[0]];
    from(secret.expand(&info, length).expect("a valid length"))
}

/// Returns an authentic Initial packet of QUIC version 1 with these frames (RFC 9001 §5).
fn quic_initial(connection: [u8; 8], number: u8, frames: &[u8]) -> Vec<u8> {
    const SALT: [u8; 20] = *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
    let initial = Salt::new(HKDF_SHA256, &SALT).extract(&connection);
    let client = expand(&initial, "client in", HKDF_SHA256, |okm| Prk::from(okm));
    let key = expand(&client, "quic key", &AES_128_GCM, |okm| LessSafeKey::new(UnboundKey::from(okm)));
    let mut nonce = [0; 12];
    expand(&client, "quic iv", SecretLength(12), |okm| okm.fill(&mut nonce).expect("12 bytes"));
    let header = expand(&client, "quic hp", &AES_128, |okm| HeaderProtectionKey::from(okm));
    nonce[11] ^= number;
    let length = (1 + frames.len() + 16) as u16 | 0x4000;
    let mut packet = [&[0xc0, 0, 0, 0, 1, 8][..], &connection, &[0, 0], &length.to_be_bytes(), &[number]].concat();
    let start = packet.len();
    let mut sealed = frames.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(&packet), &mut sealed).expect("it fits");
    packet.extend(sealed);
    // the sample begins four bytes behind the start of the number
    let mask = header.new_mask(&packet[start + 3..start + 19]).expect("16 bytes");
    packet[0] ^= mask[0] & 0xf;
    packet[start - 1] ^= mask[1];
    packet
}

/// Returns frames of an Initial packet, of which some are CRYPTO frames with parts of a ClientHello.
fn quic_frames(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut frames = vec![];
    for _ in 0..u.int_in_range(1..=4u8)? {
        if u.ratio(1, 4)? {
            let len = u.int_in_range(0..=30)?.min(u.len());
            frames.extend(u.bytes(len)?);
        } else {
            let hello = b"\x01\0\x01\xfc\x03\x03";
            let (offset, len) = (u16::from(u.arbitrary::<u8>()?), u.int_in_range(0..=60)?.min(u.len()));
            let data = if offset == 0 { &hello[..] } else { u.bytes(len)? };
            frames.push(6);
            frames.extend((offset | 0x4000).to_be_bytes());
            frames.extend((data.len() as u16 | 0x4000).to_be_bytes());
            frames.extend(data);
        }
    }
    // the sample of header protection needs as many
    frames.resize(frames.len().max(24), 0);
    Ok(frames)
}

fn frame(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let (client, tcp, v6, back): (u8, bool, bool, bool) =
        (u.int_in_range(1..=3)?, u.arbitrary()?, u.ratio(1, 4)?, u.ratio(1, 3)?);
    let (port, start) = *u.choose(MESSAGES)?;
    let (port, payload) = if !tcp && u.ratio(1, 8)? {
        let connection = [client; 8];
        let mut datagram = vec![];
        for number in 0..u.int_in_range(1..=2)? {
            datagram.extend(quic_initial(connection, number, &quic_frames(u)?));
        }
        (443, datagram)
    } else {
        let len = u.int_in_range(0..=120)?.min(u.len());
        let mut payload = [start, u.bytes(len)?].concat();
        match u.int_in_range(0..=7u8)? {
            0 => payload.truncate(u.int_in_range(0..=payload.len())?),
            1 | 2 => {
                let at = u.choose_index(payload.len())?;
                payload[at] = u.arbitrary()?;
            }
            3 => payload = payload.split_off(u.int_in_range(0..=payload.len())?),
            _ => {}
        }
        (port, payload)
    };
    let (own, server) = (40_000 + u16::from(client), port);
    let (a, b) = ([10, 0, 0, client], [192, 0, 2, 1]);
    let (a6, b6) = ([client; 16], [0xfd; 16]);
    let ((src, dst), (src6, dst6), (sport, dport)) =
        if back { ((b, a), (b6, a6), (server, own)) } else { ((a, b), (a6, b6), (own, server)) };
    let seq = u32::from(u.int_in_range(0..=20u8)?) * 10;
    Ok(match (tcp, v6) {
        (true, false) => build::tcp4(src, dst, sport, dport).flags(TcpFlags::ACK).seq(seq).payload(&payload).to_vec(),
        (true, true) => build::tcp6(src6, dst6, sport, dport).flags(TcpFlags::ACK).seq(seq).payload(&payload).to_vec(),
        (false, false) => build::udp4(src, dst, sport, dport).payload(&payload).to_vec(),
        (false, true) => build::udp6(src6, dst6, sport, dport).payload(&payload).to_vec(),
    })
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let settings = u.choose(&SETTINGS)?;
    let kind = REGISTRY.get("dpi").expect("a shipped NF");
    let mut dpi = HarnessBuilder::from_kind(kind, settings).buffers(256).build().expect("valid settings");
    let drops = settings.contains("drop");
    // a capture, or frames made of the input
    if let Some(Ok(mut reader)) = u.peek_bytes(u.len()).map(pcap::Reader::new) {
        let mut frames = vec![];
        while let (true, Ok(Some(record))) = (frames.len() < 128, reader.next()) {
            frames.push(record.frame[..record.frame.len().min(2048)].to_vec());
        }
        dpi.feed(&frames);
        return Ok(());
    }
    while !u.is_empty() {
        let mut frames = vec![];
        for _ in 0..u.int_in_range(1..=16u8)? {
            let frame = frame(u)?;
            frames.push(bondstone_fuzz::maybe_mutate(u, frame)?.0);
        }
        let sent = dpi.feed(&frames).into_iter().map(bondstone_fuzz::without_traffic_class);
        let mut fed = frames.into_iter().map(bondstone_fuzz::without_traffic_class);
        for sent in sent {
            let next = if drops { fed.find(|fed| *fed == sent) } else { fed.next() };
            assert_eq!(next, Some(sent), "packets keep their order and bytes, but for the code point");
        }
        assert!(drops || fed.next().is_none(), "a packet was dropped");
        dpi.advance(Duration::from_millis(u64::from(u.arbitrary::<u8>()?) % 40));
    }
    // all flows expire and leave nothing behind
    dpi.jump_to(dpi.now() + Duration::from_secs(200));
    dpi.advance(Duration::from_millis(50));
    for name in ["flows", "inspected"] {
        assert_eq!(dpi.counter(name), 0, "{name}");
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(data));
});
