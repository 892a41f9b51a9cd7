//! Construction of a tree: cuts where they save the most cycles for their memory.

use super::block::{Block, LANES};
use super::region::{Cell, Region, Span, full, meta};
use super::tree::{AT_MOST, Entry, Tree};
use std::collections::{BinaryHeap, HashMap};

/// Cycles to compare a packet with a block, and to go down a level; measured in bursts of 32 with AVX-512.
pub(super) const BLOCK_COST: f32 = 6.0;
pub(super) const LEVEL_COST: f32 = 2.0;
/// Cost of memory: cycles per packet for as many bytes again as the rules take, and for a block at least.
const MEMORY_COST: f32 = 0.2;
const MEMORY_COST_LEAST: f32 = 0.001;
/// Widest cut, in bits.
const WIDEST: u32 = 12;

/// Time limit of building a tree.
struct Care {
    /// Widest cut, in bits.
    widest: u32,
    /// Cuts begin at, and are as wide as, multiples of so many bits.
    grain: u32,
    /// Rules of which every pair is compared, to leave out those that others hide.
    pairs: usize,
    /// Rules that a cut is judged by.
    judges: usize,
    /// Rules that are not cut any more.
    leaf: usize,
    /// Blocks of a tree for each that its rules alone would fill.
    copies: u32,
}

/// For rules that stay.
const WELL: Care = Care { widest: WIDEST, grain: 1, pairs: 64, judges: 2048, leaf: LANES, copies: 16 };
/// For rules that are needed at once, and not for long.
const SOON: Care = Care { widest: 4, grain: 4, pairs: 0, judges: 64, leaf: 8 * LANES, copies: 4 };

/// A part of the space that is not a leaf yet.
struct Node {
    /// The table entry that leads here; the root has none.
    entry: Option<usize>,
    cell: Cell,
    /// Indices of the regions that meet the cell, by rank, with the share of all traffic that hits each here.
    rules: Vec<(u32, f32)>,
    /// The share of all traffic that comes here and was not aimed at a rule.
    random: f32,
}

impl Node {
    fn traffic(&self) -> f32 {
        self.random + self.rules.iter().map(|r| r.1).sum::<f32>()
    }
}

/// A node in the heap: most rules for most traffic first.
struct Pending(f32, Node);

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A choice of `width` bits from `shift` of a field.
#[derive(Clone, Copy)]
struct Cut {
    field: usize,
    shift: u32,
    width: u32,
}

impl Cut {
    /// The children that a span meets, going round: from which, and how many. Bits of the field that are known already
    /// may leave fewer.
    fn children(self, span: Span) -> (usize, usize) {
        let (lo, hi) = ((span.lo >> self.shift) as usize, (span.hi >> self.shift) as usize);
        let all = 1 << self.width;
        if hi - lo >= all - 1 { (0, all) } else { (lo & (all - 1), hi - lo + 1) }
    }
}

fn blocks(rules: usize) -> u32 {
    rules.div_ceil(LANES) as u32
}

pub(super) struct Builder<'a, const A: usize> {
    regions: &'a [Region],
    table: Vec<Entry>,
    blocks: Vec<Block<A>>,
    leaves: HashMap<Vec<u32>, Entry>,
    /// Blocks that leaves have, or that what is pending would take if it became leaves now.
    promised: u32,
    /// Most that may be promised.
    budget: u32,
    /// Cycles per packet that a block of memory costs.
    price: f32,
    /// Cycles that going on with so many rules costs a packet.
    costs: Vec<f32>,
    care: &'static Care,
    /// For each child of a cut and one more: what rules it has more, and what hits, than the one before.
    steps: Vec<(i32, f32)>,
}

impl<'a, const A: usize> Builder<'a, A> {
    /// Builds a tree over `regions`, which are ordered by rank, of a classifier with `total` rules.
    pub(super) fn build(regions: &'a [Region], total: usize) -> Tree<A> {
        Self::new(regions, total, &WELL).cut()
    }

    /// Builds a tree over `regions`, which are ordered by rank, in little time.
    pub(super) fn soon(regions: &'a [Region]) -> Tree<A> {
        Self::new(regions, regions.len(), &SOON).cut()
    }

