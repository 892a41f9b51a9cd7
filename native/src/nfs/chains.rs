//! Chains of one, two, four and eight equal functions: fused into one node, composed of as many nodes, and compiled:
//! composed, and run as one segment.

use crate::fixture::{self, CLoop};
use crate::pair::{Pair, Row};
use diagnostics::Diagnostic;
use graph::{BuildContext, Layer, Nf, Node, Operator, Raw, Segment, View, Whole, frame};
use serde::Serialize;
use wire::Ethernet;

/// Lengths of chains.
const LENGTHS: [u32; 4] = [1, 2, 4, 8];

/// Cost of one more function in a chain in cycles per packet.
#[derive(Debug, Serialize)]
pub(crate) struct Slope {
    nf: &'static str,
    source: &'static str,
    /// Statistic of the samples: p05 or median.
    figure: &'static str,
    bondstone_fused: f64,
    bondstone_composed: f64,
    bondstone_compiled: f64,
    native_fused: f64,
    native_composed: f64,
}

/// Functions, and the number of times that a packet can pass each of them.
const CHAINS: [(&str, usize); 2] = [("filter", usize::MAX), ("ttl", 250)];

/// How a chain is built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One node; in C one loop.
    Fused,
    /// A node for each function; in C a call for each.
    Composed,
    /// As composed, and run as a segment; in C one loop.
    Compiled,
}

fn name(nf: &str, times: u32, form: Form) -> String {
    match (nf, times, form) {
        // has a row of its own
        ("ttl", 1, _) => nf.to_owned(),
        (_, 1, _) => format!("{nf} x1"),
        (.., Form::Fused) => format!("{nf} x{times} fused"),
        (.., Form::Composed) => format!("{nf} x{times} composed"),
        (.., Form::Compiled) => format!("{nf} x{times} compiled"),
    }
}

/// Returns frames, each of which at most one of the eight filters drops.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let frame = |n: usize| {
        let mut frame = fixture::packet_to([10, 1, 2, n as u8]);
        if n < 14 {
            frame[n] = 0xff;
        }
        frame.truncate(if n == 14 { 13 } else { 60 });
        frame
    };
    (0..packet::BURST).map(frame).collect()
}

/// Returns the chains without a row.
pub(crate) fn pairs() -> Vec<Pair> {
    let mut all = vec![];
    for (nf, passes) in CHAINS {
        for times in LENGTHS {
            let pair = |form, nodes, native| Pair {
                stages: Some(times),
                passes: passes / times as usize,
                ..Pair::new(&name(nf, times, form), nodes, native)
            };
            if name(nf, times, Form::Fused) != nf {
                all.push(pair(Form::Fused, Box::new(move || vec![fused(nf, times)]), native(nf, times)));
            }
            if times > 1 {
                let nodes = move || (0..times).map(|k| single(nf, k)).collect();
                all.push(pair(Form::Composed, Box::new(nodes), native(nf, 0)));
                let compiled = pair(Form::Compiled, Box::new(nodes), native(nf, times));
                all.push(Pair { segments: vec![segment(nf, times)], ..compiled });
            }
        }
    }
    all
}

/// Returns the function in C: fused, or if `times` is 0 composed of the number of calls in its state.
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

type EthernetFrame = Layer<Ethernet, Raw>;

/// Appends filter number `K` to a chain.
fn filter<const K: usize>(up: impl Operator<Output = EthernetFrame>) -> impl Operator<Output = EthernetFrame> {
    // a closure would contain the type of `up` in its own and double its length with each call
    up.filter("marked", unmarked::<K>)
}

#[inline(always)]
fn unmarked<const K: usize>(ethernet: &View<'_, EthernetFrame>) -> bool {
    let header = ethernet.header();
    (if K < 6 { header.dst().0[K % 6] } else { header.src().0[K % 6] }) != 0xff
}

fn filters2(up: impl Operator<Output = EthernetFrame>) -> impl Operator<Output = EthernetFrame> {
    filter::<1>(filter::<0>(up))
}

fn filters4(up: impl Operator<Output = EthernetFrame>) -> impl Operator<Output = EthernetFrame> {
    filter::<3>(filter::<2>(filters2(up)))
}

fn filters8(up: impl Operator<Output = EthernetFrame>) -> impl Operator<Output = EthernetFrame> {
    filter::<7>(filter::<6>(filter::<5>(filter::<4>(filters4(up)))))
}

/// Returns `times` functions as one chain of operators.
fn fused(nf: &str, times: u32) -> Box<dyn Node> {
    use nf::decrement_ttl;
    let chain = frame().parse::<Ethernet>();
    match (nf, times) {
        ("filter", 1) => single(nf, 0),
        ("filter", 2) => Box::new(filters2(chain).compose()),
        ("filter", 4) => Box::new(filters4(chain).compose()),
        ("filter", 8) => Box::new(filters8(chain).compose()),
        ("ttl", 2) => Box::new(decrement_ttl(decrement_ttl(chain)).compose()),
        ("ttl", 4) => Box::new(decrement_ttl(decrement_ttl(decrement_ttl(decrement_ttl(chain)))).compose()),
        ("ttl", 8) => Box::new(
            decrement_ttl(decrement_ttl(decrement_ttl(decrement_ttl(decrement_ttl(decrement_ttl(decrement_ttl(
                decrement_ttl(chain),
            )))))))
            .compose(),
        ),
        _ => unreachable!("a chain of LENGTHS"),
    }
}

