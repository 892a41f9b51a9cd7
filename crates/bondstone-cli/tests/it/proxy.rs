//! TCP streams rewritten proxy_host Linux hosts over impaired links: downloads are compared byte for byte.

use crate::common::alone;
use crate::common::namespace::{Namespace, possible};
use crate::common::traffic::Web;
use crate::common::{Running, Scratch};

const TOOLS: [&str; 2] = ["curl", "nginx"];
const PATTERN: &[u8] = b"bondstone";
/// Length of the file in bytes.
const LEN: usize = 1 << 20;

/// Builds a text that contains the pattern, or a truncated pattern, every few dozen bytes.
fn content() -> Vec<u8> {
    let (mut all, mut number) = (vec![], 1u64);
    while all.len() < LEN {
        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let (kind, len) = (number >> 60, (number >> 32) as usize % 40);
        if kind < 8 {
            all.extend_from_slice(if kind < 6 { PATTERN } else { &PATTERN[..PATTERN.len() - 1] });
        }
        all.extend(number.to_le_bytes().iter().cycle().take(len).map(|byte| b'a' + byte % 26));
    }
    all
}

fn replaced(mut bytes: &[u8], by: &[u8]) -> Vec<u8> {
    let mut all = vec![];
    while let Some(at) = bytes.windows(PATTERN.len()).position(|part| part == PATTERN) {
        all.extend_from_slice(&bytes[..at]);
        all.extend_from_slice(by);
        bytes = &bytes[at + PATTERN.len()..];
    }
    all.extend_from_slice(bytes);
    all
}

/// Downloads through `substitute` proxy_host two hosts over four links with this impairment.
fn downloads_through(name: &str, impairment: &str, by: &str) {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [a, b, proxy_host] = ["a", "b", "m"].map(|side| Namespace::new(&format!("{name}-{side}")));
    proxy_host.mute();
    for (near, far, side) in [("lan", "enda", &a), ("wan", "endb", &b)] {
        proxy_host.link(near, side, far);
        proxy_host.raise(near);
    }
    let wires: String =
        (1..=4).map(|n| format!("[nf.wire{n}]\nkind = \"impair\"\nseed = {n}\n{impairment}\n")).collect();
    // without Content-Length, because clients report a mismatch
    let rules = format!(
        "[{{ find = \"Content-Length\", replace = \"Once-There-Were\" }}, {{ find = {:?}, replace = {by:?} }}]",
        str::from_utf8(PATTERN).unwrap()
    );
    let chains = format!(
        "bondstone = 1\nport.lan.device = \"af_packet:lan\"\nport.wan.device = \"af_packet:wan\"\n\
         chain = [{{ path = [\"lan\", \"wire1\", \"proxy\", \"wire2\", \"wan\"], cores = [0] }}, \
         {{ path = [\"wan\", \"wire3\", \"proxy\", \"wire4\", \"lan\"], cores = [0] }}]\n\
         [nf.proxy]\nkind = \"substitute\"\nports = [8080]\nrules = {rules}\ntcp.timeout = 60000\n{wires}"
    );
    let file = scratch.write("chain.toml", chains);
    let mut command = proxy_host.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
    bondstone.started();
    a.configure("enda", &["10.9.0.1/24", "fd09::1/64"]);
    b.configure("endb", &["10.9.0.2/24", "fd09::2/64"]);

    let content = content();
    let expected = replaced(&content, by.as_bytes());
    assert_ne!(expected.len(), content.len());
    // a server on either side, and a port that is not processed
    let at_b = Web::serve(&scratch, &b, "at-b", content.clone());
    let at_a = Web::serve(&scratch, &a, "at-a", content.clone());
    for (web, client, host) in [(&at_b, &a, "10.9.0.2"), (&at_b, &a, "[fd09::2]"), (&at_a, &b, "10.9.0.1")] {
        let got = web.fetched(client, &format!("{host}:8080"), &["--http1.0", "--max-time", "400"]);
        let same = got.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        assert!(got == expected, "{host}: {} bytes of {}, equal up to byte {same}", got.len(), expected.len());
    }
    assert!(at_b.fetched(&a, "10.9.0.2:8081", &["--max-time", "400"]) == content, "a port that is not processed");

    let summary = bondstone.interrupt().summary(130);
    let proxy = summary.nf("proxy");
    let counted = |name: &str| proxy.number(&format!("/counters/{name}"));
    let words = (content.len().abs_diff(expected.len()) / PATTERN.len().abs_diff(by.len())) as u64;
    // plus the header
    assert_eq!(counted("replaced"), 3 * (words + 1), "{}", summary.0);
    assert_eq!((counted("new"), counted("refused"), counted("given_up")), (3, 0, 0), "{}", summary.0);
    let lost: u64 = (1..=4).map(|n| summary.nf(&format!("wire{n}")).number("/drops/lost")).sum();
    assert!(lost > 0 && counted("out_of_order") > 0 && counted("resent") > 0, "{}", summary.0);
    let (rx, tx) = (summary.number("/totals/received"), summary.number("/totals/sent"));
    eprintln!(
        "{name}: {rx} received, {tx} sent, {lost} lost by impairment, {} out of order, {} retransmitted",
        counted("out_of_order"),
        counted("resent")
    );
}

const BAD: &str = "loss = 0.003\nduplicate = 0.005\nreorder = 0.02\nreorder_delay = 3\ndelay = 1";

#[test]
fn longer_replacement() {
    downloads_through("longer", BAD, "a stone that ties the faces of a sandbox together");
}

#[test]
fn shorter_replacement() {
    downloads_through("shorter", BAD, "it");
}
