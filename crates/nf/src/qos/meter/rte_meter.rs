//! Meters compared with `rte_meter` of DPDK: `rte_meter_trace.c` computes the constants.

use super::*;

/// Random numbers of the trace.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % below
    }

    fn rate(&mut self) -> u64 {
        let most = [1000, 100_000_000, 100_000_000_000][self.below(3) as usize];
        1 + self.below(most)
    }
}

/// Returns a hash of the colours and tokens of 200,000 packets.
fn trace(kind: u64) -> u64 {
    let (mut numbers, mut hash) = (Numbers(kind), 0xcbf2_9ce4_8422_2325_u64);
    for _ in 0..1000 {
        let (first, second) = (numbers.rate(), numbers.rate());
        let (b0, b1) = (1 + numbers.below(5000), 1 + numbers.below(5000));
        let meter = match kind {
            0 => Meter::SingleRate(SingleRate::new(first, b0, b1).unwrap()),
            1 => Meter::TwoRate(TwoRate::new(first, first + second, b0, b1).unwrap()),
            _ => Meter::CommittedAndExcess(CommittedAndExcess::new(first, second, b0, b1).unwrap()),
        };
        let (mut buckets, mut now) = (meter.start(0), 0);
        for _ in 0..200 {
            let most = if numbers.below(4) != 0 { 20_000 } else { 50_000_000 };
            now += numbers.below(most);
            let (bytes, before) = (numbers.below(2000), numbers.below(3));
            let colour = meter.check(&mut buckets, now, bytes, Colour::from_number(before as u8));
            let tokens = buckets.tokens[0] ^ buckets.tokens[1] << 32;
            for value in [colour as u64, tokens] {
                hash = (hash ^ value).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    hash
}

#[test]
fn colours_and_tokens_are_those_of_rte_meter() {
    assert_eq!([0, 1, 2].map(trace), [0x9791_deb6_5aef_4b27, 0x8118_4f20_7288_3b90, 0x4080_0cd2_fbfb_1ad5]);
}
