use super::*;
use crate::IpProtocol;
use crate::captures::payloads;
use proptest::prelude::*;

const CURL: &[u8] =
    b"POST /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: curl/7.88.1\r\nX-Empty:\r\nAccept:\t */* \r\n\r\nbody";

#[test]
fn reads_a_request() {
    let request = Request::new(CURL).unwrap();
    assert_eq!((request.method(), request.target(), request.minor_version()), ("POST", &b"/a?b=c"[..], 1));
    let fields: [(&str, &[u8]); 4] =
        [("Host", b"example.com:8080"), ("User-Agent", b"curl/7.88.1"), ("X-Empty", b""), ("Accept", b"*/*")];
    assert!(request.fields().eq(fields));
    assert_eq!((request.field("HOST"), request.field("Hos")), (Some(fields[0].1), None));
    assert_eq!((request.rest(), request.head_len()), (&b"body"[..], CURL.len() - 4));
}

#[test]
fn a_part_of_a_head_is_short() {
    for len in 0..CURL.len() - 4 {
        assert_eq!(Request::new(&CURL[..len]), Err(Malformed::Short), "{len}");
    }
    assert!(Request::new(&CURL[..CURL.len() - 4]).is_ok());
}

#[test]
fn line_ends_are_lenient() {
    for text in ["GET / HTTP/1.0\n\n", "\r\nGET / HTTP/1.0\r\n\n", "\nGET / HTTP/1.0\n\r\n"] {
        let request = Request::new(text.as_bytes()).unwrap();
        assert_eq!((request.minor_version(), request.head_len(), request.fields().count()), (0, text.len(), 0));
    }
}

#[test]
fn other_texts_are_rejected() {
    for text in [
        "\x16\x03\x01\x02",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "GET\r\n",
        "GET /\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET / HTTP/1.1 \r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        " GET / HTTP/1.1\r\n\r\n",
        "G(T / HTTP/1.1\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\n\r\n",
        "GET /\rx HTTP/1.1\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\n: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\0\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        // already without the rest
        "GET / HTTP/1.1\r\nA: b\0",
        "GET /\0",
    ] {
        assert_eq!(Request::new(text.as_bytes()), Err(Malformed::Text), "{text:?}");
    }
    assert_eq!(Request::new(&[b'A'; 33]), Err(Malformed::Text), "no method is so long");
}

#[test]
fn heads_are_bounded() {
    let head = |fields: usize, value: usize| {
        let fields: String = (0..fields).map(|n| format!("F{n}: {}\r\n", "x".repeat(value))).collect();
        format!("GET / HTTP/1.1\r\n{fields}\r\n").into_bytes()
    };
    assert_eq!(Request::new(&head(MAX_FIELDS, 1)).unwrap().fields().count(), MAX_FIELDS);
    assert_eq!(Request::new(&head(MAX_FIELDS + 1, 1)), Err(Malformed::Range));
    assert!(Request::new(&head(1, MAX_HEAD - 100)).is_ok());
    assert_eq!(Request::new(&head(1, MAX_HEAD)), Err(Malformed::Range));
    assert_eq!(Request::new(&head(1, MAX_HEAD)[..MAX_HEAD - 1]), Err(Malformed::Short));
    assert_eq!(Request::new(&[&b"GET /"[..], &vec![b'a'; MAX_HEAD]].concat()), Err(Malformed::Range));
}

#[test]
fn a_value_is_written_and_read_back() {
    let repr = Repr { method: "GET", target: b"/", minor_version: 1, fields: &[("Host", b"a"), ("X", b"")] };
    let mut bytes = vec![0; repr.len()];
    repr.emit(&mut bytes).unwrap();
    assert_eq!(bytes, b"GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n");
    assert_eq!(repr.emit(&mut bytes[1..]), Err(Malformed::Short));
    let mut bytes = vec![0; 200];
    for wrong in [
        Repr { method: "G T", ..repr },
        Repr { method: "", ..repr },
        Repr { target: b"/ HTTP/1.1\r\nA: b\r\n\r\n", ..repr },
        Repr { target: b"", ..repr },
        Repr { minor_version: 10, ..repr },
        Repr { fields: &[("A", b"b\r\nC: d")], ..repr },
        Repr { fields: &[("A", b" b")], ..repr },
        Repr { fields: &[("A:", b"b")], ..repr },
        Repr { fields: &[("", b"b")], ..repr },
    ] {
        assert_eq!(wrong.emit(&mut bytes), Err(Malformed::Text), "{wrong:?}");
    }
}

/// Method, target and host of the first request, as another implementation reads them.
#[test]
fn real_requests_are_read() {
    let Some(payloads) = payloads("http.pcapng") else { return };
    let requests: Vec<_> = payloads
        .iter()
        .filter(|(protocol, ..)| *protocol == IpProtocol::TCP)
        .filter_map(|(.., bytes)| Request::new(bytes).ok())
        .collect();
    let first = requests.first().expect("the capture has a request");
    assert_eq!((first.method(), first.target(), first.field("host")), ("GET", &b"/"[..], Some(&b"google.com"[..])));
    assert!(first.rest().is_empty());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = Request::new(&bytes) {
            prop_assert!(request.head_len() <= bytes.len());
        }
    }

    #[test]
    fn mutations_are_requests_or_errors(changes in prop::collection::vec((0..CURL.len(), any::<u8>()), 1..4)) {
        let mut bytes = CURL.to_vec();
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        if let Ok(request) = Request::new(&bytes) {
            prop_assert_eq!(request.head_len() + request.rest().len(), bytes.len());
            // the same head alone is the same request, and a part of it is none
            let head = &bytes[..request.head_len()];
            prop_assert!(Request::new(head).unwrap().fields().eq(request.fields()));
            prop_assert_eq!(Request::new(&head[..head.len() - 1]), Err(Malformed::Short));
            let fields: Vec<_> = request.fields().collect();
            let (method, target, minor_version) = (request.method(), request.target(), request.minor_version());
            let repr = Repr { method, target, minor_version, fields: &fields };
            let mut written = vec![0; repr.len()];
            prop_assert_eq!(repr.emit(&mut written), Ok(()));
        }
    }
}
