//! Order of flows.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::random::{Random, scramble};

/// Longest train, packets.
pub const MAX_TRAIN: u32 = 1 << 20;

/// In which order flows take turns.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Order {
    /// One after the other: every flow equally often, caches of flows at their worst.
    #[default]
    RoundRobin,
    /// One after the other, each with this many packets in a row, 1 to [`MAX_TRAIN`]: trains, as of a sender that is given
    /// much at once. Round-robin is trains of 1.
    Trains {
        /// Packets in a row.
        packets: u32,
    },
    /// Any, all equally likely.
    Uniform,
    /// Any, flow number `k` (from 0) with a likelihood in proportion to `1 / (k + 1)^exponent` (Zipf).
    Zipf {
        /// Above 0.0, at most 10.0; around 1.0 in measured traffic.
        exponent: f64,
    },
}

/// The order is none of those known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no order of flows; give `round-robin`, `trains:8` with 1 to {MAX_TRAIN} packets, `uniform`, or `zipf:1.1` with an \
     exponent above 0, at most 10"
)]
pub struct NotOrder(String);

impl Order {
    /// Returns this order if its parameters are valid.
    pub(crate) fn checked(self) -> Result<Self, NotOrder> {
        match self {
            Self::Zipf { exponent } if !(exponent > 0.0 && exponent <= 10.0) => Err(NotOrder(self.to_string())),
            Self::Trains { packets } if !(1..=MAX_TRAIN).contains(&packets) => Err(NotOrder(self.to_string())),
            _ => Ok(self),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundRobin => f.write_str("round-robin"),
            Self::Trains { packets } => write!(f, "trains:{packets}"),
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
        }
    }
}

impl FromStr for Order {
    type Err = NotOrder;

    fn from_str(text: &str) -> Result<Self, NotOrder> {
        let unknown = || NotOrder(text.chars().take(80).collect());
        match text.trim() {
            // Elsewhere called "increment": numbers count up, destination addresses first.
            "round-robin" | "incrementing" => Ok(Self::RoundRobin),
            "uniform" | "random" => Ok(Self::Uniform),
            "zipf" => Ok(Self::Zipf { exponent: 1.0 }),
            other => match other.split_once(':') {
                Some(("zipf", exponent)) => {
                    exponent.parse().map(|exponent| Self::Zipf { exponent }).map_err(|_| unknown())
                }
                Some(("trains", n)) => n.parse().map(|packets| Self::Trains { packets }).map_err(|_| unknown()),
                _ => Err(unknown()),
            }?
            .checked(),
        }
    }
}

/// A likelihood for every flow, drawn from in constant time (Walker's alias method, Vose 1991).
#[derive(Debug)]
pub(crate) struct Alias {
    /// A column's own share of 2³², and whom the rest belongs to.
    columns: Box<[(u32, u32)]>,
}

impl Alias {
    pub(crate) fn zipf(count: u32, exponent: f64) -> Self {
        let weights: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let mean = weights.iter().sum::<f64>() / f64::from(count);
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut columns: Vec<(u32, u32)> = (0..count).map(|own| (u32::MAX, own)).collect();
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) = (0..shares.len()).partition(|i| shares[*i] < 1.0);
        while let (Some(low), Some(&high)) = (poor.pop(), rich.last()) {
            columns[low] = ((shares[low] * f64::from(u32::MAX)) as u32, high as u32);
            shares[high] -= 1.0 - shares[low];
            if shares[high] < 1.0 {
                rich.pop();
                poor.push(high);
            }
        }
        Self { columns: columns.into() }
    }

    #[inline(always)]
    fn draw(&self, random: &mut Random) -> u32 {
        // The column comes from the high half of the number, the share from the low one.
        let number = random.next_u64();
        let column = ((number >> 32) * self.columns.len() as u64) >> 32;
        let (share, other) = self.columns[column as usize];
        if number as u32 <= share { column as u32 } else { other }
    }
}

/// Chooses flows, one stream of choices for each generator core; see [`Flows::picker`](crate::Flows::picker).
#[derive(Clone, Debug)]
pub struct Picker {
    count: u32,
    way: Strategy,
}

