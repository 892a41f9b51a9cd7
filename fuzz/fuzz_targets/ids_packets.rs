//! Packets for `ids` with a rule for every option: connections with segments in any order, fragments, tunnels and IP options,
//! messages of HTTP, TLS and DNS, some of them mutated, and rules that are replaced meanwhile. Every packet is accounted
//! for, and in detect mode no packet is dropped.
#![no_main]

use bondstone_fuzz::maybe_mutate;
use graph::{
    Blueprint, BuildContext, CommonDrop, Graph, Hop, HopPlan, Named, NewNode, Node, NodePlan, Origin, Replacement,
    Sink, Target,
};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{BURST, Batch, HeapPool, Pool as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use wire::build;
use wire::{IpProtocol, TcpFlags, icmpv4, ipv4, tcp};

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

const RULES: &[&str] = &[
    "alert tcp any any -> any 80 (msg:\"a\"; flow:established,to_server; content:\"abc\"; nocase; content:\"de\"; distance:0; within:9; sid:1;)",
    "drop tcp any any -> any any (flow:to_client,only_stream; content:\"ba\"; endswith; sid:2;)",
    "reject udp any any <> any 53 (content:\"a\"; startswith; content:!\"b\"; bsize:>2; isdataat:!9; sid:3;)",
    "alert tcp any any -> any any (content:\"c\"; offset:1; depth:5; fast_pattern; flowbits:set,x; sid:4;)",
    "alert tcp any any -> any any (flowbits:isset,x|y; content:\"d\"; flowbits:toggle,y; flowbits:noalert; sid:5;)",
    "alert ip any any -> any any (content:\"abcabc\"; fast_pattern:1,3; xbits:set,z,track ip_src,expire 2; sid:6;)",
    "alert ip any any -> any any (xbits:isset,z,track ip_src; xbits:unset,z,track ip_pair; sid:7;)",
    "alert tcp any any -> any any (pcre:\"/a.{0,4}b$/smi\"; sid:8;)",
    "alert tcp any any -> any any (content:\"a\"; pcre:\"/^[a-d]+/R\"; pcre:!\"/x/\"; sid:9;)",
    "alert ip any any -> any any (byte_test:1,&,0x40,0; byte_jump:1,0,relative,align,post_offset -2; content:\"b\"; distance:0; sid:10;)",
    "alert ip any any -> any any (byte_extract:2,0,n,little,multiplier 2,align 4; content:\"a\"; offset:n; byte_math:bytes 1,offset 0,oper /,rvalue n,result m; isdataat:m,relative; sid:11;)",
    "alert ip any any -> any any (byte_test:3,>,7,0,string,dec; byte_jump:2,1,string,hex,from_end; sid:12;)",
    "alert tcp any any -> any any (flags:S+,12; seq:0; window:!0; tcp.mss:<1000; sid:13;)",
    "alert tcp any any -> any any (ack:1; flags:*FA; tcp.hdr; content:\"|50|\"; offset:12; depth:1; sid:14;)",
    "alert ip any any -> any any (ttl:<5; tos:!4; id:7; sid:15;)",
    "alert ip any any -> any any (ipopts:rr; sid:16;)",
    "alert ip any any -> any any (ipopts:any; ipv4.hdr; content:\"|94|\"; sid:17;)",
    "alert ip any any -> any any (fragbits:M+; fragoffset:0; sid:18;)",
    "alert ip any any -> any any (ip_proto:<>20; sameip; dsize:1<>30; sid:19;)",
    "alert icmp any any -> any any (itype:8; icode:0; icmp_id:1; icmp_seq:1; icmpv4.hdr; content:\"|08|\"; sid:20;)",
    "alert icmp any any -> any any (icmpv6.hdr; content:\"|80|\"; ipv6.hdr; content:\"|60|\"; sid:21;)",
    "alert udp any any -> any any (udp.hdr; content:\"|00 35|\"; pkt_data; content:\"d\"; threshold:type both,track by_src,count 2,seconds 1; sid:22;)",
    "alert tcp any any -> any any (content:\"bb\"; detection_filter:track by_dst,count 1,seconds 2; sid:23;)",
    "alert udp any any -> any any (threshold:type limit,track by_rule,count 1,seconds 1; content:\"cd\"; sid:24;)",
    "alert ip [10.0.0.0/8,!10.0.0.3] any -> any [1:1024,!22] (msg:\"list\"; threshold:type threshold,track by_both,count 3,seconds 9; sid:25;)",
    "pass ip 10.0.0.4 any -> any any (sid:26;)",
    "alert tcp-pkt any any -> any any (content:\"aa\"; rawbytes; sid:27;)",
    "alert tcp-stream any any -> any any (content:\"cc\"; content:\"aa\"; distance:-9; noalert; sid:28;)",
    "alert sctp any any -> any any (content:\"a\"; flow:stateless,no_stream; sid:29;)",
    "alert ipv6 any any -> any any (flow:not_established; content:\"b\"; flow:no_frag; sid:30;)",
    "alert ip any any -> any any (flow:only_frag; sid:31;)",
    "alert http any any -> any any (http.uri; content:\"a\"; http.header; content:\"b\"; nocase; file.data; content:\"c\"; sid:32;)",
    "drop http any any -> any any (http.method; content:\"GET\"; http.host; content:\"b\"; http.cookie; absent; sid:33;)",
    "alert http any any -> any any (http.response_body; url_decode; to_lowercase; content:\"ab\"; sid:34;)",
    "alert tls any any -> any any (tls.sni; content:\"a\"; ja3.string; content:\"7\"; sid:35;)",
    "alert tls any any -> any any (tls.version; content:\"1\"; tls.cert_subject; content:\"a\"; sid:36;)",
    "alert dns any any -> any any (dns.query; dotprefix; content:\".com\"; endswith; sid:37;)",
];

struct Count(u64);

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0 += batch.drain().count() as u64;
    }
}

