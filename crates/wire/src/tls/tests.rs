use super::*;
use crate::IpProtocol;
use crate::captures::payloads;
use proptest::prelude::*;

/// The record that OpenSSL 3.0 sends to `www.example.com`, without the 204 zeros of its padding.
const OPENSSL: &str = "\
    1603010200010001fc0303d8b842345bc5724adfb7349bc1ea05e2f1826ab83282859128eadd5a8fd1a4b62005acc58d2c785bee7d2f34\
    e1ab1c9fb65bd8cc52b942e0ed19872b32378c17030024130213031301c02cc030c02bc02fcca9cca8c024c028c023c027009f009e006b\
    006700ff0100018f00000014001200000f7777772e6578616d706c652e636f6d000b000403000102000a00160014001d0017001e001900\
    1801000101010201030104002300000010000e000c02683208687474702f312e310016000000170000000d002a00280403050306030807\
    08080809080a080b080408050806040105010601030303010302040205020602002b00050403040303002d00020101003300260024001d\
    0020ea1b65214806cc6e89bd5956a5b530ad68eafae2f6e1f9d259fccb597c8af60e001500cc";

fn openssl() -> Vec<u8> {
    let hex =
        OPENSSL.as_bytes().chunks(2).map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap());
    hex.chain([0; 204]).collect()
}

/// Splits the payload of a record into records of at most `len` bytes.
fn split(record: &[u8], len: usize) -> Vec<u8> {
    let part = |part: &[u8]| [&record[..3], &(part.len() as u16).to_be_bytes(), part].concat();
    record[5..].chunks(len).flat_map(part).collect()
}

#[test]
fn reads_a_client_hello() {
    let stream = openssl();
    let hello = ClientHello::of_stream(&stream).unwrap();
    assert_eq!(hello.server_name(), Some(&b"www.example.com"[..]));
    assert!(hello.application_protocols().eq([&b"h2"[..], b"http/1.1"]));
    assert!(hello.supported_versions().eq([0x0304, 0x0303]));
    assert_eq!((hello.version(), hello.random()[0], hello.session_id().len()), (0x0303, 0xd8, 32));
    assert_eq!(hello.cipher_suites().collect::<Vec<_>>()[..3], [0x1302, 0x1303, 0x1301]);
    let kinds: Vec<u16> = hello.extensions().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [0, 11, 10, 35, 16, 22, 23, 13, 43, 45, 51, 21]);
    assert_eq!(hello.extension(21).map(<[u8]>::len), Some(204));
    let record = Record::new(&stream).unwrap();
    assert_eq!(
        (record.header().content_type(), record.header().version(), record.header().length()),
        (22, 0x0301, 512)
    );
}

#[test]
fn truncations_are_short() {
    let stream = openssl();
    for len in 0..stream.len() {
        assert_eq!(ClientHello::of_stream(&stream[..len]), Err(Malformed::Short), "{len}");
    }
    for len in 1..stream.len() - 5 {
        assert_eq!(ClientHello::new(&stream[5..5 + len]), Err(Malformed::Short), "{len}");
    }
}

#[test]
fn other_bytes_are_rejected_at_once() {
    for (bytes, error) in [
        (&b"GET / HTTP/1.1"[..], Malformed::Kind),
        (b"\x16\x02", Malformed::Version),
        (b"\x19\x03", Malformed::Kind),
        (b"\x16\x03\x01\xff\xff", Malformed::Range),
        (b"\x17\x03\x03\0\x01x", Malformed::Kind),
        (b"\x16\x03\x03\0\x01\x02", Malformed::Kind),
    ] {
        assert_eq!(ClientHello::of_stream(bytes), Err(error), "{bytes:?}");
        assert_eq!(join(bytes, &mut [0; 100]), Err(error), "{bytes:?}");
    }
}

#[test]
fn inconsistent_lengths_are_rejected() {
    let stream = openssl();
    // lengths of the session identifier, cipher suites, compression methods, extensions and the first extension
    for at in [5 + 38, 5 + 72, 5 + 109, 5 + 112, 5 + 116] {
        for change in [1, 255] {
            let mut changed = stream.clone();
            changed[at] = changed[at].wrapping_add(change);
            assert_eq!(ClientHello::of_stream(&changed), Err(Malformed::Option), "{at}");
        }
    }
    // a message that ends before the extensions, as before TLS 1.2
    let mut old = stream[5..5 + 111].to_vec();
    (old[1], old[2], old[3]) = (0, 0, 107);
    let hello = ClientHello::new(&old).unwrap();
    assert_eq!((hello.extensions().count(), hello.server_name(), hello.repr().extensions), (0, None, None));
    assert_eq!((hello.application_protocols().count(), hello.supported_versions().count()), (0, 0));
}

