use super::*;
use crate::IpProtocol;
use crate::captures::payloads;
use proptest::prelude::*;

/// A response about `www.example.com` with a CNAME to `example.com`, its address, and an OPT record; names are
/// compressed.
const RESPONSE: &[u8] = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\x01\
    \x03www\x07example\x03com\0\0\x01\0\x01\
    \xc0\x0c\0\x05\0\x01\0\0\x0e\x10\0\x02\xc0\x10\
    \xc0\x10\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07\
    \0\0\x29\x04\xd0\0\0\0\0\0\0";

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn reads_a_response_with_compressed_names() {
    let message = Message::new(RESPONSE).unwrap();
    let header = message.header();
    assert_eq!((header.id(), header.counts(), header.opcode(), header.response_code()), (0x1234, [1, 2, 0, 1], 0, 0));
    assert!(header.is_response() && header.is_recursion_desired());
    assert!(!header.is_authoritative() && !header.is_truncated());
    let questions: Vec<_> = message.questions().map(Result::unwrap).collect();
    assert_eq!(questions, [Question { name: name("www.example.com"), kind: 1, class: 1 }]);
    let records: Vec<_> = message.records().map(Result::unwrap).collect();
    let read: Vec<_> = records.iter().map(|r| (r.section, r.name.to_string(), r.kind, r.ttl, r.data)).collect();
    assert_eq!(
        read,
        [
            (Section::Answer, "www.example.com".to_owned(), 5, 3600, &b"\xc0\x10"[..]),
            (Section::Answer, "example.com".to_owned(), 1, 60, b"\xc0\0\x02\x07"),
            (Section::Additional, ".".to_owned(), 41, 0, b""),
        ]
    );
    assert_eq!(records[0].name_at(0), Ok(name("example.com")));
    assert_eq!(records[1].name_at(0), Err(Malformed::Name), "an address is no name");
    assert_eq!(records[2].name_at(0), Err(Malformed::Short));
    assert_eq!(records[0].name_at(usize::MAX), Err(Malformed::Short));
}

#[test]
fn every_truncation_is_an_error() {
    for len in 0..RESPONSE.len() {
        let Ok(message) = Message::new(&RESPONSE[..len]) else {
            assert!(len < 12);
            continue;
        };
        let (read, errors): (Vec<_>, Vec<_>) = message.records().partition(Result::is_ok);
        assert_eq!((read.len() < 3, errors), (true, vec![Err(Malformed::Short)]), "{len}");
    }
}

#[test]
fn pointers_refer_backwards() {
    let parse = |bytes: &[u8], at| Name::parse(bytes, at).map(|(name, end)| (name.to_string(), end));
    // to itself, forwards, and in a circle
    assert_eq!(parse(b"\xc0\x00", 0), Err(Malformed::Name));
    assert_eq!(parse(b"\xc0\x02\x01a\0", 0), Err(Malformed::Name));
    assert_eq!(parse(b"\x01a\xc0\x04\xc0\x00", 4), Err(Malformed::Name));
    assert_eq!(parse(b"\x01a\xc0\x00", 0), Err(Malformed::Name), "into the same labels");
    assert_eq!(parse(b"\x01a\0\x01b\xc0\x00", 3), Ok(("b.a".to_owned(), 7)));
    // unknown types of labels
    assert_eq!(parse(b"\x40\0", 0), Err(Malformed::Name));
    assert_eq!(parse(b"\x80\0", 0), Err(Malformed::Name));
    for short in [&b""[..], b"\x01", b"\x01a", b"\xc0", b"\x3f"] {
        assert_eq!(parse(short, 0), Err(Malformed::Short), "{short:?}");
    }
    assert_eq!(parse(b"\0", 7), Err(Malformed::Short));
    // a chain of pointers without labels is bounded
    let mut chain = vec![0; 2];
    (0..1000u16).for_each(|n| chain.extend((0xc000 | (2 * n)).to_be_bytes()));
    assert_eq!(parse(&chain, 2 + 2 * 125), Ok((".".to_owned(), 4 + 2 * 125)));
    assert_eq!(parse(&chain, 2 + 2 * 126), Err(Malformed::Name));
    assert_eq!(parse(&chain, 2000), Err(Malformed::Name));
}

#[test]
fn names_are_bounded() {
    let label = "a".repeat(63);
    let long = [&*label; 4].join(".");
    assert_eq!(Name::new(&long), Err(Malformed::Name), "257 bytes");
    assert_eq!(name(&long[..253]).as_bytes().len(), 255);
    assert_eq!(Name::new(&long[..254]), Err(Malformed::Name));
    assert_eq!(Name::new(&"a".repeat(64)), Err(Malformed::Name));
    // 255 bytes are read, 256 are not
    let wire = |last: u8| {
        let mut bytes: Vec<u8> =
            [63, 63, 63, last].into_iter().flat_map(|n| [vec![n], vec![b'x'; n.into()]].concat()).collect();
        bytes.push(0);
        bytes
    };
    assert_eq!(Name::parse(&wire(61), 0).map(|(_, end)| end), Ok(255));
    assert_eq!(Name::parse(&wire(62), 0), Err(Malformed::Name));
}

