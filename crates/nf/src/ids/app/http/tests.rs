use super::*;
use crate::ids::rule::app::Fields;
use proptest::prelude::*;

/// Buffers of the messages of one direction, in order, each with its field.
type Buffers = Vec<Vec<(Field, String)>>;

const FIELDS: &[Field] = &[
    Field::HttpMethod,
    Field::HttpUri,
    Field::HttpUriRaw,
    Field::HttpHost,
    Field::HttpHostRaw,
    Field::HttpUserAgent,
    Field::HttpRequestLine,
    Field::HttpHeader,
    Field::HttpHeaderRaw,
    Field::HttpHeaderNames,
    Field::HttpCookie,
    Field::HttpContentType,
    Field::HttpContentLength,
    Field::HttpProtocol,
    Field::HttpStart,
    Field::HttpServer,
    Field::HttpLocation,
    Field::HttpStatusCode,
    Field::HttpStatusMessage,
    Field::HttpResponseLine,
    Field::HttpResponseHeader,
    Field::FileData,
];

/// Parses segments of both directions, requests first, and returns the buffers.
fn parse<'a>(requests: impl Iterator<Item = &'a [u8]>, responses: impl Iterator<Item = &'a [u8]>) -> [Buffers; 2] {
    let mut fields = Fields::default();
    FIELDS.iter().for_each(|field| fields.insert(*field));
    let options = AppOptions { fields, ..AppOptions::default() };
    let mut open = Requests::default();
    let mut run = |segments: &mut dyn Iterator<Item = &'a [u8]>, to_client: bool| {
        let (mut parser, mut input, mut messages) = (Parser::default(), vec![], VecDeque::new());
        for segment in segments {
            input.extend_from_slice(segment);
            parser.parse(&mut input, &mut messages, to_client, false, &mut open, options);
        }
        parser.parse(&mut input, &mut messages, to_client, true, &mut open, options);
        let shown = messages.iter_mut().map(|message: &mut Message| {
            assert!(message.complete);
            message.prepare();
            let value = |field: &Field| {
                let text = |value| (*field, String::from_utf8_lossy(value).into_owned());
                message.values(*field).map(text).collect::<Vec<_>>()
            };
            FIELDS.iter().flat_map(value).collect()
        });
        shown.collect()
    };
    let mut requests = requests;
    let mut responses = responses;
    [run(&mut requests, false), run(&mut responses, true)]
}

fn value(buffers: &[(Field, String)], field: Field) -> Option<&str> {
    buffers.iter().find(|(known, _)| *known == field).map(|(_, value)| value.as_str())
}

const REQUESTS: &[u8] = b"GET /a%20b/../c?d=%65 HTTP/1.1\r\nHost: Example.COM:8080\r\nUser-Agent: one \r\nCookie: k=v\r\n\
    User-Agent: two\r\nX-Folded: a\r\n  b\r\n\r\n\
    POST http://Other.example/p HTTP/1.0\nHost: ignored\nContent-Length: 5\nContent-Type: text/plain\n\nhello\
    HEAD / HTTP/1.1\r\n\r\n\
    PUT /chunks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n\
    \r\nDELETE /last HTTP/1.1\r\n\r\n";

const RESPONSES: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 200 Fine so far\r\nServer: S\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 3\r\n\r\nabc\
    HTTP/1.1 302\r\nLocation: /there\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\
    HTTP/1.1 204 None\r\n\r\n\
    HTTP/1.0 404 Not found\r\n\r\nto the end";