#[derive(Clone, Debug)]
enum Strategy {
    Turns { next: u32, first: u32, step: u32 },
    Trains { flow: u32, first: u32, step: u32, left: u32, packets: u32 },
    Uniform(Random),
    Weighted(Random, Arc<Alias>),
}

impl Picker {
    pub(crate) fn new(count: u32, order: Order, alias: Option<Arc<Alias>>, seed: u64, lane: u32, lanes: u32) -> Self {
        let lanes = lanes.clamp(1, count);
        let lane = lane % lanes;
        let random = Random::new(scramble(seed) ^ scramble(u64::from(lane) + 1));
        let way = match (order, alias) {
            (Order::Zipf { .. }, Some(alias)) => Strategy::Weighted(random, alias),
            (Order::Uniform, _) => Strategy::Uniform(random),
            (Order::Trains { packets }, _) => {
                Strategy::Trains { flow: lane, first: lane, step: lanes, left: packets, packets }
            }
            _ => Strategy::Turns { next: lane, first: lane, step: lanes },
        };
        Self { count, way }
    }

    /// Returns the next flow, below the number of flows.
    #[inline(always)]
    pub fn next_flow(&mut self) -> u32 {
        // The commonest by itself, lest all go through a table of jumps.
        if let Strategy::Turns { next, first, step } = &mut self.way {
            let flow = *next;
            *next = if flow + *step < self.count { flow + *step } else { *first };
            return flow;
        }
        self.next_other()
    }

    /// Returns the flow of the last call of [`next_flow`](Self::next_flow) once more with the next one, unless flows are
    /// drawn at random.
    #[cold]
    pub fn step_back(&mut self) {
        match &mut self.way {
            Strategy::Turns { next, first, step } => {
                *next = if next == first { last(self.count, *first, *step) } else { *next - *step };
            }
            Strategy::Trains { left, .. } => *left += 1,
            Strategy::Uniform(_) | Strategy::Weighted(..) => {}
        }
    }

    /// Returns the flows of the next calls of [`next_flow`](Self::next_flow), unless they are drawn at random.
    pub fn turns(&self) -> Option<Turns> {
        let (flow, first, step, packets, begun) = match self.way {
            Strategy::Turns { next, first, step } => (next, first, step, 1, 0),
            Strategy::Trains { flow, first, step, left, packets } => (flow, first, step, packets, packets - left),
            Strategy::Uniform(_) | Strategy::Weighted(..) => return None,
        };
        let (turn, turns) = ((flow - first) / step, (self.count - first).div_ceil(step));
        let next = u64::from(turn) * u64::from(packets) + u64::from(begun);
        Some(Turns { first, step, turns: turns.into(), packets: packets.into(), next })
    }

    #[inline]
    fn next_other(&mut self) -> u32 {
        match &mut self.way {
            Strategy::Turns { next, .. } => *next,
            Strategy::Trains { flow, first, step, left, packets } => {
                if *left == 0 {
                    *flow = if *flow + *step < self.count { *flow + *step } else { *first };
                    *left = *packets;
                }
                *left -= 1;
                *flow
            }
            Strategy::Uniform(random) => random.below(self.count.into()) as u32,
            Strategy::Weighted(random, alias) => alias.draw(random),
        }
    }
}

/// Returns the last flow of a lane.
fn last(count: u32, first: u32, step: u32) -> u32 {
    first + (count - 1 - first) / step * step
}

/// Flows that take turns, of a [`Picker`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turns {
    first: u32,
    step: u32,
    /// Flows that take turns.
    turns: u64,
    /// Packets in a row.
    packets: u64,
    /// Number of the next packet in a round.
    next: u64,
}

