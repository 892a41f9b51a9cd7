//! The one who changes a table.

use super::groups::Groups;
use super::prefix::Prefix;
use super::rules::Rules;
use super::words::first;
use super::{Address, Error, GROUP, LINK, Limits, MAX_TAG, MAX_VALUE, Shared, TOP, Table};

/// Depth of a word that links to a group. Of a value it is 1 more than the length of the prefix it comes from, and 0 is
/// "no route".
const LINKED: u8 = u8::MAX;
/// Levels at most: one of 24 bits, 13 of 8.
const LEVELS: usize = 14;

/// The owner of a table's routes: inserts, replaces and removes them while readers look up. There is one for a table.
pub struct Writer<A: Address> {
    table: Table<A>,
    limits: Limits,
    rules: Rules<A>,
    words: Words,
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
    /// Bytes of the writer: the routes, and from which each word comes.
    pub writer_bytes: usize,
}

/// The words of the table as their writer sees them.
struct Words {
    groups: Groups,
    /// Depth of each word of the first level.
    top_depths: Vec<u8>,
    /// Depth of each word of the groups.
    depths: Vec<u8>,
}

impl<A: Address> Writer<A> {
    pub(crate) fn new(limits: Limits) -> Result<Self, Error> {
        let table = Table::new(&limits)?;
        let words = Words { groups: Groups::new(limits.groups), top_depths: vec![0; TOP], depths: Vec::new() };
        Ok(Writer { table, limits, rules: Rules::new(), words })
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
        self.words.paint(shared, way.first, prefix.covers().len(), |d| d == len + 1, value, depth);
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
            writer_bytes: self.rules.bytes() + TOP + words.depths.capacity() + words.groups.bytes(),
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
        shared.words.hold(value).map_err(no_memory)?;
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
        self.words.paint(shared, way.first, prefix.covers().len(), |d| d <= depth, value, depth);
        Ok(old)
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
    fn depth(&self, word: usize) -> u8 {
        if word < TOP { self.top_depths[word] } else { self.depths[word - TOP] }
    }

    fn set_depth(&mut self, word: usize, depth: u8) {
        if word < TOP {
            self.top_depths[word] = depth;
        } else {
            self.depths[word - TOP] = depth;
        }
    }

    /// Returns the group that `word` links to.
    fn linked(&self, shared: &Shared, word: usize) -> Option<u32> {
        (self.depth(word) == LINKED).then(|| shared.words.group(word))
    }

    /// Sees to it that all words `prefix` needs can be written.
    fn make_room<A: Address>(&mut self, shared: &Shared, prefix: Prefix<A>) -> Result<(), Error> {
        let level = prefix.level();
        let top = prefix.address.top();
        let covered = if level == 0 { prefix.covers() } else { top..top + 1 };
        shared.words.back(covered).map_err(|e| Error::Memory { what: prefix.shown(), source: e.into() })?;
        let (mut word, mut passed) = (top, 0);
        while passed < level
            && let Some(group) = self.linked(shared, word)
        {
            passed += 1;
            word = first(group) + prefix.address.byte(passed);
        }
        self.groups.ensure(level - passed, shared, || prefix.shown())
    }

    /// Returns the path to the words of `prefix`. Missing groups on it are linked, without effect on lookups.
    fn way_to<A: Address>(&mut self, shared: &Shared, prefix: Prefix<A>) -> GroupPath {
        let level = prefix.level();
        let mut way = GroupPath { links: [(0, 0); LEVELS], first: prefix.covers().start };
        let mut word = prefix.address.top();
        for at in 0..level {
            let group = self.linked(shared, word).unwrap_or_else(|| {
                if at > 0 {
                    self.groups.need(way.links[at - 1].1);
                }
                self.link(shared, word)
            });
            way.links[at] = (word, group);
            word = first(group) + prefix.address.byte(at + 1);
            way.first = word;
        }
        way
    }

    /// Links `word` to a group whose words all answer what `word` did.
    fn link(&mut self, shared: &Shared, word: usize) -> u32 {
        let group = self.groups.take();
        let (answer, depth) = (shared.words.get(word), self.depth(word));
        let inside = first(group)..first(group) + GROUP;
        for word in inside.clone() {
            shared.words.set(word, answer);
        }
        let end = inside.end - TOP;
        if self.depths.len() < end {
            self.depths.resize(end, 0);
        }
        self.depths[inside.start - TOP..end].fill(depth);
        shared.words.set(word, LINK | group);
        self.set_depth(word, LINKED);
        group
    }

    /// Gives `value` to those of `count` words from `from` on, and of all words below them, whose depth is `theirs`.
    fn paint(
        &mut self,
        shared: &Shared,
        from: usize,
        count: usize,
        theirs: impl Fn(u8) -> bool + Copy,
        value: u32,
        depth: u8,
    ) {
        for word in from..from + count {
            let found = self.depth(word);
            if found == LINKED {
                self.paint(shared, first(shared.words.group(word)), GROUP, theirs, value, depth);
            } else if theirs(found) {
                shared.words.set(word, value);
                self.set_depth(word, depth);
            }
        }
    }

    /// After a route that ended in the last of `links` is gone: unlinks the groups that nothing needs any more.
    fn release(&mut self, shared: &Shared, links: &[(usize, u32)]) {
        for &(word, group) in links.iter().rev() {
            if !self.groups.spare(group) {
                break;
            }
            // No route ends in it and no group hangs on it: all its words come from above and are equal.
            let depths = &self.depths[first(group) - TOP..][..GROUP];
            debug_assert!(depths.iter().all(|d| *d == depths[0]));
            shared.words.set(word, shared.words.get(first(group)));
            self.set_depth(word, depths[0]);
            self.groups.retire(group, shared);
        }
    }
}