#[test]
fn buffers_contain_the_parts_of_messages() {
    let [requests, responses] = parse([REQUESTS].into_iter(), [RESPONSES].into_iter());
    assert_eq!((requests.len(), responses.len()), (5, 6));
    let first = |field| value(&requests[0], field);
    for (field, expected) in [
        (Field::HttpMethod, "GET"),
        (Field::HttpUri, "/c?d=e"),
        (Field::HttpUriRaw, "/a%20b/../c?d=%65"),
        (Field::HttpHost, "example.com"),
        (Field::HttpHostRaw, "Example.COM:8080"),
        (Field::HttpUserAgent, "one, two"),
        (Field::HttpCookie, "k=v"),
        (Field::HttpProtocol, "HTTP/1.1"),
        (Field::HttpRequestLine, "GET /a%20b/../c?d=%65 HTTP/1.1"),
        (Field::HttpHeader, "Host: Example.COM:8080\r\nUser-Agent: one, two\r\nX-Folded: a b\r\n"),
        (Field::HttpHeaderNames, "\r\nHost\r\nUser-Agent\r\nCookie\r\nX-Folded\r\n\r\n"),
    ] {
        assert_eq!(first(field), Some(expected), "{field:?}");
    }
    assert!(first(Field::HttpHeaderRaw).unwrap().ends_with("X-Folded: a\r\n  b\r\n\r\n"));
    assert!(first(Field::HttpStart).unwrap().starts_with("GET /a"));
    assert_eq!(first(Field::FileData), None);
    let host = |n: usize| value(&requests[n], Field::HttpHost);
    let body = |n: usize| value(&requests[n], Field::FileData);
    assert_eq!(
        (host(1), body(1), value(&requests[1], Field::HttpUri)),
        (Some("other.example"), Some("hello"), Some("/p"))
    );
    assert_eq!((value(&requests[2], Field::HttpHeader), body(3)), (None, Some("abc0123456789")));
    assert_eq!(value(&requests[4], Field::HttpUri), Some("/last"));
    let of = |n: usize, field| value(&responses[n], field);
    assert_eq!(of(0, Field::HttpStatusCode), Some("100"));
    assert_eq!(of(1, Field::HttpStatusMessage), Some("Fine so far"));
    assert_eq!((of(1, Field::HttpCookie), of(1, Field::FileData)), (Some("a=1, b=2"), Some("abc")));
    assert_eq!(of(1, Field::HttpHeader), Some("Server: S\r\nContent-Length: 3\r\n"));
    assert_eq!((of(2, Field::HttpLocation), of(2, Field::FileData)), (Some("/there"), Some("body")));
    assert_eq!((of(3, Field::HttpContentLength), of(3, Field::FileData)), (Some("1000"), None));
    assert_eq!((of(4, Field::HttpStatusCode), of(5, Field::FileData)), (Some("204"), Some("to the end")));
}

#[test]
fn segments_may_be_split_at_every_byte() {
    let whole = parse([REQUESTS].into_iter(), [RESPONSES].into_iter());
    for split in 0..=REQUESTS.len().max(RESPONSES.len()) {
        let two = |text: &'static [u8]| <[_; 2]>::from(text.split_at(split.min(text.len()))).into_iter();
        assert_eq!(parse(two(REQUESTS), two(RESPONSES)), whole, "split at {split}");
    }
    assert_eq!(parse(REQUESTS.chunks(1), RESPONSES.chunks(1)), whole);
}

