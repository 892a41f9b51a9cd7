//! Streams rewritten between real kernels, on bad wires: what curl gets is what it was to get, byte for byte.

use crate::common::alone;
use crate::common::namespace::{Namespace, possible};
use crate::common::traffic::Web;
use crate::common::{Running, Scratch};

const TOOLS: [&str; 2] = ["curl", "nginx"];
const WORD: &[u8] = b"bondstone";
/// Bytes of the file.
const LEN: usize = 1 << 20;

/// Text in which the word comes every few dozen bytes, often cut short.
fn content() -> Vec<u8> {
    let (mut all, mut number) = (vec![], 1u64);
    while all.len() < LEN {
        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let (kind, len) = (number >> 60, (number >> 32) as usize % 40);
        if kind < 8 {
            all.extend_from_slice(if kind < 6 { WORD } else { &WORD[..WORD.len() - 1] });
        }
        all.extend(number.to_le_bytes().iter().cycle().take(len).map(|byte| b'a' + byte % 26));
    }
    all
}

fn replaced(mut bytes: &[u8], by: &[u8]) -> Vec<u8> {
    let mut all = vec![];
    while let Some(at) = bytes.windows(WORD.len()).position(|part| part == WORD) {
        all.extend_from_slice(&bytes[..at]);
        all.extend_from_slice(by);
        bytes = &bytes[at + WORD.len()..];
    }
    all.extend_from_slice(bytes);
    all
}

/// Two hosts, one at each end of `substitute`, with four bad wires around it; `how` is how bad.
fn downloads_through(name: &str, how: &str, by: &str) {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [a, b, between] = ["a", "b", "m"].map(|side| Namespace::new(&format!("{name}-{side}")));
    between.mute();
    for (near, far, side) in [("lan", "enda", &a), ("wan", "endb", &b)] {
        between.link(near, side, far);
        between.raise(near);
    }
    let wires: String = (1..=4).map(|n| format!("[nf.wire{n}]\nkind = \"impair\"\nseed = {n}\n{how}\n")).collect();
    // whoever gets less than was announced complains
    let rules = format!(
        "[{{ find = \"Content-Length\", replace = \"Once-There-Were\" }}, {{ find = {:?}, replace = {by:?} }}]",
        str::from_utf8(WORD).unwrap()
    );
    let chains = format!(
        "bondstone = 1\nport.lan.device = \"af_packet:lan\"\nport.wan.device = \"af_packet:wan\"\n\
         chain = [{{ path = [\"lan\", \"wire1\", \"proxy\", \"wire2\", \"wan\"], cores = [0] }}, \
         {{ path = [\"wan\", \"wire3\", \"proxy\", \"wire4\", \"lan\"], cores = [0] }}]\n\
         [nf.proxy]\nkind = \"substitute\"\nports = [8080]\nrules = {rules}\ntcp.timeout = 60000\n{wires}"
    );
    let file = scratch.write("chain.toml", chains);
    let mut command = between.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
    bondstone.started();
    a.configure("enda", &["10.9.0.1/24", "fd09::1/64"]);
    b.configure("endb", &["10.9.0.2/24", "fd09::2/64"]);

    let content = content();
    let expected = replaced(&content, by.as_bytes());
    assert_ne!(expected.len(), content.len());
    // a server behind either end, and one port that is left alone
    let at_b = Web::serve(&scratch, &b, "at-b", content.clone());
    let at_a = Web::serve(&scratch, &a, "at-a", content.clone());
    for (web, client, host) in [(&at_b, &a, "10.9.0.2"), (&at_b, &a, "[fd09::2]"), (&at_a, &b, "10.9.0.1")] {
        let got = web.fetched(client, &format!("{host}:8080"), &["--http1.0", "--max-time", "400"]);
        let same = got.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        assert!(got == expected, "{host}: {} bytes of {}, the same up to {same}", got.len(), expected.len());
    }
    assert!(at_b.fetched(&a, "10.9.0.2:8081", &["--max-time", "400"]) == content, "a port that is left alone");

    let did = bondstone.interrupt().summary(130);
    let proxy = did.nf("proxy");
    let counted = |name: &str| proxy.number(&format!("/counters/{name}"));
    let words = (content.len().abs_diff(expected.len()) / WORD.len().abs_diff(by.len())) as u64;
    // and the header
    assert_eq!(counted("replaced"), 3 * (words + 1), "{}", did.0);
    assert_eq!((counted("new"), counted("refused"), counted("given_up")), (3, 0, 0), "{}", did.0);
    let lost: u64 = (1..=4).map(|n| did.nf(&format!("wire{n}")).number("/drops/lost")).sum();
    assert!(lost > 0 && counted("out_of_order") > 0 && counted("resent") > 0, "{}", did.0);
    let (rx, tx) = (did.number("/totals/received"), did.number("/totals/sent"));
    eprintln!(
        "{name}: {rx} received, {tx} sent, {lost} lost on purpose, {} early, {} sent again",
        counted("out_of_order"),
        counted("resent")
    );
}

const BAD: &str = "loss = 0.003\nduplicate = 0.005\nlate = 0.02\nlate_by = 3\ndelay = 1";

#[test]
fn a_longer_word_arrives_whole() {
    downloads_through("longer", BAD, "a stone that ties the faces of a wall together");
}

#[test]
fn a_shorter_word_arrives_whole() {
    downloads_through("shorter", BAD, "it");
}
