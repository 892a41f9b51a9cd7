use super::*;
use crate::ids::engine::Options;
use crate::ids::engine::tests::{self, ethernet};
use crate::ids::rule::app::AppProtocol;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use testkit::wire::{TcpFlags, build};

fn engine(rules: &str, prevent: bool) -> Engine {
    tests::engine(rules, Options { prevent, checksums: false, max_alerts: 255, ..tests::options() })
}

/// A TCP connection between a client and a server.
struct Connection {
    engine: Engine,
    alerts: Vec<Alert>,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
}

impl Connection {
    fn new(engine: Engine) -> Self {
        let mut connection = Connection { engine, alerts: vec![], next: [99, 499] };
        connection.send(0, TcpFlags::SYN, b"");
        connection.send(1, TcpFlags::SYN | TcpFlags::ACK, b"");
        connection.send(0, TcpFlags::ACK, b"");
        connection
    }

    fn send(&mut self, side: usize, flags: TcpFlags, payload: &[u8]) -> Verdict {
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let segment = match side {
            0 => build::tcp4(client, server, 4000, 8000),
            _ => build::tcp4(server, client, 8000, 4000),
        };
        let segment = segment.seq(self.next[side]).ack(self.next[1 - side]).flags(flags);
        let frame = segment.payload(payload).to_vec();
        self.next[side] +=
            payload.len() as u32 + u32::from(flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::FIN));
        self.engine.inspect_frame(Duration::ZERO, &frame, &mut self.alerts).unwrap()
    }

    /// Sends bytes in segments, each of which the other side acknowledges.
    fn data<'a>(&mut self, side: usize, segments: impl IntoIterator<Item = &'a [u8]>) {
        for segment in segments {
            self.send(side, TcpFlags::ACK, segment);
            self.send(1 - side, TcpFlags::ACK, b"");
        }
    }

    /// Returns the signatures of the alerts, sorted.
    fn sids(&self) -> Vec<u32> {
        let mut all: Vec<_> = self.alerts.iter().map(|alert| self.engine.rule(alert.rule).unwrap().sid).collect();
        all.sort_unstable();
        all
    }

    fn finish(mut self) -> Vec<u32> {
        self.engine.finish(Duration::ZERO, &mut self.alerts);
        self.sids()
    }
}

fn numbered(options: &[&str]) -> String {
    let rules = options.iter().enumerate();
    rules.map(|(n, options)| format!("alert http any any -> any any ({options}; sid:{};)\n", n + 1)).collect()
}

const REQUEST: &[u8] =
    b"POST /a%62c?q=1 HTTP/1.1\r\nHost: Example.com:8000\r\nUser-Agent: agent/1\r\nAccept: text/html\r\n\
    Accept-Language: en\r\nAccept-Encoding: br\r\nConnection: close\r\nReferer: http://ref/\r\nCookie: id=7\r\n\
    Content-Type: text/x\r\nContent-Length: 9\r\n\r\nthe body!";