#[test]
fn tunnels_end_the_parsing() {
    for (requests, responses) in [
        ("CONNECT a:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n\x16\x03"),
        ("GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 101 Switch\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
    ] {
        let [_, responses] = parse([requests.as_bytes()].into_iter(), [responses.as_bytes()].into_iter());
        assert_eq!(responses.len(), 1);
    }
}

#[test]
fn long_heads_are_inspected_up_to_the_limit() {
    let mut head = b"GET /x HTTP/1.1\r\n".to_vec();
    while head.len() < 2 * MAX_HEAD {
        head.extend_from_slice(b"Name: value\r\n");
    }
    let (mut parser, mut messages) = (Parser::default(), VecDeque::new());
    let mut fields = Fields::default();
    fields.insert(Field::HttpUri);
    let options = AppOptions { fields, ..AppOptions::default() };
    let truncated = parser.parse(&mut head, &mut messages, false, false, &mut Requests::default(), options);
    assert_eq!((truncated, messages.len(), head.len()), (1, 1, 0));
    assert_eq!(messages[0].values(Field::HttpUri).next(), Some(&b"/x"[..]));
}

#[test]
fn bytes_that_are_no_message_end_the_parsing() {
    let requests = b"GET /a HTTP/1.1\r\n\r\n\x00\x01{}\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
    let responses = b"HTTP/1.1 204 None\r\n\r\nrubbish\r\n\r\n";
    for chunk in [1, 5, 100] {
        let [requests, responses] = parse(requests.chunks(chunk), responses.chunks(chunk));
        assert_eq!((requests.len(), responses.len()), (1, 1));
    }
}

#[test]
fn recognises_first_lines() {
    for line in ["FOO /x HTTP/1.1\r\n", "GET /x y HTTP/1.0 \r\n", "http/1.1 200\r\n", "\r\nGET / HTTP/1.1\n"] {
        assert_eq!(recognise(line.as_bytes(), Verdict::NoMatch), Verdict::Match, "{line}");
    }
    for line in ["OPTIONS sip:a SIP/2.0\r\n", "EHLO example.com\r\n", "GET / HTTP/1.1"] {
        assert_eq!(recognise(line.as_bytes(), Verdict::NoMatch), Verdict::NoMatch, "{line}");
    }
}

proptest! {
    /// Messages with heads and bodies of any length give the same buffers however they are cut into segments.
    #[test]
    fn buffers_do_not_depend_on_segments(
        messages in prop::collection::vec(
            (prop::collection::vec(("[A-Za-z-]{1,8}", "[ -~]{0,12}"), 0..5), prop::collection::vec(any::<u8>(), 0..60), 0..3u8, 1..9usize),
            1..5,
        ),
        cuts in prop::collection::vec(1..40usize, 1..30),
    ) {
        let mut requests = vec![];
        for (fields, body, framing, chunk) in &messages {
            requests.extend_from_slice(b"POST /a HTTP/1.1\r\n");
            for (name, value) in fields {
                requests.extend_from_slice(format!("X{name}: {value}\r\n").as_bytes());
            }
            match framing {
                0 => requests.extend_from_slice(b"\r\n"),
                1 => {
                    requests.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                    requests.extend_from_slice(body);
                }
                _ => {
                    requests.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    for part in body.chunks(*chunk) {
                        requests.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                        requests.extend_from_slice(part);
                        requests.extend_from_slice(b"\r\n");
                    }
                    requests.extend_from_slice(b"0\r\n\r\n");
                }
            }
        }
        let responses = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let whole = parse([&requests[..]].into_iter(), [&responses[..]].into_iter());
        prop_assert_eq!(whole[0].len(), messages.len());
        for ((_, body, framing, _), buffers) in messages.iter().zip(&whole[0]) {
            let expected = String::from_utf8_lossy(if *framing == 0 { &[] } else { body });
            prop_assert_eq!(value(buffers, Field::FileData).unwrap_or(""), expected.as_ref());
        }
        let (mut segments, mut rest, mut cuts) = (vec![], &requests[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (segment, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            segments.push(segment);
            rest = behind;
        }
        prop_assert_eq!(parse(segments.into_iter(), [&responses[..]].into_iter()), whole);
    }

    /// Bytes of any kind neither panic nor leave more than the limits allow.
    #[test]
    fn accepts_any_bytes(parts in prop::collection::vec("(GET / HTTP/1.1\r\n|HTTP/1.1 200\r\n|Content-Length: [0-9]{1,30}\r\n|Transfer-Encoding: chunked\r\n|[0-9a-f]{1,20}\r\n|\r\n|.{0,9})", 0..12)) {
        let text = parts.concat().into_bytes();
        parse(text.chunks(3), text.chunks(5));
    }
}