impl Turns {
    /// Returns the flow of the packet of number `n`, from 0.
    #[inline]
    pub fn flow(&self, n: u64) -> u32 {
        self.first + ((self.next + n) / self.packets % self.turns) as u32 * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn turns_are_known_in_advance(
            count in 1_u32..50, packets in 1_u32..5, lane in 0_u32..4, lanes in 1_u32..4, skipped in 0_usize..200,
        ) {
            for order in [Order::RoundRobin, Order::Trains { packets }] {
                let mut picker = picker(count, order, lane, lanes);
                (0..skipped).for_each(|_| { picker.next_flow(); });
                let turns = picker.turns().unwrap();
                for n in 0..200 {
                    let flow = picker.next_flow();
                    prop_assert_eq!(turns.flow(n), flow, "{:?}", order);
                    if n % 7 == 0 {
                        picker.step_back();
                        prop_assert_eq!(picker.next_flow(), flow);
                    }
                }
            }
            prop_assert_eq!(picker(count, Order::Uniform, lane, lanes).turns(), None);
        }
    }

    fn counts(mut picker: Picker, flows: usize, draws: usize) -> Vec<u32> {
        let mut counts = vec![0; flows];
        for _ in 0..draws {
            counts[picker.next_flow() as usize] += 1;
        }
        counts
    }

    fn picker(count: u32, order: Order, lane: u32, lanes: u32) -> Picker {
        let alias = match order {
            Order::Zipf { exponent } => Some(Arc::new(Alias::zipf(count, exponent))),
            _ => None,
        };
        Picker::new(count, order, alias, 7, lane, lanes)
    }

    #[test]
    fn turns_are_even_and_lanes_share_nothing() {
        assert_eq!(counts(picker(7, Order::RoundRobin, 0, 1), 7, 70), [10; 7]);
        let lanes: Vec<_> = (0..3).map(|lane| counts(picker(7, Order::RoundRobin, lane, 3), 7, 21)).collect();
        assert!((0..7).all(|flow| lanes.iter().filter(|lane| lane[flow] > 0).count() == 1));
        assert_eq!(counts(picker(1, Order::RoundRobin, 5, 9), 1, 3), [3]);
    }

    #[test]
    fn trains_stay_together_and_lanes_share_nothing() {
        let mut one = picker(3, Order::Trains { packets: 4 }, 0, 1);
        let order: Vec<u32> = (0..13).map(|_| one.next_flow()).collect();
        assert_eq!(order, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0]);
        let mut two = picker(5, Order::Trains { packets: 2 }, 1, 2);
        assert_eq!([(); 5].map(|()| two.next_flow()), [1, 1, 3, 3, 1]);
        assert_eq!(("incrementing".parse(), "random".parse()), (Ok(Order::RoundRobin), Ok(Order::Uniform)));
    }

    #[test]
    fn uniform_is_uniform_and_repeats_with_its_seed() {
        let drawn = counts(picker(50, Order::Uniform, 0, 1), 50, 100_000);
        assert!(drawn.iter().all(|count| (1_750..2_250).contains(count)), "{drawn:?}");
        assert_eq!(drawn, counts(picker(50, Order::Uniform, 0, 1), 50, 100_000));
        assert_ne!(drawn, counts(picker(50, Order::Uniform, 1, 2), 50, 100_000));
    }

    #[test]
    fn zipf_has_its_proportions() {
        let (flows, draws) = (1000, 1_000_000);
        let drawn = counts(picker(flows as u32, Order::Zipf { exponent: 1.1 }, 0, 1), flows, draws);
        let sum: f64 = (1..=flows).map(|rank| (rank as f64).powf(-1.1)).sum();
        for rank in [1_usize, 2, 3, 10, 50] {
            let expected = (rank as f64).powf(-1.1) / sum * draws as f64;
            let off = (f64::from(drawn[rank - 1]) - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "rank {rank}: {} against {expected}", drawn[rank - 1]);
        }
        assert!(drawn.iter().filter(|count| **count > 0).count() > 990);
    }

    #[test]
    fn names() {
        for order in [Order::RoundRobin, Order::Trains { packets: 8 }, Order::Uniform, Order::Zipf { exponent: 0.9 }] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert_eq!("zipf".parse(), Ok(Order::Zipf { exponent: 1.0 }));
        for text in [
            "",
            "zipf:",
            "zipf:0",
            "zipf:-1",
            "zipf:nan",
            "zipf:11",
            "trains",
            "trains:0",
            "trains:1048577",
            "randomly",
        ] {
            assert!(text.parse::<Order>().is_err(), "{text}");
        }
    }
}