#[test]
fn records_are_joined() {
    let stream = openssl();
    for len in [8, 9, 100, 511, 512] {
        let records = split(&stream, len);
        let mut buffer = vec![0; 600];
        let joined = join(&records, &mut buffer).unwrap();
        assert_eq!(&buffer[..joined], &stream[5..]);
        assert!(ClientHello::new(&buffer[..joined]).is_ok());
        assert_eq!(ClientHello::of_stream(&records).is_ok(), len == 512);
        assert_eq!(join(&records[..records.len() - 1], &mut buffer), Err(Malformed::Short));
        assert_eq!(join(&records, &mut buffer[..511]), Err(Malformed::Range));
    }
    let mut buffer = vec![0; 600];
    assert_eq!(join(&split(&stream, 7), &mut buffer), Err(Malformed::Range), "too many records");
    assert_eq!(join(&[22, 3, 1, 0, 0].repeat(1000), &mut buffer), Err(Malformed::Range), "empty records");
    assert_eq!(join(&[22, 3, 1, 0, 4, 1, 1, 0, 0], &mut buffer), Err(Malformed::Range), "a long message");
}

/// Server names of the first ClientHello, as another implementation reads them.
#[test]
fn real_messages_are_read() {
    for (file, name) in [
        ("443-curl.pcap", Some("www.ntop.org")),
        ("443-git.pcap", Some("github.com")),
        ("443-safari.pcap", Some("www.ntop.org")),
        ("google_meet.pcapng", Some("meet.google.com")),
        ("encrypted_sni.pcap", None),
        ("pluralsight.pcap", Some("pluralsight.com")),
        ("tls_1.3_unidirectional_client.pcapng", Some("www.google.com")),
    ] {
        let Some(payloads) = payloads(file) else { return };
        let tcp = payloads.iter().filter(|(protocol, ..)| *protocol == IpProtocol::TCP);
        let hello = tcp.filter_map(|(.., bytes)| ClientHello::of_stream(bytes).ok()).next();
        let hello = hello.unwrap_or_else(|| panic!("{file} has no ClientHello"));
        assert_eq!(hello.server_name(), name.map(str::as_bytes), "{file}");
        assert!(hello.cipher_suites().count() > 0);
    }
}

/// Reads everything in a message and writes it again.
fn read(bytes: &[u8]) {
    let mut buffer = vec![0; 2000];
    if let Ok(len) = join(bytes, &mut buffer) {
        assert!(len <= buffer.len());
    }
    for hello in [ClientHello::new(bytes), ClientHello::of_stream(bytes)].into_iter().flatten() {
        let _ = (hello.server_name(), hello.application_protocols().count(), hello.supported_versions().count());
        let extensions: usize = hello.extensions().map(|(_, data)| 4 + data.len()).sum();
        assert_eq!(extensions, hello.repr().extensions.map_or(0, <[u8]>::len), "all extensions are read");
        let mut written = vec![0; hello.repr().len()];
        hello.repr().emit(&mut written).unwrap();
        assert_eq!(ClientHello::new(&written), Ok(hello));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn mutations_are_messages_or_errors(changes in prop::collection::vec((0..517usize, any::<u8>()), 0..4)) {
        let mut bytes = openssl();
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        read(&bytes);
        read(&bytes[5..]);
    }

    #[test]
    fn values_that_do_not_fit_are_rejected(session in 0..300usize, suites in 0..70_000usize, compression in 0..300usize) {
        let bytes = vec![0; 70_000];
        let repr = Repr {
            version: 0x0303,
            random: &[7; 32],
            session_id: &bytes[..session],
            cipher_suites: &bytes[..suites],
            compression_methods: &bytes[..compression],
            extensions: None,
        };
        let mut written = vec![0; repr.len()];
        let fits = session <= 32 && suites % 2 == 0 && (2..65_536).contains(&suites) && (1..256).contains(&compression);
        prop_assert_eq!(repr.emit(&mut written).is_ok(), fits);
        if fits {
            prop_assert_eq!(ClientHello::new(&written).map(|hello| hello.repr()), Ok(repr));
        }
    }
}