    fn cut(mut self) -> Tree<A> {
        let regions = self.regions;
        let share = 0.5 / regions.len().max(1) as f32;
        let rules = (0..regions.len() as u32).map(|rule| (rule, share)).collect();
        let rules = self.prune(rules, &Cell::ALL, 0);
        let mut root = Entry::EMPTY;
        let mut heap = BinaryHeap::from([Pending(1.0, Node { entry: None, cell: Cell::ALL, rules, random: 0.5 })]);
        while let Some(Pending(_, node)) = heap.pop() {
            let entry = match self.choose(&node) {
                Some(cut) => self.split(cut, &node, &mut heap),
                None => self.leaf(&node.rules),
            };
            *node.entry.map_or(&mut root, |at| &mut self.table[at]) = entry;
        }
        self.finish(root)
    }

    /// Returns a tree that is one leaf.
    pub(super) fn flat(regions: &'a [Region]) -> Tree<A> {
        let mut builder = Self::new(regions, regions.len(), &WELL);
        let rules = (0..regions.len() as u32).map(|rule| (rule, 0.0)).collect();
        let rules = builder.prune(rules, &Cell::ALL, 0);
        let root = builder.leaf(&rules);
        builder.finish(root)
    }

    fn new(regions: &'a [Region], total: usize, care: &'static Care) -> Self {
        let n = regions.len();
        // dearer than their number, cheaper than all blocks one by one: a cut is followed by others
        let cost = |rules: usize| BLOCK_COST * (rules as f32 / LANES as f32).max(1.0).powf(0.85);
        Self {
            regions,
            table: Vec::new(),
            blocks: vec![Block::EMPTY],
            leaves: HashMap::from([(Vec::new(), Entry::EMPTY)]),
            promised: 1 + blocks(n),
            budget: (care.copies * (4 + blocks(n))).min(AT_MOST as u32),
            price: (MEMORY_COST / blocks(total).max(8) as f32).max(MEMORY_COST_LEAST),
            costs: (0..=n).map(cost).collect(),
            care,
            steps: vec![(0, 0.0); (1 << WIDEST) + 1],
        }
    }

    fn finish(self, root: Entry) -> Tree<A> {
        let best = self.regions.iter().map(|r| r.rank).min().unwrap_or(u32::MAX);
        Tree::new(root, self.table, self.blocks, best)
    }

    fn leaf(&mut self, rules: &[(u32, f32)]) -> Entry {
        let (blocks, regions) = (&mut self.blocks, self.regions);
        *self.leaves.entry(rules.iter().map(|r| r.0).collect()).or_insert_with_key(|rules| {
            let at = blocks.len();
            blocks.extend(rules.chunks(LANES).map(|chunk| Block::of(chunk.iter().map(|&r| &regions[r as usize]))));
            Entry::leaf(at, blocks.len() - at)
        })
    }

    /// Returns the cut with the largest gain, if any gain exceeds its cost.
    fn choose(&mut self, node: &Node) -> Option<Cut> {
        let n = node.rules.len();
        let Care { grain, judges, leaf, .. } = *self.care;
        if n <= leaf {
            return None;
        }
        let widest = (n.ilog2() + 2).min(self.care.widest);
        let mut best: Option<(f32, Cut)> = None;
        for field in 0..2 * A + 3 {
            let known = node.cell.bits[field].mask;
            let bits = 32 - full(field, A).leading_zeros();
            for shift in (0..bits).step_by(grain as usize) {
                for width in (grain..=widest.min(bits - shift)).step_by(grain as usize) {
                    if known >> shift & ((1 << width) - 1) != 0 {
                        break;
                    }
                    let cut = Cut { field, shift, width };
                    let gain = self.gain(cut, node, n.div_ceil(judges));
                    if gain > best.map_or(0.0, |b| b.0) {
                        best = Some((gain, cut));
                    }
                }
            }
        }
        // few may have judged; whether there is room takes all
        best.map(|b| b.1).filter(|&cut| n <= judges || self.gain(cut, node, 1) > 0.0)
    }

