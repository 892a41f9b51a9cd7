//! Forwarding by a table of MAC addresses, up to billions (CuckooSwitch, CoNEXT'13).

use super::Settings;
use crate::l2::output_split::OutputSplit;
use crate::large_table::{self, Progress};
use crate::settings::{line_file, port_list};
use core::array;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, Counters, Named, Node};
use packet::{BURST, Batch};
use std::sync::Arc;
use tables::cuckoo::{CuckooTable, ENTRIES_MOST, Key48, Reader};
use wire::MacAddr;

graph::named_enum! {
    /// Drop reasons.
    enum DropReason {
        /// The destination is not in the table.
        UnknownMac = "unknown_mac",
        /// The destination is at the port that the frame was received from.
        SamePort = "same_port",
        /// The frame is shorter than an Ethernet header.
        MalformedEthernet = "malformed_ethernet",
    }
}

graph::named_enum! {
    /// Counters.
    enum CounterId {
        /// MAC addresses in the table.
        MacEntries = "mac_entries",
    }
}

pub(super) struct MacTableNode {
    table: Reader<Key48>,
    counters: Counters<CounterId>,
}

/// Maximum number of ports.
const MAX_PORTS: usize = 128;

/// Builds a copy of the node; `has_table` is true if the settings have MAC table entries.
///
/// # Errors
/// Invalid ports or MAC table entries.
pub(super) fn build(s: &Settings, has_table: bool, cx: &BuildContext) -> Result<MacTableNode, Diagnostic> {
    port_list::check(&s.ports, 1..=MAX_PORTS, "a MAC table needs 1 to 128 ports")?;
    if s.src.is_some() || s.dst.is_some() {
        let key = if s.src.is_some() { "src" } else { "dst" };
        let d = Diagnostic::new("cannot be combined with a MAC table").key(key).value(&cx.name);
        return Err(d.remedy("remove it, or add another l2fwd to the path"));
    }
    if !has_table {
        let d = Diagnostic::new("no MAC table entries: all frames would be dropped").key("ports").value(&cx.name);
        let entry = "mac_table = [{ mac = \"02:00:00:00:00:01\", to = [\"lan\"] }]";
        return Err(d.remedy(format!("write {entry}, or mac_table_file = \"FILE\"")));
    }
    let table = cx.shared(|| fill(s, cx))?;
    let counters = Counters::<CounterId>::default();
    // counters of copies are added up
    if cx.copy.0 == 0 {
        counters[CounterId::MacEntries].set(table.len());
    }
    Ok(MacTableNode { table: table.reader(), counters })
}

/// Fills the table that all copies share.
fn fill(s: &Settings, cx: &BuildContext) -> Result<CuckooTable<Key48>, Diagnostic> {
    let port = |name: &str| s.ports.iter().position(|port| port == name).map(|n| n as u16);
    let mut listed = vec![];
    if let Some(file) = &s.mac_table_file {
        let remedy = "write MAC PORT, such as 02:00:00:00:00:01 lan";
        line_file::read(cx, file, "mac_table_file", remedy, |line| {
            let mut words = line.split_ascii_whitespace();
            let Some(mac) = words.next() else { return Ok(()) };
            let address: MacAddr = mac.parse().map_err(|_| format!("{mac:?} is not a MAC address"))?;
            let (Some(to), None) = (words.next(), words.next()) else { return Err(format!("{mac} needs one port")) };
            listed.push((Key48::mac(address.0), port(to).ok_or_else(|| format!("{to:?} is not one of its ports"))?));
            Ok(())
        })?;
    }
    let mut total = listed.len() as u64;
    let mut ranges = vec![];
    for range in &s.mac_table {
        let invalid = |problem: String| Diagnostic::new(problem).key("mac_table").value(range.mac.0);
        let first = Key48::mac(range.mac.0.0).bits();
        if range.count == 0 || range.count > ENTRIES_MOST || first + (range.count - 1) >= 1 << 48 {
            let d = invalid(format!("count {} is out of range or beyond the last address", range.count));
            return Err(d.remedy(format!("write a count from 1 to {ENTRIES_MOST}")));
        }
        let to = range.to.iter().map(|to| port(to).ok_or_else(|| invalid(format!("{to:?} is not one of its ports"))));
        let to = to.collect::<Result<Vec<_>, _>>().map_err(|d| d.remedy("write names that `ports` lists"))?;
        if to.is_empty() {
            return Err(invalid("no port".to_owned()).remedy("write to = [\"lan\"], with one of its ports"));
        }
        if !cx.check_only {
            total += range.count;
            ranges.push((first, range.count, to));
        }
    }
    let full = |e: tables::cuckoo::Error| Diagnostic::new(e.to_string()).key("mac_table").value(total);
    let mut table = CuckooTable::new(&large_table::settings::<Key48>(total.max(1))).map_err(full)?;
    large_table::warn_small_pages("l2fwd", &[table.backing()]);
    let mut progress = Progress::new("l2fwd", total);
    let done = table.extend(listed, |done| progress.report(done)).map_err(full)?;
    progress.finish_part(done);
    for (first, count, to) in ranges {
        let entries = (0..count).zip(to.iter().cycle()).map(|(n, port)| (Key48::new(first + n), *port));
        let done = table.extend(entries, |done| progress.report(done)).map_err(full)?;
        progress.finish_part(done);
    }
    Ok(table)
}