/// Rules of which each matches a request or its response once.
const MATCHING: &[&str] = &[
    "http.method; content:\"POST\"; bsize:4",
    "content:\"post\"; nocase; http_method",
    "http.uri; content:\"/abc?q=1\"; startswith; endswith",
    "content:\"/abc\"; http_uri; content:\"q=\"; distance:1; http_uri",
    "pcre:\"/^\\/abc\\?q=\\d$/U\"",
    "http.uri.raw; content:\"a%62c\"",
    "content:\"%62\"; http_raw_uri",
    "urilen:8",
    "urilen:>9,raw",
    "http.host; content:\"example.com\"; bsize:11",
    "http.host.raw; content:\"Example.com:8000\"",
    "http.user_agent; content:\"agent/\"; pcre:\"/^\\d/R\"",
    "pcre:\"/agent/V\"",
    "http.accept; content:\"text\"",
    "http.accept_lang; content:\"en\"",
    "http.accept_enc; content:\"br\"",
    "http.connection; content:\"close\"; flow:to_server",
    "http.referer; content:\"ref\"",
    "http.cookie; content:\"id=7\"; flow:established,to_server",
    "flow:to_server; http.content_type; content:\"text/x\"",
    "flow:to_server; http.content_len; byte_test:0,=,9,0,string,dec",
    "flow:to_server; http.header; content:\"Referer: http\"; content:!\"Cookie\"",
    "flow:to_server; http.header.raw; content:\"Cookie: id\"",
    "flow:to_server; http.header_names; content:\"|0d 0a|Host|0d 0a|User-Agent|0d 0a|\"; startswith",
    "http.request_header; content:\"Accept: text/html\"; bsize:17",
    "flow:to_server; http.protocol; content:\"HTTP/1.1\"; bsize:8",
    "http.request_line; content:\"POST /a%62c?q=1 HTTP/1.1\"; endswith",
    "flow:to_server; http.start; content:\"HTTP/1.1|0d 0a|Host\"",
    "http.request_body; content:\"the body!\"; startswith; endswith",
    "content:\"body\"; http_client_body",
    "flow:to_server; file.data; content:\"body\"",
    "http.method; content:\"POST\"; http.request_body; content:\"the\"; http.host; content:\"example\"",
    "http.uri; to_uppercase; content:\"/ABC\"",
    "http.uri; to_md5; content:\"|%MD5%|\"",
    "content:\"the body\"; http.method; content:\"POST\"",
    "http.stat_code; content:\"200\"",
    "http.stat_msg; content:\"Very fine\"",
    "http.response_line; content:\"HTTP/1.1 200 Very fine\"; bsize:22",
    "http.server; content:\"server\"",
    "http.location; content:\"/else\"",
    "http.cookie; content:\"set=1\"; flow:to_client",
    "http.response_body; content:\"compressed text\"",
    "content:\"compressed\"; http_server_body",
    "flow:to_client; file_data; strip_whitespace; content:\"compressedtext\"",
    "flow:to_client; http.header; content:\"Server: server|0d 0a|\"",
    "http.stat_code; content:\"200\"; http.connection; absent",
    "http.user_agent; absent:or_else; content:!\"wget\"; http.method; content:\"POST\"",
];

/// Rules that match nothing.
const FAILING: &[&str] = &[
    "http.uri; content:\"%62\"",
    "http.host; content:\"Example\"",
    "http.method; content:\"GET\"",
    "http.user_agent; absent; http.method; content:\"POST\"",
    "http.user_agent; absent",
    "http.request_body; content:!\"the\"",
    "http.request_body; content:\"body\"; endswith",
    "http.cookie; content:\"id=7\"; flow:to_client",
    "http.uri; content:\"/abc\"; http.request_body; content:\"other\"",
    "http.header; content:\"id=7\"",
];

fn response() -> Vec<u8> {
    let mut gzip = GzEncoder::new(vec![], Compression::default());
    gzip.write_all(b"some compressed text").unwrap();
    let body = gzip.finish().unwrap();
    let mut response = b"HTTP/1.1 200 Very fine\r\nServer: server\r\nLocation: /else\r\nSet-Cookie: set=1\r\n\
        Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    for part in body.chunks(7) {
        response.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        response.extend_from_slice(part);
        response.extend_from_slice(b"\r\n");
    }
    response.extend_from_slice(b"0\r\n\r\n");
    response
}

fn rules() -> String {
    use md5::{Digest, Md5};
    let digest: Vec<String> = Md5::digest(b"/abc?q=1").iter().map(|byte| format!("{byte:02x}")).collect();
    numbered(&[MATCHING, FAILING].concat()).replace("%MD5%", &digest.join(" "))
}

fn expected() -> Vec<u32> {
    (1..=MATCHING.len() as u32).collect()
}

#[test]
fn each_buffer_of_http_is_inspected_once_per_transaction() {
    for prevent in [false, true] {
        let mut connection = Connection::new(engine(&rules(), prevent));
        connection.data(0, [REQUEST]);
        connection.data(1, [&response()[..]]);
        assert_eq!(connection.finish(), expected(), "prevent: {prevent}");
    }
}

#[test]
fn buffers_of_http_do_not_depend_on_segments() {
    let response = response();
    for split in (1..REQUEST.len().max(response.len())).step_by(3) {
        let mut connection = Connection::new(engine(&rules(), split % 2 == 0));
        let two = |text| <[&[u8]; 2]>::from(<[u8]>::split_at(text, split.min(text.len())));
        connection.data(0, two(REQUEST));
        connection.data(1, two(&response));
        assert_eq!(connection.finish(), expected(), "split at {split}");
    }
    for prevent in [false, true] {
        let mut connection = Connection::new(engine(&rules(), prevent));
        connection.data(0, REQUEST.chunks(1));
        connection.data(1, response.chunks(1));
        assert_eq!(connection.finish(), expected(), "prevent: {prevent}");
    }
}