#[test]
fn names_are_text() {
    for (text, shown) in
        [("", "."), (".", "."), ("a", "a"), ("a.b.", "a.b"), ("a\\.b\\\\\\032\\255", "a\\.b\\\\\\032\\255")]
    {
        assert_eq!(name(text).to_string(), shown);
        assert_eq!(name(shown), name(text));
    }
    for wrong in ["..", ".a", "a..b", "\\", "a\\256"] {
        assert_eq!(Name::new(wrong), Err(Malformed::Name), "{wrong}");
    }
    assert!(name("WWW.Example.com").eq_ignore_case(&name("www.eXample.COM")));
    assert!(!name("a.b").eq_ignore_case(&name("ab")) && name("a") != name("A"));
    assert_eq!(name("a.bc").labels().collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
}

#[test]
fn a_query_is_written_as_others_write_it() {
    let question = Question { name: name("www.example.com"), kind: 28, class: 1 };
    let query = Repr { id: 7, flags: 0x0100, question };
    let mut bytes = vec![0xff; query.len()];
    query.emit(&mut bytes).unwrap();
    assert_eq!(bytes, b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x1c\0\x01");
    assert_eq!(Repr::parse(&Message::new(&bytes).unwrap()), Ok(query));
    assert_eq!(query.emit(&mut bytes[1..]), Err(Malformed::Short));
    assert_eq!(Repr::parse(&Message::new(RESPONSE).unwrap()), Err(Malformed::Kind));
}

/// Reads everything in a message, and asserts that as much is read as there is.
fn read(bytes: &[u8]) -> Option<(usize, usize, bool)> {
    let message = Message::new(bytes).ok()?;
    let questions = message.questions().filter(Result::is_ok).count();
    let mut records = 0;
    for record in message.records().flatten() {
        records += 1;
        let _ = (record.name_at(0), record.name_at(2), record.name.to_string(), record.name.labels().count());
    }
    let all = message.header().counts().map(usize::from);
    let complete = questions == all[0] && records == all[1..].iter().sum::<usize>();
    // every question takes five bytes, every record eleven
    assert!(12 + 5 * questions + 11 * records <= bytes.len());
    Some((questions, records, complete))
}

/// Messages, queries and records, as another implementation counts them.
#[test]
fn real_messages_are_read() {
    for (file, expected, first) in [
        ("bad-dns-traffic.pcap", (382, 382, 159), None),
        ("dns-tunnel-iodine.pcap", (434, 434, 432), Some("vaaaakardli.pirate.sea")),
        ("dns_exfiltration.pcap", (300, 300, 150), None),
        ("iphone.pcap", (38, 38, 86), Some("p26-keyvalueservice.icloud.com")),
        ("dns_ambiguous_names.pcap", (20, 20, 62), Some("41-courier.push.apple.com")),
        ("viber.pcap", (16, 16, 50), Some("graph.facebook.com")),
    ] {
        let Some(payloads) = payloads(file) else { return };
        let of_dns = |(protocol, ports, _): &&(IpProtocol, [u16; 2], Vec<u8>)| {
            *protocol == IpProtocol::UDP && ports.contains(&PORT)
        };
        let messages: Vec<_> = payloads.iter().filter(of_dns).map(|(.., bytes)| bytes).collect();
        let (mut questions, mut records) = (0, 0);
        for bytes in &messages {
            let counted = read(bytes).unwrap();
            assert!(counted.2, "{file}: {bytes:x?}");
            (questions, records) = (questions + counted.0, records + counted.1);
        }
        assert_eq!((messages.len(), questions, records), expected, "{file}");
        if let Some(first) = first {
            let question = Message::new(messages[0]).unwrap().questions().next().unwrap().unwrap();
            assert_eq!(question.name.to_string(), first);
        }
    }
    let Some(payloads) = payloads("malformed_dns.pcap") else { return };
    let incomplete = payloads.iter().filter_map(|(.., bytes)| read(bytes)).filter(|(.., complete)| !complete).count();
    assert!(incomplete > 0, "the capture has malformed messages");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at: usize) {
        read(&bytes);
        let _ = Name::parse(&bytes, at % 256);
    }

    #[test]
    fn no_mutation_panics(changes in prop::collection::vec((0..RESPONSE.len(), any::<u8>()), 1..5)) {
        let mut bytes = RESPONSE.to_vec();
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        read(&bytes);
    }

    #[test]
    fn names_survive_text_and_bytes(labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..8)) {
        let mut bytes: Vec<u8> = labels.iter().flat_map(|label| [&[label.len() as u8], &label[..]].concat()).collect();
        bytes.push(0);
        let (name, end) = Name::parse(&bytes, 0).unwrap();
        prop_assert_eq!((end, name.as_bytes()), (bytes.len(), &bytes[..]));
        prop_assert_eq!(Name::new(&name.to_string()), Ok(name));
        let repr = Repr { id: 1, flags: 2, question: Question { name, kind: 3, class: 4 } };
        let mut bytes = vec![0; repr.len()];
        repr.emit(&mut bytes).unwrap();
        prop_assert_eq!(Repr::parse(&Message::new(&bytes).unwrap()), Ok(repr));
    }

    #[test]
    fn no_text_panics(text: String) {
        if let Ok(name) = Name::new(&text) {
            prop_assert_eq!(Name::new(&name.to_string()), Ok(name));
        }
    }
}
