//! The writer of a table.

use super::depths::{Depth, Origin, Origins, TOP_BLOCKS, TopDepths, block_depth, origin, set_origin};
use super::groups::Groups;
use super::prefix::Prefix;
use super::rules::Rules;
use super::words::first;
use super::{Address, Error, GROUP, Limits, MAX_TAG, MAX_VALUE, Shared, TOP, Table};
use std::ops::{Range, RangeInclusive};

/// Levels at most: one of 24 bits, 13 of 8.
const LEVELS: usize = 14;

/// The owner of a table's routes: inserts, replaces and removes them while readers look up. There is one for a table.
pub struct Writer<A: Address> {
    table: Table<A>,
    limits: Limits,
    rules: Rules<A>,
    words: Words,
    narrow: NarrowWords,
}

/// State of the words of 16 bits.
enum NarrowWords {
    Used,
    /// Words of 32 bits took their place; readers may use them until they have seen this generation.
    Retired(u64),
    Released,
}

/// Size of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Groups that routes need.
    pub groups: usize,
    /// Groups that no route needs, but a reader may still look at.
    pub waiting: usize,
    /// Bytes of the table that readers look at: the whole first level, and all groups ever used at the same time.
    pub table_bytes: usize,
    /// Bytes of the writer at most: the routes, and from which each word comes.
    pub writer_bytes: usize,
}

/// The words of the table as their writer sees them.
struct Words {
    groups: Groups,
    /// Depths of the first level.
    top: TopDepths,
}

/// Change of the answers of words.
#[derive(Clone)]
struct Change {
    /// Depths of the words to change.
    from: RangeInclusive<Depth>,
    depth: Depth,
    value: u32,
}

impl<A: Address> Writer<A> {
    pub(crate) fn new(limits: Limits) -> Result<Self, Error> {
        let table = Table::new(&limits)?;
        let words = Words { groups: Groups::new(limits.groups, A::SPACES), top: TopDepths::new() };
        Ok(Writer { table, limits, rules: Rules::new(), words, narrow: NarrowWords::Used })
    }

    /// Returns the table it writes.
    #[must_use]
    pub fn table(&self) -> &Table<A> {
        &self.table
    }