#[test]
fn pipelined_requests_are_inspected_one_by_one() {
    let rules = numbered(&[
        "http.uri; content:\"/a\"",
        "http.uri; content:\"/b\"",
        "flow:to_server; http.method; content:\"GET\"",
    ]);
    let requests = [&b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n"[..], b"GET /a/b HTTP/1.1\r\n\r\n"].concat();
    let mut connection = Connection::new(engine(&rules, false));
    connection.data(0, [&requests[..]]);
    assert_eq!(connection.finish(), [1, 1, 2, 2, 3, 3, 3]);
    // more than may wait at a time
    let many = b"GET /a HTTP/1.1\r\n\r\n".repeat(1000);
    for (limit, expected) in [(usize::MAX, 1000), (3, 2 * many.len().div_ceil(1460))] {
        let mut engine = engine(&rules, false);
        engine.options.max_alerts = limit;
        let mut connection = Connection::new(engine);
        connection.data(0, many.chunks(1460));
        assert_eq!(connection.finish().iter().filter(|sid| **sid == 1).count(), expected, "{limit} alerts per packet");
    }
}

#[test]
fn a_request_is_inspected_with_the_next_packet_of_its_direction() {
    let rules = numbered(&["http.uri; content:\"/a\""]);
    let mut connection = Connection::new(engine(&rules, false));
    connection.send(0, TcpFlags::ACK, b"GET /a HTTP/1.1\r\n\r\n");
    connection.send(1, TcpFlags::ACK, b"");
    assert!(connection.sids().is_empty());
    connection.send(0, TcpFlags::ACK, b"");
    assert_eq!(connection.sids(), [1]);
    assert_eq!(connection.alerts[0].app, Some(AppProtocol::Http));
    connection.send(0, TcpFlags::RST, b"");
    assert_eq!(connection.finish(), [1]);
}

#[test]
fn the_packet_with_the_match_and_those_behind_are_dropped() {
    let rule = "drop http any any -> any any (http.uri; content:\"/bad\"; sid:1;)\n\
                drop http any any -> any any (http.request_body; content:\"evil\"; sid:2;)";
    let mut connection = Connection::new(engine(rule, true));
    assert_eq!(connection.send(0, TcpFlags::ACK, b"GET /ba"), Verdict::Forward);
    assert_eq!(connection.send(0, TcpFlags::ACK, b"d HTTP/1.1\r\n\r\n"), Verdict::Drop);
    assert_eq!(connection.send(0, TcpFlags::ACK, b"more"), Verdict::Drop);
    let mut connection = Connection::new(engine(rule, true));
    assert_eq!(
        connection.send(0, TcpFlags::ACK, b"POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\ne"),
        Verdict::Forward
    );
    assert_eq!(connection.send(0, TcpFlags::ACK, b"vil"), Verdict::Drop);
    assert_eq!(connection.finish(), [2]);
}

#[test]
fn protocols_are_detected_by_content() {
    let rules = "alert tcp any any -> any any (app-layer-protocol:http; sid:1;)\n\
                 alert tcp any any -> any any (app-layer-protocol:!http; sid:2;)\n\
                 alert tls any any -> any any (content:\"GET\"; sid:3;)\n\
                 alert http any any -> any any (content:\"GET\"; sid:4;)\n";
    let mut connection = Connection::new(engine(rules, false));
    connection.data(0, [&b"GET / HTTP/1.1\r\n\r\n"[..]]);
    connection.data(1, [&b"HTTP/1.1 200 OK\r\n\r\n"[..]]);
    assert_eq!(connection.finish(), [1, 1, 4]);
    let mut connection = Connection::new(engine(rules, false));
    connection.data(0, [&b"\x01\x02\x03 GET is a word here"[..]]);
    connection.data(1, [&b"\x03\x02\x01 not HTTP either"[..], b"more"]);
    assert_eq!(connection.finish(), [2, 2]);
}

#[test]
fn missing_bytes_end_the_parsing() {
    let rules = numbered(&["http.uri; content:\"/a\"", "http.uri; content:\"/b\""]);
    let mut connection = Connection::new(engine(&rules, false));
    connection.data(0, [&b"GET /a HTTP/1.1\r\n\r\n"[..]]);
    connection.next[0] += 10;
    (0..140).for_each(|_| connection.data(0, [&b"GET /b HTTP/1.1\r\n\r\n"[..]]));
    assert_eq!(connection.engine.app_statistics().abandoned(), 1);
    assert_eq!(connection.finish(), [1]);
}

#[test]
fn names_of_dns_are_inspected_one_by_one() {
    let rules = "alert dns any any -> any any (dns.query; content:\"www\"; content:\"example\"; sid:1;)\n\
                 alert dns any any -> any any (dns.query; content:\"www\"; content:\"other\"; sid:2;)\n\
                 alert dns any any -> any any (dns.query; content:\"www\"; dns.query; content:\"other\"; sid:3;)\n\
                 alert dns any any -> any any (dns.query; dotprefix; content:\".example.com\"; endswith; sid:4;)\n\
                 alert dns any any -> any any (dns.opcode:0; dns.rrtype:TXT; sid:5;)\n\
                 alert dns any any -> any any (dns.opcode:!0; sid:6;)\n\
                 alert udp any any -> any 53 (dns_query; content:\"other.net\"; bsize:9; isdataat:!1,relative; sid:7;)\n\
                 alert dns any any -> any any (dns.queries.rrname; content:\"www\"; sid:8;)";
    let message = |flags: u8| {
        let mut bytes = vec![0, 1, flags, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"\x03www\x07example\x03com\0\0\x01\0\x01\x05other\x03net\0\0\x10\0\x01");
        bytes
    };
    let mut engine_ = engine(rules, false);
    let mut alerts = vec![];
    let query = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 53).payload(&message(1)).to_vec();
    let answer = build::udp4([10, 0, 0, 2], [10, 0, 0, 1], 53, 4000).payload(&message(0x81)).to_vec();
    let mut sids = |frame: &[u8]| {
        engine_.inspect_frame(Duration::ZERO, frame, &mut alerts).unwrap();
        let mut sids: Vec<_> = alerts.drain(..).map(|alert: Alert| engine_.rule(alert.rule).unwrap().sid).collect();
        sids.sort_unstable();
        sids
    };
    assert_eq!(sids(&query), [1, 3, 4, 5, 7, 8]);
    assert_eq!(sids(&query), [1, 3, 4, 5, 7, 8]);
    assert_eq!(sids(&answer), [5, 8]);
    let framed = [&(message(1).len() as u16).to_be_bytes()[..], &message(1)].concat();
    for chunk in 1..=framed.len() {
        let mut connection = Connection::new(engine(rules, chunk % 2 == 0));
        connection.data(0, framed.chunks(chunk));
        assert_eq!(connection.finish(), [1, 3, 4, 5, 8], "segments of {chunk} bytes");
    }
}