impl Node for MacTableNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::MacEntries.name()]
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let n = batch.len();
        let (mut keys, mut at, mut malformed) = ([Key48::default(); BURST], 0, 0u64);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match packet.data().first_chunk::<14>() {
                    Some(&[a, b, c, d, e, f, ..]) => keys[at & (BURST - 1)] = Key48::mac([a, b, c, d, e, f]),
                    None => malformed |= 1 << at,
                }
                at += 1;
            },
        );
        let mut ports = [None; BURST];
        self.table.get_batch(&keys[..n], &mut ports[..n]);
        // outputs are numbered like inputs: first that of the path, then those of the ports
        let outputs: [Result<u8, DropReason>; BURST] = array::from_fn(|i| match ports[i] {
            _ if malformed >> i & 1 != 0 => Err(DropReason::MalformedEthernet),
            None => Err(DropReason::UnknownMac),
            Some(port) if port as u8 + 1 == input => Err(DropReason::SamePort),
            Some(port) => Ok(port as u8 + 1),
        });
        let mut split = OutputSplit::new(0);
        outputs[..n].iter().enumerate().for_each(|(i, output)| split.add(1 << i, output.ok()));
        if split.others() != 0 {
            batch.extract_mask(split.others(), |i, packet| match outputs[i & (BURST - 1)] {
                Ok(output) => cx.emit(output, packet),
                Err(reason) => cx.drop(reason, packet),
            });
        }
        cx.set_output(split.main());
    }
}

#[cfg(test)]
mod tests {
    use crate::L2fwd;
    use testkit::Harness;

    const THREE: &str = "ports = [\"a\", \"b\", \"c\"]\n\
        mac_table = [{ mac = \"02:00:00:00:00:01\", to = [\"a\"] }, { mac = \"02:00:00:01:00:00\", count = 3, to = [\"b\", \"c\"] }]";

    fn frame(dst: [u8; 6]) -> Vec<u8> {
        [&dst[..], &[2, 0, 0, 0, 9, 9, 8, 0], &[0; 46]].concat()
    }

    #[test]
    fn forwards_frames_to_the_port_of_their_destination() {
        let mut nf = Harness::new::<L2fwd>(THREE);
        let to = |n| frame([2, 0, 0, 1, 0, n]);
        let out = nf.feed_input(0, &[to(0), frame([2, 0, 0, 0, 0, 1]), to(1), to(2), to(3), vec![0; 13]]);
        let ports: Vec<usize> = out.iter().map(Vec::len).collect();
        assert_eq!(ports, [0, 1, 2, 1]);
        assert_eq!(out[2], [to(0), to(2)]);
        assert_eq!(nf.drops(), [("unknown_mac", 1), ("malformed_ethernet", 1)]);
        // received from port b
        let out = nf.feed_input(2, &[to(0), to(1)]);
        assert_eq!((out[2].len(), out[3].len()), (0, 1));
        assert_eq!(nf.dropped("same_port"), 1);
        assert_eq!(nf.counter("mac_entries"), 4);
    }

    #[test]
    fn finds_each_of_many_addresses() {
        let mut nf = Harness::new::<L2fwd>(
            "ports = [\"a\", \"b\"]\nmac_table = [{ mac = \"00:00:00:00:00:00\", count = 200000, to = [\"a\", \"b\"] }]",
        );
        for from in (0..200_000u32).step_by(9973) {
            let frames: Vec<_> = (from..(from + 20).min(200_000))
                .map(|n| {
                    let [_, b, c, d] = n.to_be_bytes();
                    frame([0, 0, 0, b, c, d])
                })
                .collect();
            let out = nf.feed_input(0, &frames);
            assert_eq!(out[1].len() + out[2].len(), frames.len());
            assert!(out[1].iter().all(|frame| frame[5] % 2 == 0) && out[2].iter().all(|frame| frame[5] % 2 == 1));
        }
    }

    #[test]
    fn rejects_invalid_settings() {
        for (settings, about) in [
            ("mac_table = [{ mac = \"02:00:00:00:00:01\", to = [\"a\"] }]", "1 to 128"),
            ("ports = [\"a\", \"b\"]", "no MAC table entries"),
            ("ports = [\"a\", \"b\"]\nmac_table = [{ mac = \"02:00:00:00:00:01\", to = [\"x\"] }]", "\"x\""),
            ("ports = [\"a\", \"b\"]\nmac_table = [{ mac = \"02:00:00:00:00:01\", to = [] }]", "no port"),
            (
                "ports = [\"a\", \"b\"]\nmac_table = [{ mac = \"ff:ff:ff:ff:ff:ff\", count = 2, to = [\"a\"] }]",
                "beyond",
            ),
            (
                "ports = [\"a\", \"b\"]\nsrc = \"02:00:00:00:00:01\"\nmac_table_file = \"x\"",
                "combined with a MAC table",
            ),
            ("ports = [\"a\", \"b\"]\nmac_table_file = \"/nonexistent\"", "/nonexistent"),
        ] {
            let e = Harness::try_new::<L2fwd>(settings).unwrap_err().to_string();
            assert!(e.contains(about), "{settings}: {e}");
        }
    }
}
