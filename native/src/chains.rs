//! Chains of the same function, once, twice, four and eight times: fused into one node, and composed of as many.

use crate::fixture::{self, CLoop};
use crate::rows::{Pair, Row, node};
use graph::{Node, Operator, Over, Raw, View, frame};
use serde::Serialize;
use wire::Ethernet;

/// Functions in a chain.
const LENGTHS: [u32; 4] = [1, 2, 4, 8];

/// What one more function costs in a chain, in cycles per packet.
#[derive(Debug, Serialize)]
pub(crate) struct Slope {
    nf: &'static str,
    source: &'static str,
    /// Of samples, what this is the figure of.
    figure: &'static str,
    bondstone_fused: f64,
    bondstone_composed: f64,
    native_fused: f64,
    native_composed: f64,
}

/// Chains' names, and times that a packet may pass each of their functions.
const CHAINS: [(&str, usize); 2] = [("filter", usize::MAX), ("ttl", 250)];

fn name(nf: &str, times: u32, fused: bool) -> String {
    match (nf, times, fused) {
        // has a row already
        ("ttl", 1, _) => nf.to_owned(),
        (_, 1, _) => format!("{nf} x1"),
        (.., true) => format!("{nf} x{times} fused"),
        (.., false) => format!("{nf} x{times} composed"),
    }
}

/// A frame that any of eight filters may drop, and that passes all others.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let frame = |n: usize| {
        let mut frame = fixture::packet_to([10, 1, 2, n as u8]);
        if n < 14 {
            frame[n] = 0xff;
        }
        frame.truncate(if n == 14 { 13 } else { 60 });
        frame
    };
    (0..32).map(frame).collect()
}

/// The chains that have no row yet: each fused one beside one loop in C, each composed one beside a chain of calls in C.
pub(crate) fn pairs() -> Vec<Pair> {
    let mut all = vec![];
    for (nf, passes) in CHAINS {
        for times in LENGTHS {
            let pair = |fused, nodes, native| Pair {
                stages: Some(times),
                passes: passes / times as usize,
                ..Pair::new(&name(nf, times, fused), nodes, native)
            };
            if name(nf, times, true) != nf {
                all.push(pair(true, Box::new(move || vec![fused(nf, times)]), native(nf, times)));
            }
            if times > 1 {
                let nodes = move || (0..times).map(|k| one(nf, k)).collect();
                all.push(pair(false, Box::new(nodes), native(nf, 0)));
            }
        }
    }
    all
}

/// The loop in C: fused, or for 0 composed of as many calls as its state says.
fn native(nf: &str, times: u32) -> CLoop {
    match (nf, times) {
        ("filter", 0) => fixture::native_filter_composed,
        ("filter", 1) => fixture::native_filter1,
        ("filter", 2) => fixture::native_filter2,
        ("filter", 4) => fixture::native_filter4,
        ("filter", 8) => fixture::native_filter8,
        ("ttl", 0) => fixture::native_ttl_composed,
        ("ttl", 2) => fixture::native_ttl2,
        ("ttl", 4) => fixture::native_ttl4,
        ("ttl", 8) => fixture::native_ttl8,
        _ => unreachable!("a chain of LENGTHS"),
    }
}

type Seen = Over<Ethernet, Raw>;

/// A chain that goes on with filter number `K`.
fn filter<const K: usize>(up: impl Operator<Output = Seen>) -> impl Operator<Output = Seen> {
    // a closure would carry the type of `up` in its own, and double it with each call
    up.filter("marked", unmarked::<K>)
}

#[inline(always)]
fn unmarked<const K: usize>(ethernet: &View<'_, Seen>) -> bool {
    let header = ethernet.header();
    (if K < 6 { header.dst().0[K % 6] } else { header.src().0[K % 6] }) != 0xff
}

fn filters2(up: impl Operator<Output = Seen>) -> impl Operator<Output = Seen> {
    filter::<1>(filter::<0>(up))
}

fn filters4(up: impl Operator<Output = Seen>) -> impl Operator<Output = Seen> {
    filter::<3>(filter::<2>(filters2(up)))
}

fn filters8(up: impl Operator<Output = Seen>) -> impl Operator<Output = Seen> {
    filter::<7>(filter::<6>(filter::<5>(filter::<4>(filters4(up)))))
}