#[test]
fn handshakes_of_tls_are_inspected() {
    let rules = "alert tls any any -> any any (tls.sni; content:\"example.com\"; bsize:11; sid:1;)\n\
                 alert tls any any -> any any (tls_sni; dotprefix; content:\".com\"; endswith; sid:2;)\n\
                 alert tcp any any -> any any (ja3.hash; content:\"ADA70206E40642A3E4461F35503241D5\"; sid:3;)\n\
                 alert tls any any -> any any (tls.version:1.0; sid:4;)\n\
                 alert tls any any -> any any (tls.sni; content:\"other\"; sid:5;)\n\
                 alert tls any any -> any any (flow:to_server; tls.sni; absent; tls.random; bsize:32; sid:6;)\n\
                 alert tcp any any -> any any (app-layer-protocol:tls; flow:to_server; sid:7;)";
    let stream = crate::ids::app::client_stream();
    for chunk in [1, 7, stream.len()] {
        for prevent in [false, true] {
            let mut connection = Connection::new(engine(rules, prevent));
            connection.data(0, stream.chunks(chunk));
            connection.data(0, [&[20, 3, 1, 0, 1, 1][..]]);
            assert_eq!(connection.finish(), [1, 2, 3, 4, 7], "segments of {chunk} bytes");
        }
    }
}

#[test]
fn the_side_that_answers_is_the_server() {
    let rules = numbered(&["http.uri; content:\"/a\"", "http.stat_code; content:\"200\""]);
    let mut engine = engine(&rules, false);
    engine.options.midstream = true;
    let mut connection = Connection { engine, alerts: vec![], next: [100, 500] };
    connection.data(0, [&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..]]);
    connection.data(1, [&b"GET /a HTTP/1.1\r\n\r\n"[..]]);
    connection.data(0, [&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..]]);
    assert_eq!(connection.finish(), [1, 2, 2]);
}

