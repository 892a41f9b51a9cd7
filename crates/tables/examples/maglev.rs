//! How long a ring takes to build, and how much of it moves when a backend goes: milliseconds, the least and the median of
//! several builds.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use std::time::Instant;
use tables::maglev::{Member, Ring};

fn main() -> Result<(), tables::maglev::Error> {
    println!(
        "{:>8} {:>9} {:>9} {:>9} {:>12} {:>12}",
        "slots", "backends", "least ms", "median ms", "unlike fair", "others moved"
    );
    for size in [65_537, 655_373] {
        for n in [10, 100, 1000] {
            let names: Vec<String> = (0..n).map(|i| format!("backend-{i}")).collect();
            let members = |gone: usize| -> Vec<Member<'_>> {
                let weight = |i| u32::from(i != gone);
                names.iter().enumerate().map(|(i, name)| Member { name, weight: weight(i) }).collect()
            };
            let (all, mut times) = (members(n), vec![]);
            let ring = Ring::build(size, &all)?;
            for _ in 0..51 {
                let begin = Instant::now();
                std::hint::black_box(Ring::build(size, std::hint::black_box(&all))?);
                times.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            times.sort_by(f64::total_cmp);
            let fair = size as f64 / n as f64;
            let off = ring.counts().iter().map(|c| (*c as f64 / fair - 1.0).abs()).fold(0.0, f64::max);
            // the mean over some backends that go
            let gone: Vec<f64> = (0..n.min(20))
                .map(|gone| Ring::build(size, &members(gone)).map(|after| ring.disruption(&after).share()))
                .collect::<Result<_, _>>()?;
            let moved = gone.iter().sum::<f64>() / gone.len() as f64;
            println!(
                "{size:>8} {n:>9} {:>9.2} {:>9.2} {:>11.2}% {:>11.2}%",
                times[0],
                times[25],
                off * 100.0,
                moved * 100.0
            );
        }
    }
    Ok(())
}
