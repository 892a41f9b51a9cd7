//! Rules that come and go while packets are looked up.

use super::patch::Patch;
use super::region::{Cell, Region};
use super::search::Simd;
use super::trees::Trees;
use super::{Classifier, Error, MAX_RULES, Rule, compile, plan};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// In the order of rules, one that came after the trees were made.
const ADDED: u32 = u32::MAX;
/// Rules that are made ready anew rather than changed.
const FEW: usize = 64;

/// Ordered rules of which some come and some go, anywhere in the list.
///
/// A change is cheap, and so is the [`Classifier`] of the rules as they are after it: that has the trees it had, what came
/// beside them, and of what went a mark. Look-ups take longer for it, until all rules are [folded](Self::fold) into new
/// trees, which any thread may do meanwhile.
///
/// Every rule has a name that the caller gives it. What a classifier finds is a number: [`base`](Self::base) has the names
/// of the first, [`added`](Self::added) those of the numbers behind them.
///
/// ```
/// use tables::classifier::{Addresses, Changing, FragmentKind, Key4, Rule};
///
/// let to = |net: [u8; 4], len| Rule {
///     addresses: Addresses::V4 { src: ([0; 4].into(), 0), dst: (net.into(), len) },
///     ..Rule::ANY
/// };
/// let mut rules = Changing::new(&[(to([10, 0, 0, 0], 8), 70), (to([0; 4], 0), 71)])?;
/// let name = |rules: &mut Changing| {
///     let classifier = rules.classifier();
///     let names: Vec<u32> = rules.base().iter().copied().chain(rules.added()).collect();
///     let mut name = None;
///     let key = Key4::new([192, 0, 2, 1].into(), [10, 0, 0, 1].into(), 6, FragmentKind::Whole);
///     classifier.classify4(&[key], |rule, packets| if packets != 0 { name = Some(names[rule as usize]) });
///     name
/// };
/// assert_eq!(name(&mut rules), Some(70));
/// rules.insert(0, &to([10, 0, 0, 1], 32), 72)?;
/// assert_eq!(name(&mut rules), Some(72));
/// assert_eq!((rules.remove(0), rules.remove(0)), (Some(72), Some(70)));
/// assert_eq!(name(&mut rules), Some(71));
/// # Ok::<(), tables::classifier::Error>(())
/// ```
#[derive(Clone)]
pub struct Changing {
    base: Arc<Base>,
    /// The rank of each rule in the trees, or [`ADDED`].
    order: Vec<u32>,
    /// Added rules in order.
    added: Vec<Added>,
    /// Removed rules, with the trees of the rules behind them.
    gone: BTreeMap<u32, Option<Arc<Trees>>>,
    /// Changes since a fold was begun, and its number.
    since: Option<(u64, Vec<Change>)>,
    folds: u64,
    simd: Simd,
}

/// Rules in trees.
struct Base {
    trees: Arc<Trees>,
    /// By rank.
    v4: Vec<Region>,
    v6: Vec<Region>,
    names: Arc<[u32]>,
}

#[derive(Clone)]
struct Added {
    /// The rank of the first rule of the trees that stands behind it.
    before: u32,
    name: u32,
    v4: Option<Region>,
    v6: Option<Region>,
}

#[derive(Clone)]
enum Change {
    Insert(usize, Box<Added>),
    Remove(usize),
}

/// All rules at one time, to be made ready.
pub struct Fold {
    number: u64,
    v4: Vec<Region>,
    v6: Vec<Region>,
    names: Arc<[u32]>,
}

/// Rules of a [`Fold`], made ready.
pub struct Folded {
    number: u64,
    base: Base,
}

impl Fold {
    /// Makes them ready, which takes as long as [`Classifier::new`].
    pub fn make(self) -> Folded {
        let trees = Trees { v4: plan::plan(self.v4.clone()), v6: plan::plan(self.v6.clone()) };
        Folded {
            number: self.number,
            base: Base { trees: Arc::new(trees), v4: self.v4, v6: self.v6, names: self.names },
        }
    }
}

