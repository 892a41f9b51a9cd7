//! Cycles per packet, beside an NF that does nothing: `cargo bench`.
#![forbid(unsafe_code)]

use testkit::wire::build;
use testkit::{Bench, Cycles};

use my_nf::MyNf;

fn main() {
    // 64-byte packets (60 and the frame check sequence) of 1024 sources, in turn
    let frame = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let frame = build::udp4([10, 0, high, low], [10, 1, 0, 1], 1000, 53);
        frame.pad_to(60).to_vec()
    };
    let frames: Vec<_> = (0..1024).map(frame).collect();
    // all of them pass: what is dropped is not what costs
    let nf = Bench::of::<MyNf>("packets = 4000000000");
    let name = "my-nf";
    println!("{}", Cycles::on(&frames).nf(name, nf).measure());
}