/// So many as one chain of operators.
fn fused(nf: &str, times: u32) -> Box<dyn Node> {
    use nf::age;
    let chain = frame().parse::<Ethernet>();
    match (nf, times) {
        ("filter", 1) => one(nf, 0),
        ("filter", 2) => Box::new(filters2(chain).compose()),
        ("filter", 4) => Box::new(filters4(chain).compose()),
        ("filter", 8) => Box::new(filters8(chain).compose()),
        ("ttl", 2) => Box::new(age(age(chain)).compose()),
        ("ttl", 4) => Box::new(age(age(age(age(chain)))).compose()),
        ("ttl", 8) => Box::new(age(age(age(age(age(age(age(age(chain)))))))).compose()),
        _ => unreachable!("a chain of LENGTHS"),
    }
}

/// Number `k` of a chain's functions, alone.
fn one(nf: &str, k: u32) -> Box<dyn Node> {
    let chain = frame().parse::<Ethernet>();
    match (nf, k) {
        ("ttl", _) => node("ttl", ""),
        (_, 0) => Box::new(filter::<0>(chain).compose()),
        (_, 1) => Box::new(filter::<1>(chain).compose()),
        (_, 2) => Box::new(filter::<2>(chain).compose()),
        (_, 3) => Box::new(filter::<3>(chain).compose()),
        (_, 4) => Box::new(filter::<4>(chain).compose()),
        (_, 5) => Box::new(filter::<5>(chain).compose()),
        (_, 6) => Box::new(filter::<6>(chain).compose()),
        _ => Box::new(filter::<7>(chain).compose()),
    }
}

/// Rise of a line through points, by least squares.
fn rise(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (top, bottom) =
        points.iter().fold((0.0, 0.0), |(t, b), p| (t + (p.0 - x) * (p.1 - y), b + (p.0 - x) * (p.0 - x)));
    top / bottom
}

/// What one more function costs, where all lengths were measured.
pub(crate) fn slopes(rows: &[Row]) -> Vec<Slope> {
    let mut all = vec![];
    for (nf, _) in CHAINS {
        for source in ["ring", "memory"] {
            for (figure, of) in [("p05", 0), ("median", 1)] {
                let rise_of = |fused: bool, ours: bool| {
                    let at = |times: u32| {
                        let row = rows.iter().find(|r| r.is(&name(nf, times, fused), source))?;
                        let cost = if ours { row.bondstone } else { row.native };
                        Some((f64::from(times), [cost.p05, cost.median][of]))
                    };
                    LENGTHS.into_iter().map(at).collect::<Option<Vec<_>>>().map(|points| rise(&points))
                };
                let slope = || {
                    Some(Slope {
                        nf,
                        source,
                        figure,
                        bondstone_fused: rise_of(true, true)?,
                        bondstone_composed: rise_of(false, true)?,
                        native_fused: rise_of(true, false)?,
                        native_composed: rise_of(false, false)?,
                    })
                };
                all.extend(slope());
            }
        }
    }
    all
}

/// Prints what one more function costs.
pub(crate) fn print(slopes: &[Slope]) {
    if slopes.is_empty() {
        return;
    }
    println!("\none more function in a chain of 1, 2, 4 and 8, cycles per packet (least squares)");
    println!("{:<22} {:>6} {:>17} {:>28} {:>17}", "", "", "bondstone", "", "C");
    println!(
        "{:<22} {:>6} {:>8} {:>8} {:>28} {:>8} {:>8}",
        "", "", "fused", "composed", "composed over fused", "fused", "composed"
    );
    for s in slopes {
        println!(
            "{:<22} {:>6} {:>8.2} {:>8.2} {:>28.2} {:>8.2} {:>8.2}",
            format!("{}, {}", s.nf, s.source),
            s.figure,
            s.bondstone_fused,
            s.bondstone_composed,
            s.bondstone_composed - s.bondstone_fused,
            s.native_fused,
            s.native_composed
        );
    }
}

#[cfg(test)]
mod tests {
    use super::rise;

    #[test]
    fn a_line_rises_as_it_does() {
        assert!((rise(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0), (8.0, 19.0)]) - 2.0).abs() < 1e-9);
        assert!((rise(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]) - 0.5).abs() < 1e-9);
    }
}