/// Builds a node with some of the rules.
fn node(u: &mut Unstructured<'_>, cx: &BuildContext, prevent: bool, aho_corasick: bool) -> Result<Box<dyn Node>> {
    let selected: u64 = if u.ratio(7, 8)? { u64::MAX } else { u.arbitrary()? };
    let inline: Vec<_> =
        RULES.iter().enumerate().filter(|(n, _)| selected >> n & 1 != 0).map(|(_, rule)| rule).collect();
    let settings = serde_json::json!({
        "inline": inline,
        "mode": if prevent { "prevent" } else { "detect" },
        "matcher": if aho_corasick { "aho_corasick" } else { "auto" },
        "checksums": u.ratio(1, 4)?,
        "midstream": u.ratio(1, 4)?,
        "flows": u.int_in_range(1..=16u8)?,
    });
    let factory = REGISTRY.get("ids").expect("a shipped NF").deserialize(settings).expect("settings");
    Ok(factory.build(cx).expect("valid rules"))
}

/// Messages of application protocols, and beginnings of them.
const MESSAGES: &[&[u8]] = &[
    b"GET /a%62?c HTTP/1.1\r\nHost: b\r\nCookie: a\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 9\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n\x1f\x8b\x08",
    b"\x16\x03\x01\x00\x30\x01\x00\x00\x2c\x03\x03",
    b"\x16\x03\x03\x00\x40\x02\x00\x00\x3c\x03\x03",
    b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x03com\0\0\x01\0\x01",
    b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x03com\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01",
];

/// Returns text of few letters, in which contents are often found.
fn text(u: &mut Unstructured<'_>, max: usize) -> Result<Vec<u8>> {
    let len = u.int_in_range(0..=max)?;
    let mut out = vec![];
    while out.len() < len {
        match u.int_in_range(0..=9u8)? {
            0 => out.extend_from_slice(b"abcabcde"),
            1 => out.extend(std::iter::repeat_n(*u.choose(b"abcd")?, usize::from(u.arbitrary::<u8>()?))),
            2 => out.push(u.arbitrary()?),
            3 => out.extend_from_slice(b"123"),
            4 => out.extend_from_slice(u.choose(MESSAGES)?),
            _ => out.push(*u.choose(b"abcdABx\n")?),
        }
        if u.is_empty() {
            break;
        }
    }
    out.truncate(max);
    Ok(out)
}