    /// Routes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.len() == 0
    }

    /// Inserts the route `address/len` or replaces its value. The old value, if it was there.
    ///
    /// # Errors
    /// [`Error`]; nothing has changed then.
    pub fn insert(&mut self, address: impl Into<A>, len: u8, value: u32) -> Result<Option<u32>, Error> {
        self.insert_tagged(address, len, value, 0)
    }

    /// As [`insert`](Self::insert), with a tag of at most [`MAX_TAG`](super::MAX_TAG), which readers do not see: it says
    /// where the route is from. Routes of [`insert`](Self::insert) have the tag 0. Higher bits of the tag are ignored.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub fn insert_tagged(&mut self, address: impl Into<A>, len: u8, value: u32, tag: u8) -> Result<Option<u32>, Error> {
        let prefix = self.checked(address.into(), len, value)?;
        self.insert_checked(prefix, value, tag & MAX_TAG)
    }

    /// Returns true if a route with this value can be inserted without the milliseconds that it takes to copy all words to
    /// wider ones, as is done for large values and many groups.
    #[must_use]
    pub fn fits(&self, value: u32) -> bool {
        self.table.shared.words.hold(value) && self.words.groups.has_room(&self.table.shared, LEVELS - 1)
    }

    /// Makes a value fit: see [`fits`](Self::fits).
    ///
    /// # Errors
    /// [`Error::Memory`]; nothing has changed then.
    pub fn widen_for(&mut self, value: u32) -> Result<(), Error> {
        if self.fits(value) {
            return Ok(());
        }
        let no_memory = |e: rustix::io::Errno| Error::Memory { what: format!("the value {value}"), source: e.into() };
        self.table.shared.words.widen().map_err(no_memory)?;
        self.release_narrow();
        Ok(())
    }

    /// Inserts many routes, in any order: shortest first inside, which is much faster than one by one. Of equal prefixes the
    /// last one stays.
    ///
    /// # Errors
    /// [`Error`]. Nothing has changed when a route itself is at fault and not more than [`Limits::routes`] were given; when
    /// the table is full, some are in.
    pub fn extend<T: Into<A>>(&mut self, routes: impl IntoIterator<Item = (T, u8, u32)>) -> Result<(), Error> {
        let routes = routes.into_iter();
        let most = self.limits.routes;
        let mut waiting = Vec::with_capacity(routes.size_hint().0.min(most));
        for (address, len, value) in routes {
            // So that memory is bounded whatever the iterator does.
            if waiting.len() == most {
                self.insert_sorted(&mut waiting)?;
            }
            waiting.push((self.checked(address.into(), len, value)?, value));
        }
        self.insert_sorted(&mut waiting)
    }

    /// Empties `routes` into the table.
    fn insert_sorted(&mut self, routes: &mut Vec<(Prefix<A>, u32)>) -> Result<(), Error> {
        // Stable: of equal prefixes the last one given comes last.
        routes.sort_by_key(|(prefix, _)| *prefix);
        for same_length in routes.chunk_by(|(a, _), (b, _)| a.len == b.len) {
            let room = self.limits.routes - self.rules.len();
            self.rules.reserve(same_length[0].0.len, same_length.len().min(room));
            for (prefix, value) in same_length {
                self.insert_checked(*prefix, *value, 0)?;
            }
        }
        routes.clear();
        Ok(())
    }

    /// Removes the route `address/len`: its value, or `None` when there is no such route.
    pub fn remove(&mut self, address: impl Into<A>, len: u8) -> Option<u32> {
        let prefix = Prefix::new(address.into(), len).ok()?;
        let old = self.rules.remove(prefix)?;
        let (value, depth) = match self.rules.longest(prefix.address, len) {
            Some((len, value)) => (value, len + 1),
            None => (0, 0),
        };
        let shared = &*self.table.shared;
        let way = self.words.way_to(shared, prefix);
        let change = Change { from: len + 1..=len + 1, depth, value };
        self.words.paint(shared, prefix.level(), way.first..way.first + prefix.covers().len(), &change);
        self.words.release(shared, &way.links[..prefix.level()]);
        Some(old)
    }

    /// Returns the value of the route `address/len` itself.
    #[must_use]
    pub fn get(&self, address: impl Into<A>, len: u8) -> Option<u32> {
        self.rules.get(Prefix::new(address.into(), len).ok()?)
    }

    /// Returns the value of the route `address/len` itself, and its tag.
    #[must_use]
    pub fn get_tagged(&self, address: impl Into<A>, len: u8) -> Option<(u32, u8)> {
        self.rules.get_tagged(Prefix::new(address.into(), len).ok()?)
    }

    /// Returns the routes with a tag (address, length, value), shortest first, in no order within a length.
    pub fn of_tag(&self, tag: u8) -> impl Iterator<Item = (A, u8, u32)> {
        self.rules.of_tag(tag)
    }

    /// The longest route that holds `address`: its length and value. From the routes themselves, not from the table.
    #[must_use]
    pub fn longest(&self, address: impl Into<A>) -> Option<(u8, u32)> {
        self.rules.longest(address.into(), A::BITS + 1)
    }

    /// Returns all routes (address, length, value), shortest first, in no order within a length.
    pub fn iter(&self) -> impl Iterator<Item = (A, u8, u32)> {
        self.rules.iter()
    }

    /// Returns the routes (address, value) of one length, in an order that changes with the routes only.
    pub fn of_length(&self, len: u8) -> impl Iterator<Item = (A, u32)> {
        self.rules.of_length(len)
    }

    /// Returns the size of the table.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let words = &self.words;
        Usage {
            groups: words.groups.in_use(),
            waiting: words.groups.waiting(),
            table_bytes: (TOP + words.groups.ever_used() * GROUP) * self.table.shared.words.bytes(),
            writer_bytes: self.rules.bytes() + words.top.bytes() + words.groups.bytes(),
        }
    }

    fn checked(&self, address: A, len: u8, value: u32) -> Result<Prefix<A>, Error> {
        let prefix = Prefix::new(address, len)?;
        if value == 0 || value > MAX_VALUE {
            return Err(Error::Value { prefix: prefix.shown(), value });
        }
        Ok(prefix)
    }

    fn insert_checked(&mut self, prefix: Prefix<A>, value: u32, tag: u8) -> Result<Option<u32>, Error> {
        let shared = &*self.table.shared;
        let no_memory = |e: rustix::io::Errno| Error::Memory { what: prefix.shown(), source: e.into() };
        if !shared.words.hold(value) {
            shared.words.widen().map_err(no_memory)?;
        }
        let is_new = self.rules.get(prefix).is_none();
        if is_new {
            if self.rules.len() >= self.limits.routes {
                return Err(Error::Routes { prefix: prefix.shown(), limit: self.limits.routes });
            }
            self.words.make_room(shared, prefix)?;
        }
        let old = self.rules.insert(prefix, value, tag);
        let way = self.words.way_to(shared, prefix);
        if is_new && let [.., (_, group)] = way.links[..prefix.level()] {
            self.words.groups.need(group);
        }
        let depth = prefix.len + 1;
        let change = Change { from: 0..=depth, depth, value };
        self.words.paint(shared, prefix.level(), way.first..way.first + prefix.covers().len(), &change);
        self.release_narrow();
        Ok(old)
    }

    /// Frees the words of 16 bits when words of 32 bits have taken their place and no reader uses them any more.
    fn release_narrow(&mut self) {
        let shared = &*self.table.shared;
        if matches!(self.narrow, NarrowWords::Used) && shared.words.is_wide() {
            self.narrow = NarrowWords::Retired(shared.grace.retire());
        }
        if let NarrowWords::Retired(generation) = self.narrow
            && generation <= shared.grace.quiescent_generation()
        {
            shared.words.release_narrow();
            self.narrow = NarrowWords::Released;
        }
    }
}

