use super::*;
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Destination connection ID of RFC 9001 appendix A and RFC 9369 appendix A.
const CONNECTION: &str = "8394c8f03e515708";
/// CRYPTO frame of RFC 9001 appendix A.2.
const CRYPTO: &str = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c\
    00000413011302010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c\
    706e000500050100000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003\
    020304000d0010000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff0704\
    8000ffff0801100104800075300901100f088394c8f03e51570806048000ffff";

/// Protects a packet with a packet number of four bytes and frames that are padded to 1162 bytes.
fn protect(version: u32, header: &[u8], frames: &[u8]) -> Vec<u8> {
    let keys = Keys::new(version, &bytes(CONNECTION)).unwrap();
    let mut body = frames.to_vec();
    body.resize(1162, 0);
    let number = header.len() - 4;
    let mut nonce = keys.iv;
    nonce[8..].iter_mut().zip(&header[number..]).for_each(|(to, byte)| *to ^= byte);
    let nonce = Nonce::assume_unique_for_key(nonce);
    keys.packet.seal_in_place_append_tag(nonce, Aad::from(header), &mut body).unwrap();
    let [first, mask @ ..] = keys.header.new_mask(&body[..16]).unwrap();
    let mut header = header.to_vec();
    header[0] ^= first & 0xf;
    header[number..].iter_mut().zip(mask).for_each(|(to, mask)| *to ^= mask);
    [header, body].concat()
}

fn server_name(datagrams: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut handshake = StreamStart::new();
    for datagram in datagrams {
        assert!(read_initial(datagram, &bytes(CONNECTION), &mut handshake));
    }
    let hello = wire::tls::ClientHello::new(handshake.bytes()).ok()?;
    hello.server_name().map(<[u8]>::to_vec)
}

#[test]
fn agrees_with_the_vectors_of_rfc_9001_and_rfc_9369() {
    let v1 = (V1, "c300000001088394c8f03e5157080000449e00000002", "c000000001088394c8f03e5157080000449e7b9aec34");
    let v2 = (V2, "d36b3343cf088394c8f03e5157080000449e00000002", "d76b3343cf088394c8f03e5157080000449ea0c95e82");
    for ((version, plain, protected), iv, sample) in [
        (v1, "fa044b2f42a3fd3b46fb255c", "d1b1c98dd7689fb8ec11d242b123dc9b"),
        (v2, "91f73e2351d8fa91660e909f", "ffe67b6abcdb4298b485dd04de806071"),
    ] {
        assert_eq!(Keys::new(version, &bytes(CONNECTION)).unwrap().iv.to_vec(), bytes(iv));
        let packet = protect(version, &bytes(plain), &bytes(CRYPTO));
        assert_eq!((packet.len(), &packet[..22]), (1200, &bytes(protected)[..]));
        assert_eq!(packet[22..38], bytes(sample));
        assert_eq!(server_name(&[packet]).unwrap(), b"example.com");
    }
}

#[test]
fn crypto_frames_are_joined_over_packets_in_any_order() {
    let crypto = bytes(CRYPTO);
    let frame = |from: usize, to: usize| {
        let lengths = [(from as u16 | 0x4000).to_be_bytes(), ((to - from) as u16 | 0x4000).to_be_bytes()];
        [&[6], &*lengths.concat(), &crypto[4 + from..4 + to]].concat()
    };
    let header = bytes("c300000001088394c8f03e5157080000449e00000002");
    let second = [&frame(100, 241)[..], &[1], &frame(20, 60)].concat();
    let first = [&[0, 0], &frame(60, 100)[..], &[2, 1, 0, 0, 1], &frame(0, 20)].concat();
    let packets = [protect(V1, &header, &second), protect(V1, &header, &first)];
    assert_eq!(server_name(&packets[..1]), None);
    assert_eq!(server_name(&packets).unwrap(), b"example.com");
}

proptest! {
    #[test]
    fn changed_packets_are_not_authentic(at in 0..1200usize, change in 1..=255u8, cut in 0..1200usize) {
        let mut packet = protect(V1, &bytes("c300000001088394c8f03e5157080000449e00000002"), &bytes(CRYPTO));
        packet[at] ^= change;
        let mut handshake = StreamStart::new();
        read_initial(&packet[..cut], &[], &mut handshake);
        // the bits of the version and of the connection ID change the keys, all others the packet
        prop_assert!(!read_initial(&packet, &[], &mut handshake));
        prop_assert!(handshake.bytes().is_empty());
    }

    #[test]
    fn arbitrary_frames_do_not_panic(frames in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut handshake = StreamStart::new();
        read_frames(&frames, &mut handshake);
        let packet = protect(V1, &bytes("c300000001088394c8f03e5157080000449e00000002"), &frames);
        read_initial(&packet, &[], &mut handshake);
    }
}