/// Captures whose buffers are compared with the fields of tshark.
const CAPTURES: &[&str] = &[
    "443-curl.pcap",
    "bad-dns-traffic.pcap",
    "dns_exfiltration.pcap",
    "http-lines-split.pcap",
    "http.pcapng",
    "http_starting_with_reply.pcapng",
    "quickplay.pcap",
    "tls-rdn-extract.pcap",
    "tls_2_reasms_b.pcapng",
    "tls_certificate_too_long.pcap",
];

/// Fields of tshark, and the buffers with the same values.
const SAME: &[(&str, &str)] = &[
    ("http.request.uri", "http.uri.raw"),
    ("http.host", "http.host.raw"),
    ("http.user_agent", "http.user_agent"),
    ("http.response.code", "http.stat_code"),
    ("tls.handshake.extensions_server_name", "tls.sni"),
    ("tls.handshake.ja3", "ja3.hash"),
    ("tls.handshake.ja3s", "ja3s.hash"),
    ("dns.qry.name", "dns.query"),
];

/// Returns the values of a capture by keyword, each with its number; `None` without tshark.
fn values_of_tshark(file: &std::path::Path) -> Option<std::collections::BTreeMap<(&'static str, String), u64>> {
    let mut command = std::process::Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "separator=/t", "-E", "aggregator=|", "-r"]).arg(file);
    SAME.iter().for_each(|(field, _)| {
        command.args(["-e", field]);
    });
    command.args(["-e", "dns.flags.response", "-e", "frame.protocols"]);
    let output = command.output().ok().filter(|output| output.status.success())?;
    let mut values = std::collections::BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let columns: Vec<_> = line.split('\t').collect();
        let [fields @ .., response, protocols] = &columns[..] else { continue };
        let is_other = ["quic", "dtls", "mdns", "llmnr", "ssdp"].iter().any(|other| protocols.contains(other));
        for ((_, keyword), column) in SAME.iter().zip(fields) {
            let is_query = *keyword != "dns.query" || response.starts_with('0') || *response == "False";
            for value in column.split('|').filter(|value| !value.is_empty() && !is_other && is_query) {
                *values.entry((*keyword, value.to_owned())).or_default() += 1;
            }
        }
    }
    Some(values)
}

#[test]
fn buffers_have_the_values_that_tshark_finds() {
    let data =
        std::env::var_os("BONDSTONE_DATA").map_or_else(|| "../../../shared/data".into(), std::path::PathBuf::from);
    let mut compared = 0;
    for name in CAPTURES {
        let file = data.join("dpi").join(name);
        let Some(values) = Some(&file).filter(|file| file.exists()).and_then(|file| values_of_tshark(file)) else {
            println!("skipped: {} or tshark is missing", file.display());
            continue;
        };
        let rules: String = (values.keys().zip(1..))
            .map(|((keyword, value), sid)| {
                let hex: String = value.bytes().take(255).map(|byte| format!("{byte:02x} ")).collect();
                let len = value.len();
                format!("alert ip any any -> any any ({keyword}; content:\"|{hex}|\"; startswith; bsize:{len}; sid:{sid};)\n")
            })
            .collect();
        let mut engine = engine(&rules, false);
        engine.options.midstream = true;
        let mut reader = pcap::Reader::open(&file).unwrap();
        let mut alerts = vec![];
        while let Ok(Some(record)) = reader.next() {
            if let Some(frame) = ethernet(&record) {
                engine.inspect_frame(Duration::from_nanos(record.timestamp_ns), &frame, &mut alerts);
            }
        }
        engine.finish(Duration::ZERO, &mut alerts);
        for ((value, expected), sid) in values.iter().zip(1u32..) {
            let found = alerts.iter().filter(|alert| engine.rule(alert.rule).unwrap().sid == sid).count() as u64;
            assert_eq!(found, *expected, "{name}: {value:?}");
            compared += found;
        }
    }
    println!("{compared} values are the same");
}

#[test]
fn a_body_that_is_not_what_its_coding_says_is_inspected_as_sent() {
    let rule = "alert http any any -> any any (http.request_body; content:\"evil\"; sid:1;)";
    let request = b"POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nthe evil!";
    for prevent in [false, true] {
        let mut connection = Connection::new(engine(rule, prevent));
        connection.data(0, [&request[..]]);
        assert_eq!(connection.finish(), [1]);
    }
}
