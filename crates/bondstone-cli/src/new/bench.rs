//! Cycles per packet, compared with an empty NF: `cargo bench`.
#![forbid(unsafe_code)]

use testkit::wire::build;
use testkit::{CycleMeter, Harness};

use my_nf::MyNf;

fn main() {
    // 64-byte packets (60 bytes and the frame check sequence) of 1024 sources
    let frame = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let frame = build::udp4([10, 0, high, low], [10, 1, 0, 1], 1000, 53);
        frame.pad_to(60).to_vec()
    };
    let frames: Vec<_> = (0..1024).map(frame).collect();
    // no packet is dropped, so that forwarding is measured
    let nf = Harness::new::<MyNf>("packets = 4000000000");
    let name = "my-nf";
    println!("{}", CycleMeter::new(&frames).add(name, nf).measure());
}