/// Returns the rules by rank, for ascending ranks.
fn by_rank(regions: &[Region]) -> impl FnMut(u32) -> Option<Region> {
    let mut rest = regions.iter().peekable();
    move |rank| {
        while rest.next_if(|region| region.rank < rank).is_some() {}
        rest.next_if(|region| region.rank == rank).cloned()
    }
}

impl Changing {
    /// Makes rules ready, first match first, each with its name. Takes as long as [`Classifier::new`].
    ///
    /// # Errors
    /// As [`Classifier::new`].
    pub fn new(rules: &[(Rule, u32)]) -> Result<Self, Error> {
        let (rules, names): (Vec<Rule>, Vec<u32>) = rules.iter().cloned().unzip();
        let (v4, v6) = compile(&rules)?;
        let folded = Fold { number: 0, v4, v6, names: names.into() }.make();
        Ok(Self {
            order: (0..folded.base.names.len() as u32).collect(),
            base: Arc::new(folded.base),
            added: vec![],
            gone: BTreeMap::new(),
            since: None,
            folds: 0,
            simd: Simd::best(),
        })
    }

    /// Returns the number of rules.
    pub fn rules(&self) -> usize {
        self.order.len()
    }

    /// Names of the rules in the trees, by the numbers that classifiers find. The same `Arc` until rules are folded.
    pub fn base(&self) -> &Arc<[u32]> {
        &self.base.names
    }

    /// Returns the names of the rules behind those of [`base`](Self::base).
    pub fn added(&self) -> impl Iterator<Item = u32> {
        self.added.iter().map(|added| added.name)
    }

    /// Returns the number of changes since the last fold; lookups and changes slow down with it.
    pub fn pending(&self) -> usize {
        self.added.len() + self.gone.len()
    }

    /// Puts a rule in front of the one at `at`, or behind all.
    ///
    /// # Errors
    /// More than [`MAX_RULES`], or a rule that is contradictory. Nothing changes then.
    ///
    /// # Panics
    /// If there are fewer than `at` rules.
    pub fn insert(&mut self, at: usize, rule: &Rule, name: u32) -> Result<(), Error> {
        if self.order.len() == MAX_RULES {
            return Err(Error::TooMany { given: MAX_RULES + 1 });
        }
        let (v4, v6) = rule.compile(at as u32)?;
        let added = Added { before: 0, name, v4, v6 };
        if let Some((_, since)) = &mut self.since {
            since.push(Change::Insert(at, Box::new(added.clone())));
        }
        self.put(at, added);
        Ok(())
    }

    /// Takes the rule at `at` away, and says its name; none if there is no such rule.
    pub fn remove(&mut self, at: usize) -> Option<u32> {
        if at >= self.order.len() {
            return None;
        }
        if let Some((_, since)) = &mut self.since {
            since.push(Change::Remove(at));
        }
        Some(self.cut(at))
    }

    /// Returns the number of the first `at` rules that are not in the trees.
    fn added_before(&self, at: usize) -> usize {
        self.order[..at].iter().filter(|&&rank| rank == ADDED).count()
    }

    fn put(&mut self, at: usize, added: Added) {
        let next = self.order[at..].iter().find(|&&rank| rank != ADDED);
        let before = next.copied().unwrap_or(self.base.names.len() as u32);
        let nth = self.added_before(at);
        self.order.insert(at, ADDED);
        self.added.insert(nth, Added { before, ..added });
    }

    fn cut(&mut self, at: usize) -> u32 {
        match self.order.remove(at) {
            ADDED => self.added.remove(self.added_before(at)).name,
            rank => {
                self.gone.insert(rank, None);
                self.base.names[rank as usize]
            }
        }
    }