/// Path to the words of a prefix.
struct GroupPath {
    /// For each level passed: the word that links, and the number of the group it links to.
    links: [(usize, u32); LEVELS],
    /// The first word that the prefix covers.
    first: usize,
}

impl Words {
    /// Returns the depth of a block's words that come from prefixes which cover it, and the origins of all.
    fn block(&self, block: usize) -> (Depth, &Origins) {
        match block.checked_sub(TOP_BLOCKS) {
            None => self.top.parts(block),
            Some(group) => self.groups.state(group as u32).depths.parts(),
        }
    }

    fn block_mut(&mut self, block: usize) -> (&mut Depth, &mut Origins) {
        match block.checked_sub(TOP_BLOCKS) {
            None => self.top.parts_mut(block),
            Some(group) => self.groups.state_mut(group as u32).depths.parts_mut(),
        }
    }

    /// Returns the group that a word of a level links to.
    fn linked(&self, shared: &Shared, word: usize, level: usize) -> Option<u32> {
        let (_, origins) = self.block(word / GROUP);
        (origin(origins, word % GROUP) == Origin::Linked).then(|| shared.words.group(word, level))
    }

    /// Sees to it that all words `prefix` needs can be written.
    fn make_room<A: Address>(&mut self, shared: &Shared, prefix: Prefix<A>) -> Result<(), Error> {
        let level = prefix.level();
        let top = prefix.address.top();
        let covered = if level == 0 { prefix.covers() } else { top..top + 1 };
        shared.words.back(covered).map_err(|e| Error::Memory { what: prefix.shown(), source: e.into() })?;
        let (mut word, mut passed) = (top, 0);
        while passed < level
            && let Some(group) = self.linked(shared, word, passed)
        {
            passed += 1;
            word = first(group) + prefix.address.byte(passed);
        }
        self.groups.ensure(passed + 1..level + 1, shared, || prefix.shown())
    }

