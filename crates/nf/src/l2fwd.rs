//! Forwarding by rewriting MAC addresses, or by a table of them.

mod stations;

use crate::Mac;
use core::hint::cold_path;
use diagnostics::Diagnostic;
use graph::{BuildContext, Either, Nf, Node, Operator, Over, Raw, View, frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wire::Ethernet;

/// `l2fwd`: swaps source and destination MAC address, or writes the ones that are set; with ports, sends each frame to the
/// port of its destination by an exact-match table.
pub struct L2fwd;

/// Settings of [`L2fwd`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Source address to write. Without src and dst the two addresses are swapped.
    src: Option<Mac>,
    /// Destination address to write.
    dst: Option<Mac>,
    /// Ports of the file to send to, two to thirty: frames stay as they are, and go to the port of their destination.
    ports: Vec<String>,
    /// Who is at which port: { mac, to = ["lan"] }, or { mac, count, to = ["lan", "wan"] } for that many addresses from this
    /// one on, ports in turn. Others are dropped.
    station: Vec<Station>,
    /// A file of further stations, plain or gzipped: a line is MAC PORT.
    stations: Option<PathBuf>,
}

/// Who is at a port.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Station {
    /// Its address, or the first of several.
    mac: Mac,
    /// How many addresses there are in a row.
    #[serde(default = "one")]
    count: u64,
    /// Their ports, in turn.
    to: Vec<String>,
}

fn one() -> u64 {
    1
}

impl Nf for L2fwd {
    type Settings = Settings;
    const KIND: &'static str = "l2fwd";
    const ABOUT: &'static str = "Swaps the MAC addresses of every frame, or writes the ones that are set; with ports, sends each frame to the port of its \
         destination.";
    const EXAMPLE: &'static str = "src = \"02:00:00:00:00:01\"\ndst = \"02:00:00:00:00:02\"";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.ports.clone()
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let table = settings.station.first().map(|_| "station").or(settings.stations.as_ref().map(|_| "stations"));
        if !settings.ports.is_empty() || table.is_some() {
            return Ok(Either::A(stations::build(settings, table, cx)?));
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

/// Exchanges the addresses, twelve bytes at once where the frame has the sixteen that this takes.
#[inline(always)]
fn swap(ethernet: &mut View<'_, Over<Ethernet, Raw>>) {
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
    use testkit::Bench;

    const FRAME: [u8; 16] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];

    #[test]
    fn swaps() {
        let mut nf = Bench::of::<L2fwd>("");
        let out = nf.one(&FRAME).unwrap();
        assert_eq!(out[..6], FRAME[6..12]);
        assert_eq!(out[6..12], FRAME[..6]);
        assert_eq!(out[12..], FRAME[12..]);
    }

    #[test]
    fn swaps_in_the_shortest_frame() {
        let mut nf = Bench::of::<L2fwd>("");
        let out = nf.one(&FRAME[..14]).unwrap();
        assert_eq!(out, [&FRAME[6..12], &FRAME[..6], &FRAME[12..14]].concat());
    }

    #[test]
    fn writes_only_what_is_set() {
        let mut nf = Bench::of::<L2fwd>("dst = \"0a:0b:0c:0d:0e:0f\"");
        let out = nf.one(&FRAME).unwrap();
        assert_eq!(out[..6], [10, 11, 12, 13, 14, 15]);
        assert_eq!(out[6..], FRAME[6..]);
    }

    #[test]
    fn a_runt_is_dropped_with_its_reason() {
        let mut nf = Bench::of::<L2fwd>("");
        assert_eq!(nf.one(&FRAME[..13]), Err("malformed_ethernet"));
    }

    #[test]
    fn a_wrong_address_is_refused() {
        let e = Bench::try_of::<L2fwd>("src = \"02:00:00:00:00\"").unwrap_err().to_string();
        assert!(e.contains("02:00:00:00:00") && e.contains("MAC"), "{e}");
    }
}
