use super::*;
use crate::ids::rule::app::Fields;
use wire::tls::Repr;

/// A self-signed certificate of `www.example.com`, and `alt.example.com`.
const CERTIFICATE_HEX: &str = "308201f230820198a0030201020209008a19b7b1323b1ca1300a06082a8648ce3d040302303d310b300906035504061302444531\
     143012060355040a0c0b4578616d706c65204f72673118301606035504030c0f7777772e6578616d706c652e636f6d301e170d32\
     36313132383039343235305a170d3336313132353039343235305a303d310b300906035504061302444531143012060355040a0c\
     0b4578616d706c65204f72673118301606035504030c0f7777772e6578616d706c652e636f6d3059301306072a8648ce3d020106\
     082a8648ce3d03010703420004923446a34e6bcbb3e9a83d21685cf4acac8b16400e906e091c66771ea7fe8c78b7c603fe706863\
     010388c307ee4be3ede143250944d55a5300d07cad00b27529a38180307e301d0603551d0e04160414a0a52c312ad074b53ca029\
     19a2bc0f660bad9788301f0603551d23041830168014a0a52c312ad074b53ca02919a2bc0f660bad9788300f0603551d130101ff\
     040530030101ff302b0603551d1104243022820f7777772e6578616d706c652e636f6d820f616c742e6578616d706c652e636f6d\
     300a06082a8648ce3d0403020348003045022100a0b4b3dd70134d5a9c44f36f804926281d9814339ceda085a99e4db423943272\
     02201a0c558488022e0687eafdb3fee51bf4cf303a4eb332600d4e1aca26e51ae12c";

/// Buffers and numbers of a message, and true if it is complete.
type Parsed = (Vec<(Field, String)>, Vec<(NumberField, u64)>, bool);

const FIELDS: &[Field] = &[
    Field::TlsServerName,
    Field::TlsRandomTime,
    Field::TlsAlpn,
    Field::Ja3String,
    Field::Ja3Hash,
    Field::Ja3sString,
    Field::Ja3sHash,
    Field::TlsSubject,
    Field::TlsIssuer,
    Field::TlsSerial,
    Field::TlsFingerprint,
    Field::TlsSubjectAltName,
];

fn options() -> AppOptions {
    let mut fields = Fields::default();
    FIELDS.iter().for_each(|field| fields.insert(*field));
    AppOptions { fields, validity: true, ..AppOptions::default() }
}

pub(in crate::ids::app) fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(payload.len() as u16).to_be_bytes(), payload].concat()
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(u32::from(kind) << 24 | body.len() as u32).to_be_bytes()[..], body].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
}

