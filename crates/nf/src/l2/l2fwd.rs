//! Forwarding by rewriting MAC addresses, or by a table of configured ones.

mod mac_table;

use crate::Mac;
use core::hint::cold_path;
use diagnostics::Diagnostic;
use graph::{BuildContext, Either, Layer, Nf, Node, Operator, Raw, View, frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wire::Ethernet;

/// `l2fwd`: swaps source and destination MAC address, or sets them; with ports, forwards each frame by an exact-match
/// table of destinations.
pub struct L2fwd;

/// Settings of [`L2fwd`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Source address to set. Without `src` and `dst` the two addresses are swapped.
    src: Option<Mac>,
    /// Destination address to set.
    dst: Option<Mac>,
    /// Names of 1 to 128 ports of the chain file. Frames are forwarded unchanged by `mac_table` and `mac_table_file`;
    /// frames to other addresses are dropped.
    ports: Vec<String>,
    /// MAC table entries: { mac, to = ["lan"] }, or { mac, count, to = ["lan", "wan"] } for `count` consecutive
    /// addresses from `mac` on, assigned to the ports in turn.
    mac_table: Vec<MacRange>,
    /// File of further MAC table entries, plain or gzipped, with lines of the form MAC PORT.
    mac_table_file: Option<PathBuf>,
}

/// Consecutive MAC addresses and their ports.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MacRange {
    /// First address.
    mac: Mac,
    /// Number of addresses.
    #[serde(default = "one")]
    count: u64,
    /// Ports, assigned to the addresses in turn.
    to: Vec<String>,
}

fn one() -> u64 {
    1
}

impl Nf for L2fwd {
    type Settings = Settings;
    const KIND: &'static str = "l2fwd";
    const ABOUT: &'static str = "Swaps the MAC addresses of every frame, or sets the configured ones; with ports, \
         forwards each frame by a table of destination MAC addresses.";
    const EXAMPLE: &'static str = "src = \"02:00:00:00:00:01\"\ndst = \"02:00:00:00:00:02\"";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.ports.clone()
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let has_table = !settings.mac_table.is_empty() || settings.mac_table_file.is_some();
        if !settings.ports.is_empty() || has_table {
            return Ok(Either::A(mac_table::build(settings, has_table, cx)?));
        }
        let (src, dst) = (settings.src.map(|m| m.0), settings.dst.map(|m| m.0));
        let ethernet = frame().parse::<Ethernet>();
        if src.is_none() && dst.is_none() {
            return Ok(Either::B(Either::A(ethernet.transform(swap).compose())));
        }
        let rewrite = ethernet.transform(move |e| {
            if let Some(src) = src {
                e.header_mut().set_src(src);
            }
            if let Some(dst) = dst {
                e.header_mut().set_dst(dst);
            }
        });
        Ok(Either::B(Either::B(rewrite.compose())))
    }
}

/// Swaps the addresses, with one 16-byte permutation if the frame has that many bytes.
#[inline(always)]
fn swap(ethernet: &mut View<'_, Layer<Ethernet, Raw>>) {
    match ethernet.bytes_mut().first_chunk_mut() {
        Some(front) => packet::permute16(front, &[6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15]),
        None => {
            cold_path();
            ethernet.header_mut().swap_addrs();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::L2fwd;
    use testkit::Harness;

    const FRAME: [u8; 16] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];

    #[test]
    fn swaps_addresses() {
        let mut nf = Harness::new::<L2fwd>("");
        let out = nf.feed_one(&FRAME).unwrap();
        assert_eq!(out[..6], FRAME[6..12]);
        assert_eq!(out[6..12], FRAME[..6]);
        assert_eq!(out[12..], FRAME[12..]);
    }

    #[test]
    fn swaps_addresses_of_the_shortest_frame() {
        let mut nf = Harness::new::<L2fwd>("");
        let out = nf.feed_one(&FRAME[..14]).unwrap();
        assert_eq!(out, [&FRAME[6..12], &FRAME[..6], &FRAME[12..14]].concat());
    }

    #[test]
    fn sets_only_the_configured_address() {
        let mut nf = Harness::new::<L2fwd>("dst = \"0a:0b:0c:0d:0e:0f\"");
        let out = nf.feed_one(&FRAME).unwrap();
        assert_eq!(out[..6], [10, 11, 12, 13, 14, 15]);
        assert_eq!(out[6..], FRAME[6..]);
    }

    #[test]
    fn drops_short_frames() {
        let mut nf = Harness::new::<L2fwd>("");
        assert_eq!(nf.feed_one(&FRAME[..13]), Err("malformed_ethernet"));
    }

    #[test]
    fn rejects_an_invalid_address() {
        let e = Harness::try_new::<L2fwd>("src = \"02:00:00:00:00\"").unwrap_err().to_string();
        assert!(e.contains("02:00:00:00:00") && e.contains("MAC"), "{e}");
    }
}