    /// Cycles per packet of all traffic that a cut saves, less the price of its memory, judged by each `every`th rule;
    /// negative if there is no room.
    fn gain(&mut self, cut: Cut, node: &Node, every: usize) -> f32 {
        let n = node.rules.len();
        let all = 1 << cut.width;
        let steps = &mut self.steps[..=all];
        steps.fill((0, 0.0));
        let mut step = |at: usize, rules: i32, hits: f32| {
            steps[at].0 += rules;
            steps[at].1 += hits;
        };
        for &(rule, share) in node.rules.iter().step_by(every) {
            let (from, children) = cut.children(self.regions[rule as usize].spans[cut.field]);
            let (to, each) = (from + children, share / children as f32);
            step(from, 1, each);
            if to > all {
                step(all, -1, -each);
                step(0, 1, each);
                step(to - all, -1, -each);
            } else {
                step(to, -1, -each);
            }
        }
        let (mut rules, mut hits, mut after, mut taken) = (0, 0.0, 0.0, 0);
        let random = node.random / all as f32;
        for child in &steps[..all] {
            rules += child.0;
            hits += child.1;
            let rules = (rules as usize * every).min(n);
            after += (hits * every as f32 + random) * self.costs[rules];
            taken += blocks(rules);
        }
        if self.promised - blocks(n) + taken > self.budget || self.table.len() + all > AT_MOST {
            return -1.0;
        }
        let memory = taken as f32 - blocks(n) as f32 + all as f32 / (size_of::<Block<A>>() / size_of::<Entry>()) as f32;
        node.traffic() * (self.costs[n] - 0.5) - after - memory * self.price
    }

    fn split(&mut self, cut: Cut, node: &Node, heap: &mut BinaryHeap<Pending>) -> Entry {
        let all = 1usize << cut.width;
        let at = self.table.len();
        self.table.resize(at + all, Entry::EMPTY);
        let mut children: Vec<Vec<(u32, f32)>> = vec![Vec::new(); all];
        for &(rule, share) in &node.rules {
            let (from, n) = cut.children(self.regions[rule as usize].spans[cut.field]);
            for child in from..from + n {
                children[child & (all - 1)].push((rule, share / n as f32));
            }
        }
        self.promised -= blocks(node.rules.len());
        for (child, rules) in children.into_iter().enumerate() {
            let mut cell = node.cell.clone();
            cell.bits[cut.field].mask |= (all as u32 - 1) << cut.shift;
            cell.bits[cut.field].value |= (child as u32) << cut.shift;
            let rules = self.prune(rules, &cell, cut.field);
            if !rules.is_empty() {
                self.promised += blocks(rules.len());
                let child = Node { entry: Some(at + child), cell, rules, random: node.random / all as f32 };
                heap.push(Pending(child.traffic() * child.rules.len() as f32, child));
            }
        }
        // the key's word and its bits: both ports are in one word, the protocol is in the last
        let (word, shift) = match cut.field.checked_sub(2 * A) {
            None => (cut.field, cut.shift),
            Some(0) => (2 * A, cut.shift + 16),
            Some(1) => (2 * A, cut.shift),
            Some(_) => (2 * A + 1, cut.shift + meta::PROTOCOL_AT),
        };
        Entry::cut(word, shift, cut.width, at)
    }

    /// Leaves out what does not meet the cell in `field`, and what others hide there.
    fn prune(&self, mut rules: Vec<(u32, f32)>, cell: &Cell, field: usize) -> Vec<(u32, f32)> {
        let region = |rule: u32| &self.regions[rule as usize];
        rules.retain(|&(rule, _)| cell.bits[field].meets(region(rule).spans[field]));
        if let Some(cover) = rules.iter().position(|&(rule, _)| region(rule).covers(cell)) {
            rules.truncate(cover + 1);
        }
        if rules.len() > self.care.pairs {
            return rules;
        }
        let mut kept: Vec<(u32, f32)> = Vec::with_capacity(rules.len());
        for rule in rules {
            if !kept.iter().any(|&(k, _)| region(k).hides(region(rule.0), cell)) {
                kept.push(rule);
            }
        }
        kept
    }
}