fn big_endian(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The client of the example of JA3, with values of GREASE among its own.
pub(in crate::ids::app) fn hello() -> Vec<u8> {
    let name = b"\0\x0e\0\0\x0bexample.com";
    let extensions = [
        extension(0, name),
        extension(0x0a0a, b""),
        extension(10, b"\0\x08\x1a\x1a\0\x17\0\x18\0\x19"),
        extension(11, b"\x01\0"),
    ]
    .concat();
    let suites = [0x2a2a, 47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
    client_hello(769, &suites, &extensions)
}

fn client_hello(version: u16, suites: &[u16], extensions: &[u8]) -> Vec<u8> {
    let repr = Repr {
        version,
        random: &[7; 32],
        session_id: &[],
        cipher_suites: &big_endian(suites),
        compression_methods: &[0],
        extensions: Some(extensions),
    };
    let mut bytes = vec![0; repr.len()];
    repr.emit(&mut bytes).unwrap();
    bytes
}

fn server() -> Vec<u8> {
    let hello = [
        &[3, 3][..],
        &[9; 32],
        &[0],
        &big_endian(&[0xc02f]),
        &[0, 0, 14],
        &extension(0xff01, &[0]),
        &extension(16, b"\0\x03\x02h2"),
    ]
    .concat();
    let der: Vec<u8> = CERTIFICATE_HEX
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let entry = [&(der.len() as u32).to_be_bytes()[1..], &der].concat();
    let chain = [&(entry.len() as u32).to_be_bytes()[1..], &entry].concat();
    [handshake(SERVER_HELLO, &hello), handshake(CERTIFICATE, &chain), handshake(SERVER_HELLO_DONE, b"")].concat()
}

fn parse<'a>(segments: impl Iterator<Item = &'a [u8]>, to_client: bool) -> Parsed {
    let (mut parser, mut input, mut messages) = (Parser::default(), vec![], VecDeque::new());
    for segment in segments {
        input.extend_from_slice(segment);
        parser.parse(&mut input, &mut messages, to_client, false, options());
    }
    let message: &Message = messages.front().unwrap();
    let of = |field: &Field| {
        message.values(*field).map(|value| (*field, String::from_utf8_lossy(value).into_owned())).collect::<Vec<_>>()
    };
    (FIELDS.iter().flat_map(of).collect(), message.numbers.clone(), message.complete)
}

#[test]
fn buffers_contain_the_parts_of_a_client_hello() {
    let stream = [record(HANDSHAKE, &hello()), record(CHANGE_CIPHER_SPEC, &[1])].concat();
    let (values, numbers, complete) = parse([&stream[..]].into_iter(), false);
    let expected = [
        (Field::TlsServerName, "example.com"),
        (Field::TlsRandomTime, "\x07\x07\x07\x07"),
        (Field::Ja3String, "769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0"),
        (Field::Ja3Hash, "ada70206e40642a3e4461f35503241d5"),
    ];
    assert_eq!(values, expected.map(|(field, value)| (field, value.to_owned())));
    assert_eq!((numbers, complete), (vec![(NumberField::TlsVersion, 0x0301)], true));
}

#[test]
fn buffers_contain_the_parts_of_a_certificate() {
    let (values, numbers, complete) = parse([&record(HANDSHAKE, &server())[..]].into_iter(), true);
    let name = "C=DE, O=Example Org, CN=www.example.com";
    let expected = [
        (Field::TlsRandomTime, "\x09\x09\x09\x09"),
        (Field::TlsAlpn, "h2"),
        (Field::Ja3sString, "771,49199,65281-16"),
        (Field::Ja3sHash, &hex(&Md5::digest("771,49199,65281-16"))),
        (Field::TlsSubject, name),
        (Field::TlsIssuer, name),
        (Field::TlsSerial, "00:8A:19:B7:B1:32:3B:1C:A1"),
        (Field::TlsFingerprint, "3d:8a:35:7b:88:2d:ea:21:81:9e:d2:2e:54:95:f8:9d:17:19:f0:9e"),
        (Field::TlsSubjectAltName, "www.example.com"),
        (Field::TlsSubjectAltName, "alt.example.com"),
    ];
    assert_eq!(values, expected.map(|(field, value)| (field, value.to_owned())));
    // from 2026-11-28 09:42:50 on, for 3650 days
    let dates = [(NumberField::TlsNotBefore, 1_795_858_970), (NumberField::TlsNotAfter, 2_111_218_970)];
    let rest = [(NumberField::TlsVersion, 0x0303), dates[0], dates[1], (NumberField::TlsChainLength, 1)];
    assert_eq!(numbers, rest);
    assert!(complete);
}

/// The example of the specification of JA4, with values of GREASE among its own.
#[test]
fn fingerprints_do_not_depend_on_the_order_of_extensions() {
    let suites = [
        0x3a3a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x9c, 0x9d,
        0x2f, 0x35,
    ];
    let kinds = [0x1b, 0, 0x33, 0x10, 0x4469, 0x17, 0x2d, 0xd, 5, 0x23, 0x12, 0x2b, 0xff01, 0xb, 0xa, 0x15, 0x4a4a];
    let extensions = |kinds: &[u16]| -> Vec<u8> {
        let one = |kind: &u16| match kind {
            0x10 => extension(0x10, b"\0\x0c\x02h2\x08http/1.1"),
            0x2b => extension(0x2b, b"\x06\x1a\x1a\x03\x04\x03\x03"),
            0xd => {
                let algorithms = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
                extension(0xd, &[&[0, 16][..], &big_endian(&algorithms)].concat())
            }
            0 => extension(0, b"\0\x0e\0\0\x0bexample.com"),
            kind => extension(*kind, b""),
        };
        kinds.iter().flat_map(one).collect()
    };
    let mut kinds = kinds.to_vec();
    for _ in 0..kinds.len() {
        kinds.rotate_left(1);
        let bytes = client_hello(0x0303, &suites, &extensions(&kinds));
        let hello = ClientHello::new(&bytes).unwrap();
        assert_eq!(ja4(&hello, 0x0304), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    }
}

#[test]
fn handshakes_may_be_split_at_every_byte() {
    let client = [record(HANDSHAKE, &hello()), record(CHANGE_CIPHER_SPEC, &[1])].concat();
    for (bytes, to_client) in [(hello(), false), (server(), true)] {
        let whole = parse([&record(HANDSHAKE, &bytes)[..]].into_iter(), to_client);
        for split in 1..bytes.len() {
            let (one, other) = bytes.split_at(split);
            let records = [record(HANDSHAKE, one), record(HANDSHAKE, other)].concat();
            assert_eq!(parse([&records[..]].into_iter(), to_client), whole, "records split at {split}");
        }
    }
    let whole = parse([&client[..]].into_iter(), false);
    for split in 0..=client.len() {
        assert_eq!(parse(<[_; 2]>::from(client.split_at(split)).into_iter(), false), whole, "split at {split}");
    }
}

#[test]
fn damaged_handshakes_end_the_parsing() {
    let stream = record(HANDSHAKE, &server());
    for at in 0..stream.len() {
        for byte in [0, 0xff] {
            let mut damaged = stream.clone();
            damaged[at] = byte;
            let (mut parser, mut input, mut messages) = (Parser::default(), damaged, VecDeque::new());
            parser.parse(&mut input, &mut messages, true, true, options());
            assert!(messages.iter().all(|message: &Message| message.complete));
        }
    }
}