    /// The rules as they are now. Takes microseconds for a change, more for those of wide rules far in front: a rule that goes
    /// is looked for among all behind it.
    pub fn classifier(&mut self) -> Classifier {
        if self.pending() != 0 && self.order.len() <= FEW {
            let folded = self.fold().make();
            self.take(folded);
        }
        let ranks: Vec<u32> = self.gone.iter().filter(|(_, trees)| trees.is_none()).map(|(&rank, _)| rank).collect();
        for rank in ranks {
            let trees = Trees { v4: self.behind(&self.base.v4, rank), v6: self.behind(&self.base.v6, rank) };
            self.gone.insert(rank, Some(Arc::new(trees)));
        }
        let patch = (self.pending() != 0).then(|| Arc::new(self.patch()));
        Classifier { trees: self.base.trees.clone(), patch, rules: self.order.len(), simd: self.simd }
    }

    /// Builds the trees of the rules behind a rule that overlap it.
    fn behind<const A: usize>(&self, regions: &[Region], rank: u32) -> Vec<super::Tree<A>> {
        let Ok(at) = regions.binary_search_by_key(&rank, |region| region.rank) else { return vec![] };
        let (rule, mut meeting) = (&regions[at], vec![]);
        for region in &regions[at + 1..] {
            if rule.meets(region) && !self.gone.contains_key(&region.rank) {
                meeting.push(region.clone());
                if region.hides(rule, &Cell::ALL) {
                    break;
                }
            }
        }
        plan::soon(&meeting)
    }

    fn patch(&self) -> Patch {
        let of = |version: fn(&Added) -> &Option<Region>| -> Vec<Region> {
            let ranked = (0..).zip(&self.added);
            ranked.filter_map(|(rank, added)| version(added).clone().map(|r| Region { rank, ..r })).collect()
        };
        let mut gone = vec![0u64; self.base.names.len().div_ceil(64)];
        for &rank in self.gone.keys() {
            gone[rank as usize / 64] |= 1 << (rank % 64);
        }
        let behind: HashMap<_, _> =
            self.gone.iter().filter_map(|(&rank, trees)| Some((rank, trees.clone()?))).collect();
        Patch {
            added: Trees { v4: plan::soon(&of(|added| &added.v4)), v6: plan::soon(&of(|added| &added.v6)) },
            before: self.added.iter().map(|added| added.before).collect(),
            base: self.base.names.len() as u32,
            gone: gone.into(),
            behind,
        }
    }

    /// Returns all rules as they are now, to be made ready and [taken](Self::take). What changes meanwhile is not lost.
    pub fn fold(&mut self) -> Fold {
        self.folds += 1;
        self.since = Some((self.folds, vec![]));
        let (mut v4, mut v6, mut names) = (vec![], vec![], vec![]);
        let (mut old4, mut old6) = (by_rank(&self.base.v4), by_rank(&self.base.v6));
        let mut added = self.added.iter();
        for (rank, &old) in (0..).zip(&self.order) {
            let regions = match old {
                ADDED => added.next().map(|added| (added.v4.clone(), added.v6.clone(), added.name)),
                old => Some((old4(old), old6(old), self.base.names[old as usize])),
            };
            let Some((one, other, name)) = regions else { break };
            v4.extend(one.map(|region| Region { rank, ..region }));
            v6.extend(other.map(|region| Region { rank, ..region }));
            names.push(name);
        }
        Fold { number: self.folds, v4, v6, names: names.into() }
    }

    /// Takes rules that were made ready, and makes the changes since again. Whether it did: only the last [`fold`](Self::fold)
    /// counts.
    pub fn take(&mut self, folded: Folded) -> bool {
        let Some((_, since)) = self.since.take_if(|(number, _)| *number == folded.number) else { return false };
        self.order = (0..folded.base.names.len() as u32).collect();
        self.base = Arc::new(folded.base);
        self.added.clear();
        self.gone.clear();
        for change in since {
            match change {
                Change::Insert(at, added) => self.put(at, *added),
                Change::Remove(at) => drop(self.cut(at)),
            }
        }
        true
    }
}
