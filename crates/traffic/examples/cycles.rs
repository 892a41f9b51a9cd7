//! Cost of writing and reading a frame in core cycles: `cargo run --release -p bondstone-traffic --example cycles`
//!
//! Frames lie in 32 buffers that stay in the first-level cache, so this is without the cost of memory. A sample is
//! 4,096 frames; printed are the 5th percentile and the median of 400 samples.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use std::hint::black_box;
use std::time::Instant;

use traffic::flows::Transport;
use traffic::latency::Scale;
use traffic::{
    Capture, CaptureSettings, Delays, FlowSettings, Flows, FrameSize, Mix, Pace, Pacer, Probe, Receiver, Sequence,
    Template,
};

/// On a cache line, as the data of an mbuf; not all at the same place of a page.
#[derive(Clone)]
#[repr(align(64))]
struct Buffer([u8; 2048 + 64]);

const FRAMES: u64 = 4096;
const SAMPLES: usize = 400;

/// Nanoseconds of a core cycle now: a chain of additions and multiplications takes 1 + 3 cycles a step on x86-64 cores
/// of the last fifteen years.
fn cycle_ns() -> f64 {
    const STEPS: u64 = 40_000;
    let mut best = f64::INFINITY;
    for _ in 0..50 {
        let mut x = black_box(1_u64);
        let start = Instant::now();
        for i in 0..STEPS {
            x = (x ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        black_box(x);
        best = best.min(start.elapsed().as_nanos() as f64 / (4 * STEPS) as f64);
    }
    best
}

fn measure(name: &str, mut run: impl FnMut(u64)) {
    let mut samples: Vec<f64> = Vec::with_capacity(SAMPLES);
    for sample in 0..SAMPLES as u64 {
        let start = Instant::now();
        run(sample * FRAMES);
        samples.push(start.elapsed().as_nanos() as f64 / FRAMES as f64);
    }
    let cycle = cycle_ns();
    samples.sort_by(f64::total_cmp);
    let (low, median) = (samples[SAMPLES / 20], samples[SAMPLES / 2]);
    println!("{name:<52} {:6.1} {:6.1} cycles  {median:6.2} ns", low / cycle, median / cycle);
}

fn settings(v4: bool, transport: Transport, count: u32) -> FlowSettings {
    FlowSettings { count, transport, ..if v4 { FlowSettings::v4() } else { FlowSettings::v6() } }
}

/// A capture's frames written and known again, one in 32 with a probe.
fn replayed(buffers: &mut [Buffer]) -> Result<(), Box<dyn std::error::Error>> {
    for bytes in [60, 590, 1514] {
        let mut file = pcap::Writer::new(Vec::new(), pcap::LinkType::ETHERNET)?;
        for n in 0..FRAMES as u16 {
            let payload = vec![1; bytes - 42];
            let frame = wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], n, 50_000).payload(&payload).to_vec();
            file.write(0, frame.len() as u32, &frame)?;
        }
        let capture = Capture::read(pcap::Reader::new(&file.finish()?[..])?, CaptureSettings::default())?;
        let mut turns = capture.turns(0);
        measure(&format!("turn and fill of a capture, {} bytes", bytes + 4), |first| {
            for i in 0..FRAMES {
                let turn = turns.next_turn();
                let probe = turn.probe.then_some(Probe { stream: 1, sequence: first + i, stamp: first });
                black_box(capture.fill(turn.frame, probe, black_box(&mut buffers[i as usize % 32].0)));
            }
        });
        let mut receiver = Receiver::new(usize::MAX, 0, u64::MAX, 2_700_000_000);
        measure(&format!("receive without a probe, {} bytes", bytes + 4), |_| {
            for i in 0..FRAMES {
                black_box(receiver.take(capture.frame(i as usize % 32), i));
            }
        });
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("core cycle {:.3} ns; per frame: 5th percentile, median", cycle_ns());
    let mut buffers = vec![Buffer([0; 2048 + 64]); 32];
    let stacks = [
        ("UDP over IPv4, 64 bytes", true, Transport::Udp, 64),
        ("UDP over IPv6, 84 bytes", false, Transport::Udp, 84),
        ("TCP over IPv4, 76 bytes", true, Transport::Tcp, 76),
        ("TCP over IPv6, 96 bytes", false, Transport::Tcp, 96),
        ("UDP over IPv4, 1518 bytes", true, Transport::Udp, 1518),
    ];
    for (name, v4, transport, bytes) in stacks {
        let flows = Flows::new(settings(v4, transport, 256))?;
        let mix = Mix::fixed(FrameSize::new(bytes)?);
        for probed in [false, true] {
            let smallest = if probed { bytes } else { bytes.max(78) };
            let mix = if v4 { mix.clone() } else { Mix::fixed(FrameSize::new(smallest)?) };
            let template = Template::new(&flows, &mix, probed)?;
            let label = format!("fill  {name}{}", if probed { ", probe" } else { "" });
            measure(&label, |first| {
                for i in 0..FRAMES {
                    let probe = Probe { stream: 1, sequence: first + i, stamp: first };
                    let buffer = &mut buffers[i as usize % 32].0;
                    black_box(template.fill(0, i as u32 % 256, probe, black_box(buffer)));
                }
            });
            if bytes == 1518 {
                measure(&format!("{label}, head only"), |first| {
                    for i in 0..FRAMES {
                        let probe = Probe { stream: 1, sequence: first + i, stamp: first };
                        let buffer = &mut buffers[i as usize % 32].0;
                        black_box(template.fill_head(0, i as u32 % 256, probe, black_box(buffer)));
                    }
                });
            }
        }
    }

    let flows = Flows::new(settings(true, Transport::Udp, 1000))?;
    let mix = Mix::fixed(FrameSize::MIN);
    let template = Template::new(&flows, &mix, true)?;
    let (mut cycle, mut picker) = (mix.cycle(), flows.picker(0, 1));
    measure("mix, picker (in turn) and fill", |first| {
        for i in 0..FRAMES {
            let probe = Probe { stream: 1, sequence: first + i, stamp: first };
            let (size, flow) = (cycle.next_index(), picker.next_flow());
            black_box(template.fill(size, flow, probe, black_box(&mut buffers[i as usize % 32].0)));
        }
    });

    let mut sequence = Sequence::new(0, u64::MAX);
    measure("sequence, all in order", |first| {
        for i in 0..FRAMES {
            black_box(sequence.arrive(black_box(first + i)));
        }
    });
    let mut sequence = Sequence::new(0, u64::MAX);
    measure("sequence, each pair swapped", |first| {
        for i in 0..FRAMES {
            black_box(sequence.arrive(black_box((first + i) ^ 1)));
        }
    });
    let mut random = traffic::random::Random::new(1);
    let mut delays = Delays::new();
    let scale = Scale::new(2_700_000_000);
    let noise: Vec<u64> = (0..FRAMES).map(|_| 20_000 + random.below(10_000)).collect();
    measure("histogram, ticks to ns and record", |_| {
        for ticks in &noise {
            delays.record(scale.ns(*ticks));
        }
    });

    for (label, checked) in [("receive, 64 bytes in order", false), ("receive with payload check", true)] {
        let mut receiver = Receiver::new(template.probe_at(), 0, u64::MAX, 2_700_000_000);
        if checked {
            receiver.check_payload();
        }
        let mut frames = vec![[0_u8; 64]; FRAMES as usize];
        let mut samples: Vec<f64> = Vec::new();
        for sample in 0..SAMPLES as u64 {
            for (i, frame) in frames.iter_mut().enumerate() {
                let sequence = sample * FRAMES + i as u64;
                template.fill(0, i as u32 % 1000, Probe { stream: 0, sequence, stamp: sequence }, frame);
            }
            let start = Instant::now();
            for (frame, ticks) in frames.iter().zip(&noise) {
                black_box(receiver.take(&frame[..60], sample * FRAMES + ticks));
            }
            samples.push(start.elapsed().as_nanos() as f64 / FRAMES as f64);
        }
        assert_eq!(receiver.totals(SAMPLES as u64 * FRAMES).lost, 0);
        let cycle = cycle_ns();
        samples.sort_by(f64::total_cmp);
        let (low, median) = (samples[SAMPLES / 20], samples[SAMPLES / 2]);
        println!("{label:<52} {:6.1} {:6.1} cycles  {median:6.2} ns (frames in L2)", low / cycle, median / cycle);
    }

    replayed(&mut buffers)?;

    let mut pacer = Pacer::new(Pace::new(14_880_952.38, 3600.0, 1_000_000_000), 0)?;
    measure("pacer, a burst of 8 sent, per packet", |first| {
        for burst in 0..FRAMES / 8 {
            let now = ((first + burst * 8) as f64 / 14_880_952.38 * 1e9) as u64 + 300;
            let due = pacer.due(black_box(now));
            pacer.sent(due, now);
        }
    });
    let mut idle = Pacer::new(Pace::new(1.0, 3600.0, 1_000_000_000), 0)?;
    idle.due(0);
    idle.sent(1, 0);
    measure("pacer, a poll with nothing due", |first| {
        for i in 0..FRAMES {
            black_box(idle.due(black_box((first + i) % 1000)));
        }
    });
    Ok(())
}