/// Builds filter number `K` as a node.
fn build_filter<const K: usize>(_: &(), _: &BuildContext) -> Result<impl Node + use<K>, Diagnostic> {
    Ok(filter::<K>(frame().parse::<Ethernet>()).compose())
}

/// Returns function number `k` of a chain as a node.
fn single(nf: &str, k: u32) -> Box<dyn Node> {
    fn boxed(node: Result<impl Node, Diagnostic>) -> Box<dyn Node> {
        Box::new(node.expect("an NF"))
    }
    let cx = BuildContext::default();
    match (nf, k) {
        ("ttl", _) => boxed(nf::Ttl::build(&Default::default(), &cx)),
        (_, 0) => boxed(build_filter::<0>(&(), &cx)),
        (_, 1) => boxed(build_filter::<1>(&(), &cx)),
        (_, 2) => boxed(build_filter::<2>(&(), &cx)),
        (_, 3) => boxed(build_filter::<3>(&(), &cx)),
        (_, 4) => boxed(build_filter::<4>(&(), &cx)),
        (_, 5) => boxed(build_filter::<5>(&(), &cx)),
        (_, 6) => boxed(build_filter::<6>(&(), &cx)),
        _ => boxed(build_filter::<7>(&(), &cx)),
    }
}

/// Returns the nodes of [`single`] as a segment.
fn segment(nf: &str, times: u32) -> Segment {
    macro_rules! segment {
        ($($build:expr),*) => { Segment::builder()$(.node($build, Whole))*.build() };
    }
    let ttl = nf::Ttl::build;
    match (nf, times) {
        ("ttl", 2) => segment!(ttl, ttl),
        ("ttl", 4) => segment!(ttl, ttl, ttl, ttl),
        ("ttl", 8) => segment!(ttl, ttl, ttl, ttl, ttl, ttl, ttl, ttl),
        ("filter", 2) => segment!(build_filter::<0>, build_filter::<1>),
        ("filter", 4) => segment!(build_filter::<0>, build_filter::<1>, build_filter::<2>, build_filter::<3>),
        ("filter", 8) => segment!(
            build_filter::<0>,
            build_filter::<1>,
            build_filter::<2>,
            build_filter::<3>,
            build_filter::<4>,
            build_filter::<5>,
            build_filter::<6>,
            build_filter::<7>
        ),
        _ => unreachable!("a chain of LENGTHS"),
    }
}

/// Returns the slope of the least-squares line through points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (top, bottom) =
        points.iter().fold((0.0, 0.0), |(t, b), p| (t + (p.0 - x) * (p.1 - y), b + (p.0 - x) * (p.0 - x)));
    top / bottom
}

/// Returns the slopes of the chains of which all lengths were measured.
pub(crate) fn slopes(rows: &[Row]) -> Vec<Slope> {
    let mut all = vec![];
    for (nf, _) in CHAINS {
        for source in ["ring", "memory"] {
            for (figure, of) in [("p05", 0), ("median", 1)] {
                let slope_of = |form: Form, ours: bool| {
                    let at = |times: u32| {
                        let row = rows.iter().find(|r| r.is(&name(nf, times, form), source))?;
                        let cost = if ours { row.bondstone } else { row.native };
                        Some((f64::from(times), [cost.p05, cost.median][of]))
                    };
                    LENGTHS.into_iter().map(at).collect::<Option<Vec<_>>>().map(|points| slope(&points))
                };
                let entry = || {
                    Some(Slope {
                        nf,
                        source,
                        figure,
                        bondstone_fused: slope_of(Form::Fused, true)?,
                        bondstone_composed: slope_of(Form::Composed, true)?,
                        bondstone_compiled: slope_of(Form::Compiled, true)?,
                        native_fused: slope_of(Form::Fused, false)?,
                        native_composed: slope_of(Form::Composed, false)?,
                    })
                };
                all.extend(entry());
            }
        }
    }
    all
}

/// Prints the slopes.
pub(crate) fn print(slopes: &[Slope]) {
    if slopes.is_empty() {
        return;
    }
    println!("\none more function in a chain of 1, 2, 4 and 8, cycles per packet (least squares)");
    println!("{:<22} {:>6} {:>26} {:>19} {:>17}", "", "", "bondstone", "over fused", "C");
    println!(
        "{:<22} {:>6} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>8}",
        "", "", "fused", "composed", "compiled", "composed", "compiled", "fused", "composed"
    );
    for s in slopes {
        println!(
            "{:<22} {:>6} {:>8.2} {:>8.2} {:>8.2} {:>10.2} {:>8.2} {:>8.2} {:>8.2}",
            format!("{}, {}", s.nf, s.source),
            s.figure,
            s.bondstone_fused,
            s.bondstone_composed,
            s.bondstone_compiled,
            s.bondstone_composed - s.bondstone_fused,
            s.bondstone_compiled - s.bondstone_fused,
            s.native_fused,
            s.native_composed
        );
    }
}

#[cfg(test)]
mod tests {
    use super::slope;

    #[test]
    fn computes_the_slope_of_a_line() {
        assert!((slope(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0), (8.0, 19.0)]) - 2.0).abs() < 1e-9);
        assert!((slope(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]) - 0.5).abs() < 1e-9);
    }
}
