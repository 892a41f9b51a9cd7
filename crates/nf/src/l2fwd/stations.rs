//! Forwarding by a table of stations, up to billions (CuckooSwitch, CoNEXT'13).

use super::Settings;
use crate::exact::{self, Progress};
use crate::{lines, ports};
use core::array;
use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, Node};
use packet::{BURST, Batch};
use std::sync::Arc;
use tables::exact::{ENTRIES_MOST, ExactTable, Key48, Reader};
use wire::MacAddr;

const DROPS: [&str; 3] = ["unknown_station", "same_port", "malformed_ethernet"];

/// Places in [`DROPS`].
const UNKNOWN: u8 = 0;
const SAME_PORT: u8 = 1;
const MALFORMED: u8 = 2;

pub(super) struct Stations {
    table: Reader<Key48>,
    count: Arc<Counter>,
}

/// One copy; `named` is the setting that names stations, if one does.
///
/// # Errors
/// What is wrong with ports or stations.
pub(super) fn build(s: &Settings, named: Option<&'static str>, cx: &BuildContext) -> Result<Stations, Diagnostic> {
    ports::check(&s.ports, "frames are sent to one of two to thirty ports")?;
    if s.src.is_some() || s.dst.is_some() {
        let key = if s.src.is_some() { "src" } else { "dst" };
        let d = Diagnostic::new("is not written where frames go by a table").key(key).value(&cx.name);
        return Err(d.remedy("leave it away, or put another l2fwd behind"));
    }
    if named.is_none() {
        let d = Diagnostic::new("names no stations: all frames would be dropped").key("ports").value(&cx.name);
        return Err(d.remedy("write station = [{ mac = \"02:00:00:00:00:01\", to = [\"lan\"] }], or stations = \"FILE\""));
    }
    let table = cx.common(|| fill(s, cx))?;
    let count = Arc::<Counter>::default();
    // the counts of copies are added up
    if cx.copy.0 == 0 {
        count.set(table.len());
    }
    Ok(Stations { table: table.reader(), count })
}

/// The table that all copies share.
fn fill(s: &Settings, cx: &BuildContext) -> Result<ExactTable<Key48>, Diagnostic> {
    let port = |name: &str| s.ports.iter().position(|port| port == name).map(|n| n as u16);
    let mut listed = vec![];
    if let Some(file) = &s.stations {
        let remedy = "write MAC PORT, such as 02:00:00:00:00:01 lan";
        lines::read(&cx.path(file), "stations", remedy, |line| {
            let mut words = line.split_ascii_whitespace();
            let Some(mac) = words.next() else { return Ok(()) };
            let address: MacAddr = mac.parse().map_err(|_| format!("{mac:?} is no MAC address"))?;
            let (Some(to), None) = (words.next(), words.next()) else { return Err(format!("{mac} wants one port")) };
            listed.push((Key48::mac(address.0), port(to).ok_or_else(|| format!("{to:?} is none of its ports"))?));
            Ok(())
        })?;
    }
    let mut all = listed.len() as u64;
    let mut rows = vec![];
    for station in &s.station {
        let wrong = |problem: String| Diagnostic::new(problem).key("station").value(station.mac.0);
        let first = Key48::mac(station.mac.0.0).bits();
        if station.count == 0 || station.count > ENTRIES_MOST || first + (station.count - 1) >= 1 << 48 {
            let d = wrong(format!("{} addresses from it on are none, too many, or beyond the last", station.count));
            return Err(d.remedy(format!("write a count from 1 to {ENTRIES_MOST}")));
        }
        let to = station.to.iter().map(|to| port(to).ok_or_else(|| wrong(format!("{to:?} is none of its ports"))));
        let to = to.collect::<Result<Vec<_>, _>>().map_err(|d| d.remedy("name one that ports names"))?;
        if to.is_empty() {
            return Err(wrong("is at no port".to_owned()).remedy("write to = [\"lan\"], with one of its ports"));
        }
        if !cx.checks {
            all += station.count;
            rows.push((first, station.count, to));
        }
    }
    let full = |e: tables::exact::Error| Diagnostic::new(e.to_string()).key("station").value(all);
    let mut table = ExactTable::new(&exact::settings::<Key48>(all.max(1))).map_err(full)?;
    exact::note_small_pages("l2fwd", &[table.backing()]);
    let mut progress = Progress::new("l2fwd", all);
    let done = table.extend(listed, |done| progress.tell(done)).map_err(full)?;
    progress.next(done);
    for (first, count, to) in rows {
        let entries = (0..count).zip(to.iter().cycle()).map(|(n, port)| (Key48::new(first + n), *port));
        let done = table.extend(entries, |done| progress.tell(done)).map_err(full)?;
        progress.next(done);
    }
    Ok(table)
}