/// Returns a packet of one of a few connections, with a sequence number close to the expected one.
fn frame(u: &mut Unstructured<'_>, next: &mut [[u32; 2]; 4]) -> Result<Vec<u8>> {
    let (flow, back): (usize, bool) = (u.int_in_range(0..=3)?, u.arbitrary()?);
    let (client, server) = ([10, 0, 0, 1 + flow as u8], [10, 0, 0, 9]);
    let (src, dst) = if back { (server, client) } else { (client, server) };
    let service = *u.choose(&[80, 53, 443])?;
    let (sport, dport) = if back { (service, 4000) } else { (4000, service) };
    let mapped = |ip: [u8; 4]| {
        let mut address = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        address[12..].copy_from_slice(&ip);
        address
    };
    let (src6, dst6) = (mapped(src), mapped(dst));
    Ok(match u.int_in_range(0..=15u8)? {
        0..=7 => {
            let (ours, theirs) = (usize::from(back), usize::from(!back));
            let flags = TcpFlags(*u.choose(&[0x10, 0x10, 0x18, 0x10, 0x02, 0x12, 0x11, 0x14, 0x04, 0x00, 0x29])?);
            let shift = if u.ratio(1, 4)? { i32::from(u.arbitrary::<i8>()?) } else { 0 };
            let (seq, ack) = (next[flow][ours].wrapping_add_signed(shift), next[flow][theirs]);
            let max = if u.ratio(1, 8)? { 1400 } else { 40 };
            let payload = text(u, max)?;
            next[flow][ours] = seq.wrapping_add(payload.len() as u32).wrapping_add((u32::from(flags.0) >> 1) & 1);
            let list = if u.arbitrary()? { vec![tcp::TcpOption::Mss(536)] } else { vec![] };
            let options = tcp::options(&list).unwrap_or_default();
            if u.ratio(1, 8)? {
                build::tcp6(src6, dst6, sport, dport).flags(flags).seq(seq).ack(ack).payload(&payload).to_vec()
            } else {
                let segment = build::tcp4(src, dst, sport, dport).flags(flags).seq(seq).ack(ack);
                segment.tcp_options(options).payload(&payload).to_vec()
            }
        }
        8..=9 => {
            let ttl = u.int_in_range(1..=64)?;
            build::udp4(src, dst, sport, dport).ttl(ttl).payload(&text(u, 60)?).to_vec()
        }
        10 => build::udp6(src6, dst6, sport, dport).payload(&text(u, 60)?).to_vec(),
        11..=12 => {
            // a fragment of a datagram of UDP or SCTP
            let (from, more): (u16, bool) = (u16::from(u.int_in_range(0..=6u8)?) * 8, u.arbitrary()?);
            let header = [&sport.to_be_bytes()[..], &dport.to_be_bytes(), &[0, 64, 0, 0]].concat();
            let mut part = if from == 0 { header } else { vec![] };
            part.extend(text(u, 40)?);
            if more {
                part.truncate(part.len() & !7);
            }
            let id = u.int_in_range(0..=2u16)?;
            if u.arbitrary()? {
                build::ipv6(src6, dst6, IpProtocol::UDP).fragment(from, more, id.into()).payload(&part).to_vec()
            } else {
                build::ipv4(src, dst, IpProtocol::UDP).id(id).fragment(from, more).payload(&part).to_vec()
            }
        }
        13 => {
            let list = [ipv4::Ipv4Option::RouterAlert(0)];
            let options = ipv4::options(&list).unwrap_or_default();
            build::ipv4(src, dst, IpProtocol(132)).id(7).ip_options(options).payload(&text(u, 60)?).to_vec()
        }
        14 => {
            let inner = frame(u, next)?;
            let (protocol, header): (u8, &[u8]) =
                *u.choose(&[(4, &[][..]), (41, &[]), (47, &[0, 0, 8, 0]), (47, &[0, 0, 0x65, 0x58])])?;
            let from = if header == [0, 0, 0x65, 0x58] { 0 } else { 14 };
            let inner = [header, inner.get(from..).unwrap_or_default()].concat();
            build::ipv4(src, dst, IpProtocol(protocol)).payload(&inner[..inner.len().min(1600)]).to_vec()
        }
        _ if u.arbitrary()? => build::echo4(src, dst, 1, 1).payload(&text(u, 40)?).to_vec(),
        _ if u.arbitrary()? => build::echo6(src6, dst6, 1, 1).payload(&text(u, 40)?).to_vec(),
        _ => build::icmp4(src, dst, icmpv4::Repr::FragmentationNeeded { mtu: 1280 }).payload(&text(u, 40)?).to_vec(),
    })
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let (prevent, aho_corasick) = (u.arbitrary()?, u.arbitrary()?);
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "ids".to_owned(), edges: vec![Target::Unconnected] }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
    };
    let pool = Arc::new(HeapPool::new(2 * BURST));
    let mut cx = BuildContext { name: "ids".to_owned(), ..BuildContext::default() };
    let mut graph = Graph::new(&blueprint, vec![node(u, &cx, prevent, aho_corasick)?], pool.clone());
    let (mut received, mut out, mut now, mut next) = (0, Count(0), 0, [[99, 499]; 4]);
    if u.ratio(7, 8)? {
        // handshakes, so that most segments are parts of streams
        for (flow, next) in next.iter_mut().enumerate() {
            let (client, server) = ([10, 0, 0, 1 + flow as u8], [10, 0, 0, 9]);
            let mut batch = Batch::new();
            for service in [80, 53, 443] {
                let segment = |flags| build::tcp4(client, server, 4000, service).flags(flags);
                let answer = build::tcp4(server, client, service, 4000).flags(TcpFlags::SYN | TcpFlags::ACK);
                for frame in [
                    segment(TcpFlags::SYN).seq(99).to_vec(),
                    answer.seq(499).ack(100).to_vec(),
                    segment(TcpFlags::ACK).seq(100).ack(500).to_vec(),
                ] {
                    batch.push(pool.alloc_from(&frame).expect("a buffer")).expect("a burst");
                    received += 1;
                }
            }
            *next = [100, 500];
            graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
        }
    }
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u8>()?);
        graph.run_timers(Duration::from_millis(now), &mut out);
        let mut batch = Batch::new();
        for _ in 0..u.int_in_range(1..=8)? {
            let made = frame(u, &mut next)?;
            let (frame, _) = maybe_mutate(u, made)?;
            if let Some(packet) = pool.alloc_from(&frame) {
                received += 1;
                batch.push(packet).expect("a burst");
            }
        }
        graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
        check(&graph, &pool, received, &out, prevent);
        if u.ratio(1, 16)? {
            let before = std::mem::take(&mut cx.shared);
            cx.before = Some(before);
            let replacement = node(u, &cx, prevent, aho_corasick)?;
            let stats = graph.stats().next().expect("one node").1.clone();
            let only = Origin { graph: 0, node: 0 };
            let nodes = vec![NewNode::Successor(only, replacement, true)];
            let new = Replacement::new(&[(&blueprint, &[stats])], &blueprint, nodes, pool.clone());
            let (new, panics) = new.install(std::slice::from_mut(&mut graph), 0);
            let old = std::mem::replace(&mut graph, new);
            let panics = [panics, old.retire(|_, retire| retire())].concat();
            assert!(panics.is_empty(), "{panics:?}");
        }
    }
    let panics = graph.finish();
    assert!(panics.is_empty(), "{panics:?}");
    check(&graph, &pool, received, &out, prevent);
    Ok(())
}

fn check(graph: &Graph, pool: &HeapPool, received: u64, out: &Count, prevent: bool) {
    let stats = graph.stats().next().expect("one node").1.clone();
    assert_eq!(received + stats.created.get(), out.0 + stats.dropped(), "accounting");
    assert!(prevent || stats.dropped() == 0, "packets were dropped in detect mode");
    assert_eq!(pool.in_use(), 0, "a packet was leaked");
    for (reason, count) in stats.reasons.iter().zip(&stats.drops) {
        assert!(!CommonDrop::NAMES.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
    }
}

fuzz_target!(|data: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(data));
});