    /// Returns the path to the words of `prefix`. Missing groups on it are linked, without effect on lookups.
    fn way_to<A: Address>(&mut self, shared: &Shared, prefix: Prefix<A>) -> GroupPath {
        let level = prefix.level();
        let mut way = GroupPath { links: [(0, 0); LEVELS], first: prefix.covers().start };
        let mut word = prefix.address.top();
        for at in 0..level {
            let group = self.linked(shared, word, at).unwrap_or_else(|| {
                if at > 0 {
                    self.groups.need(way.links[at - 1].1);
                }
                self.link(shared, word, at)
            });
            way.links[at] = (word, group);
            word = first(group) + prefix.address.byte(at + 1);
            way.first = word;
        }
        way
    }

    /// Links a word of a level to a group whose words all answer what the word did.
    fn link(&mut self, shared: &Shared, word: usize, level: usize) -> u32 {
        let group = self.groups.take(level + 1);
        let answer = shared.words.get(word);
        for word in first(group)..first(group) + GROUP {
            shared.words.set(word, answer);
        }
        let (block, origins) = self.block_mut(word / GROUP);
        let depth = origin(origins, word % GROUP).depth(*block, level).expect("no link");
        set_origin(origins, word % GROUP, Origin::Linked);
        self.groups.state_mut(group).depths.reset(depth);
        shared.words.link(word, group);
        group
    }

    /// Makes a change to words of a level, of one block or of whole blocks of the first level, and to those below.
    fn paint(&mut self, shared: &Shared, level: usize, words: Range<usize>, change: &Change) {
        if level == 0 && words.len() >= GROUP {
            for block in words.start / GROUP..words.end / GROUP {
                self.paint_block(shared, 0, block, change);
            }
            return;
        }
        let block = words.start / GROUP;
        let new = Origin::of(change.depth, level);
        for word in words {
            let (covered, origins) = self.block_mut(block);
            match origin(origins, word % GROUP).depth(*covered, level) {
                None => self.paint_block(shared, level + 1, first(shared.words.group(word, level)) / GROUP, change),
                Some(depth) if change.from.contains(&depth) => {
                    set_origin(origins, word % GROUP, new);
                    shared.words.set(word, change.value);
                }
                Some(_) => {}
            }
        }
    }

    /// Makes a change of a prefix that covers a block to the block's words, and to those below.
    fn paint_block(&mut self, shared: &Shared, level: usize, block: usize, change: &Change) {
        debug_assert!(change.depth <= block_depth(level));
        let (depth, origins) = self.block_mut(block);
        if !change.from.contains(depth) {
            // A longer prefix covers the block, and the blocks below.
            return;
        }
        *depth = change.depth;
        let origins = *origins;
        for word in 0..GROUP {
            match origin(&origins, word) {
                Origin::Block => shared.words.set(block * GROUP + word, change.value),
                Origin::Longer(_) => {}
                Origin::Linked => {
                    let group = shared.words.group(block * GROUP + word, level);
                    self.paint_block(shared, level + 1, first(group) / GROUP, change);
                }
            }
        }
    }

    /// After a route that ended in the last of `links` is gone: unlinks the groups that nothing needs any more.
    fn release(&mut self, shared: &Shared, links: &[(usize, u32)]) {
        for (level, &(word, group)) in links.iter().enumerate().rev() {
            if !self.groups.spare(group) {
                break;
            }
            // No route ends in it and no group hangs on it: all its words come from above and are equal.
            let (depth, origins) = self.groups.state(group).depths.parts();
            debug_assert!((0..GROUP).all(|word| origin(origins, word) == Origin::Block));
            let (_, origins) = self.block_mut(word / GROUP);
            set_origin(origins, word % GROUP, Origin::of(depth, level));
            shared.words.set(word, shared.words.get(first(group)));
            self.groups.retire(group, shared);
        }
    }
}