impl Node for Stations {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![("stations".to_owned(), self.count.clone())]
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let n = batch.len();
        let (mut keys, mut at, mut malformed) = ([Key48::default(); BURST], 0, 0u32);
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
        let mut found = [None; BURST];
        self.table.get_batch(&keys[..n], &mut found[..n]);
        // outputs are numbered as inputs are: the path's, then the ports
        let to: [Result<u8, u8>; BURST] = array::from_fn(|i| match found[i] {
            _ if malformed >> i & 1 != 0 => Err(MALFORMED),
            None => Err(UNKNOWN),
            Some(port) if port as u8 + 1 == input => Err(SAME_PORT),
            Some(port) => Ok(port as u8 + 1),
        });
        // most go where the first goes that goes anywhere
        let most = to[..n].iter().find_map(|to| to.ok());
        let others = (0..n).fold(0u32, |set, i| set | u32::from(most.is_none() || to[i].ok() != most) << i);
        if others != 0 {
            batch.extract_mask(others, |i, packet| match to[i & (BURST - 1)] {
                Ok(port) => cx.emit(port, packet),
                Err(reason) => cx.drop(reason, packet),
            });
        }
        cx.leave_by(most.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use crate::L2fwd;
    use testkit::Bench;

    const THREE: &str = "ports = [\"a\", \"b\", \"c\"]\n\
        station = [{ mac = \"02:00:00:00:00:01\", to = [\"a\"] }, { mac = \"02:00:00:01:00:00\", count = 3, to = [\"b\", \"c\"] }]";

    fn frame(dst: [u8; 6]) -> Vec<u8> {
        [&dst[..], &[2, 0, 0, 0, 9, 9, 8, 0], &[0; 46]].concat()
    }

    #[test]
    fn frames_go_to_the_port_of_their_destination() {
        let mut nf = Bench::of::<L2fwd>(THREE);
        let row = |n| frame([2, 0, 0, 1, 0, n]);
        let out = nf.feed_by(0, &[row(0), frame([2, 0, 0, 0, 0, 1]), row(1), row(2), row(3), vec![0; 13]]);
        let ports: Vec<usize> = out.iter().map(Vec::len).collect();
        assert_eq!(ports, [0, 1, 2, 1]);
        assert_eq!(out[2], [row(0), row(2)]);
        assert_eq!(nf.drops(), [("unknown_station", 1), ("malformed_ethernet", 1)]);
        // by the input of b
        let out = nf.feed_by(2, &[row(0), row(1)]);
        assert_eq!((out[2].len(), out[3].len()), (0, 1));
        assert_eq!(nf.dropped("same_port"), 1);
        assert_eq!(nf.counter("stations"), 4);
    }

    #[test]
    fn many_stations_are_all_found() {
        let mut nf = Bench::of::<L2fwd>(
            "ports = [\"a\", \"b\"]\nstation = [{ mac = \"00:00:00:00:00:00\", count = 200000, to = [\"a\", \"b\"] }]",
        );
        for from in (0..200_000u32).step_by(9973) {
            let frames: Vec<_> = (from..(from + 20).min(200_000))
                .map(|n| {
                    let [_, b, c, d] = n.to_be_bytes();
                    frame([0, 0, 0, b, c, d])
                })
                .collect();
            let out = nf.feed_by(0, &frames);
            assert_eq!(out[1].len() + out[2].len(), frames.len());
            assert!(out[1].iter().all(|frame| frame[5] % 2 == 0) && out[2].iter().all(|frame| frame[5] % 2 == 1));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (settings, about) in [
            ("station = [{ mac = \"02:00:00:00:00:01\", to = [\"a\"] }]", "two to thirty"),
            ("ports = [\"a\", \"b\"]", "no stations"),
            ("ports = [\"a\", \"b\"]\nstation = [{ mac = \"02:00:00:00:00:01\", to = [\"x\"] }]", "\"x\""),
            ("ports = [\"a\", \"b\"]\nstation = [{ mac = \"02:00:00:00:00:01\", to = [] }]", "at no port"),
            ("ports = [\"a\", \"b\"]\nstation = [{ mac = \"ff:ff:ff:ff:ff:ff\", count = 2, to = [\"a\"] }]", "beyond"),
            ("ports = [\"a\", \"b\"]\nsrc = \"02:00:00:00:00:01\"\nstations = \"x\"", "by a table"),
            ("ports = [\"a\", \"b\"]\nstations = \"/nonexistent\"", "/nonexistent"),
        ] {
            let e = Bench::try_of::<L2fwd>(settings).unwrap_err().to_string();
            assert!(e.contains(about), "{settings}: {e}");
        }
    }
}
