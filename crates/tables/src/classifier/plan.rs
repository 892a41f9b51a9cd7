//! Distribution of rules over trees.
//!
//! A rule that leaves an address open meets every cell that a cut of that address makes. Rules are therefore sorted by
//! which addresses they leave open, each sort gets a tree, and trees are merged for as long as that makes look-ups cheaper.

use super::block::LANES;
use super::build::{BLOCK_COST, Builder, LEVEL_COST};
use super::region::{Region, meta};
use super::tree::Tree;

/// Addresses with fewer bits than this are open.
const OPEN: u32 = 8;
/// Packets that try a tree out.
const SAMPLES: usize = 2048;
/// Cycles for one more tree, beside its levels and blocks.
const TREE_COST: f32 = 3.0;
/// Bytes of the caches that a tree should fit in.
const CACHES: [f32; 2] = [32_768.0, 1_500_000.0];

/// Rules that need no cuts: two blocks, which AVX-512 compares at once.
const FLAT: usize = 2 * LANES;
/// Rules that need no cuts for a short time.
const SOON_FLAT: usize = 8 * LANES;
/// Most words of a key.
const WORDS: usize = 10;

/// As [`plan`], but at once: for few rules, or for a short time. None for no rules.
pub(super) fn soon<const A: usize>(regions: &[Region]) -> Vec<Tree<A>> {
    match regions.len() {
        0 => vec![],
        n if n <= SOON_FLAT => vec![Builder::flat(regions)],
        _ => vec![Builder::soon(regions)],
    }
}

struct Group<const A: usize> {
    regions: Vec<Region>,
    tree: Tree<A>,
    cost: f32,
}

/// Trees for `regions`, which are ordered by rank: one at least, four at most.
pub(super) fn plan<const A: usize>(regions: Vec<Region>) -> Vec<Tree<A>> {
    if regions.len() <= FLAT {
        return vec![Builder::flat(&regions)];
    }
    let samples = samples::<A>(&regions);
    let total = regions.len();
    let group = |regions: Vec<Region>| {
        let tree = Builder::build(&regions, total);
        Group { cost: cost(&tree, &samples), tree, regions }
    };
    let mut sorts: [Vec<Region>; 4] = Default::default();
    for region in regions {
        let open = |word: usize| usize::from((region.spans[word].hi - region.spans[word].lo) >> (32 - OPEN) != 0);
        sorts[open(0) << 1 | open(A)].push(region);
    }
    // groups by the set of sorts in them: bit s for sort s
    let mut made: [Option<Group<A>>; 16] = Default::default();
    let mut sets = Vec::new();
    for (sort, regions) in sorts.into_iter().enumerate().filter(|(_, regions)| !regions.is_empty()) {
        made[1 << sort] = Some(group(regions));
        sets.push(1 << sort);
    }
    loop {
        let mut best: Option<(f32, usize, usize)> = None;
        for (i, &a) in sets.iter().enumerate() {
            for &b in &sets[i + 1..] {
                let (Some(one), Some(other)) = (&made[a], &made[b]) else { continue };
                let apart = one.cost + other.cost;
                if made[a | b].is_none() {
                    let mut regions = one.regions.clone();
                    regions.extend_from_slice(&other.regions);
                    regions.sort_by_key(|r| r.rank);
                    made[a | b] = Some(group(regions));
                }
                let saved = made[a | b].as_ref().map_or(0.0, |both| apart - both.cost);
                if saved > best.map_or(0.0, |b| b.0) {
                    best = Some((saved, a, b));
                }
            }
        }
        let Some((_, a, b)) = best else { break };
        sets.retain(|&set| set != a && set != b);
        sets.push(a | b);
    }
    let mut trees: Vec<Tree<A>> = sets.iter().filter_map(|&set| made[set].take()).map(|group| group.tree).collect();
    // a match in an early tree may spare the later ones
    trees.sort_by_key(|tree| tree.best);
    trees
}

/// Cycles per packet, roughly.
fn cost<const A: usize>(tree: &Tree<A>, samples: &[[u32; WORDS]]) -> f32 {
    let mut sum = 0.0;
    for key in samples {
        let (leaf, depth) = tree.leaf(key);
        sum += LEVEL_COST * depth as f32 + BLOCK_COST * if leaf.is_empty() { 0.0 } else { leaf.blocks() as f32 };
    }
    let beyond = |cache: f32| (tree.bytes() as f32 / cache).max(1.0).log2();
    TREE_COST + sum / samples.len() as f32 + beyond(CACHES[0]) + 4.0 * beyond(CACHES[1])
}

/// Returns the keys to judge trees by: half random, half matching a random region.
fn samples<const A: usize>(regions: &[Region]) -> Vec<[u32; WORDS]> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64; // xorshift64*, the same at every build
    let mut random = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    };
    let all = Region::all(A, 0);
    (0..SAMPLES)
        .map(|i| {
            let aimed = i % 2 == 0 && !regions.is_empty();
            let region = if aimed { &regions[random() as usize % regions.len()] } else { &all };
            let mut within = |field: usize| {
                let span = region.spans[field];
                span.lo + ((u64::from(random()) * (u64::from(span.hi - span.lo) + 1)) >> 32) as u32
            };
            let mut key = [0; WORDS];
            for (word, place) in key[..2 * A].iter_mut().enumerate() {
                *place = within(word);
            }
            key[2 * A] = within(2 * A) << 16 | within(2 * A + 1);
            let protocol = region.spans[2 * A + 2];
            let protocol = if protocol.lo == protocol.hi { protocol.lo } else { [6, 17][i / 2 % 2] };
            key[2 * A + 1] = protocol << meta::PROTOCOL_AT;
            key
        })
        .collect()
}
