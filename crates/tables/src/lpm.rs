//! Longest prefix match, for both families: the table, its one writer, its many readers.
//!
//! One structure serves both: a first level that the top 24 bits of an address index, then groups of 256 for 8 bits more
//! each (DIR-24-8, Gupta, Lin and McKeown 1998; for IPv6 up to 13 levels of groups). A word is a value, or says in which
//! group to go on; it has 16 bits as long as that is enough for all of them, and then 32. Prefixes are expanded into the words they cover, so that a look-up needs no way back.
//!
//! Each update changes words one by one, and every word goes from the right old answer to the right new one: a group is
//! filled before it is linked, and unlinked when all of it answers what the word above then says. A look-up that runs
//! meanwhile finds for each address an answer that was right at some time during that look-up. A group that was unlinked
//! is not used again before every reader has ended the look-up in which it may have found it; a reader that never looks
//! anything up therefore keeps groups from being used again (see [`Reader::idle`]), but blocks no one.

mod address;
mod depths;
mod groups;
mod ipv4;
mod ipv6;
mod limits;
mod look_up;
mod look_up4;
mod look_up6;
mod prefix;
mod rules;
mod words;
mod writer;

use crate::memory::{Backing, prefetch};
use crate::qsbr::{QsbrDomain, QsbrReader};
use limits::{GROUP, LINK, TOP};
use std::sync::Arc;
use words::{Words, either};

pub use address::Address;
pub use limits::{Limits, MAX_GROUPS, MAX_TAG, MAX_VALUE};
pub use look_up::Isa;
pub use writer::{Usage, Writer};

/// Error of creating a table or adding a route.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such prefix length in this family.
    #[error("prefix length {len}: it is at most {max}")]
    Length {
        /// The length asked for.
        len: u8,
        /// The address's bits.
        max: u8,
    },
    /// The address has bits set behind the prefix.
    #[error("prefix {prefix}: bits set behind its length; write {instead}")]
    HostBits {
        /// Requested value.
        prefix: String,
        /// The same with those bits clear.
        instead: String,
    },
    /// A value that cannot be told from "no route", or does not fit.
    #[error("value {value} for {prefix}: use 1 to {MAX_VALUE} (0 means no route)")]
    Value {
        /// The prefix it was for.
        prefix: String,
        /// The value asked for.
        value: u32,
    },
    /// The table is full.
    #[error("no room for {prefix}: {limit} routes are the limit; raise `Limits::routes`")]
    Routes {
        /// The prefix that was one too many.
        prefix: String,
        /// The limit.
        limit: usize,
    },
    /// There are no groups left.
    #[error(
        "no room for {prefix}: all {limit} groups are taken, {waiting} of them only until every reader has announced that \
         it no longer uses them; raise `Limits::groups`, or let readers that rest call `idle`"
    )]
    Groups {
        /// The prefix that needed more.
        prefix: String,
        /// The limit.
        limit: usize,
        /// Groups that are free but for readers that may still look at them.
        waiting: usize,
    },
    /// More groups than a table can have.
    #[error("a table of {asked} groups: {MAX_GROUPS} are the most; lower `Limits::groups`")]
    Limits {
        /// The groups asked for.
        asked: usize,
    },
    /// The system has no memory, or no address space.
    #[error("no memory for {what}: {source}; look at `ulimit -v`, cgroup limits and free memory")]
    Memory {
        /// Purpose of the memory.
        what: String,
        /// Error of the kernel.
        source: std::io::Error,
    },
}

/// State shared by readers and the writer.
struct Shared {
    words: Words,
    grace: QsbrDomain,
}

/// A table that others write: where readers come from. Clones are the same table.
pub struct Table<A: Address> {
    shared: Arc<Shared>,
    family: std::marker::PhantomData<fn(A)>,
}

impl<A: Address> Clone for Table<A> {
    fn clone(&self) -> Self {
        Table { shared: Arc::clone(&self.shared), family: std::marker::PhantomData }
    }
}

impl<A: Address> Table<A> {
    fn new(limits: &Limits) -> Result<Self, Error> {
        if limits.groups > MAX_GROUPS {
            return Err(Error::Limits { asked: limits.groups });
        }
        let words = Words::reserve(*limits, A::SPACES)
            .map_err(|e| Error::Memory { what: format!("a table of {} groups", limits.groups), source: e.into() })?;
        Ok(Table { shared: Arc::new(Shared { words, grace: QsbrDomain::default() }), family: std::marker::PhantomData })
    }

    /// A reader for one worker, with the widest instructions that the processor has and that were measured to pay.
    #[must_use]
    pub fn reader(&self) -> Reader<A> {
        self.reader_of(Isa::best())
    }

    /// Returns a reader that uses `isa`, or `None` where the processor does not have it.
    #[must_use]
    pub fn reader_with(&self, isa: Isa) -> Option<Reader<A>> {
        isa.is_here().then(|| self.reader_of(isa))
    }

    fn reader_of(&self, isa: Isa) -> Reader<A> {
        Reader { pass: self.shared.grace.register(), table: self.clone(), isa }
    }

    /// Readers there are.
    #[must_use]
    pub fn reader_count(&self) -> usize {
        self.shared.grace.reader_count()
    }

    /// Returns the kinds of pages that back the table. Reads a file of the kernel: not for the packet path.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.shared.words.backing()
    }
}

/// One worker's way to look addresses up. Its clone is a further reader.
pub struct Reader<A: Address> {
    table: Table<A>,
    pass: QsbrReader,
    isa: Isa,
}

impl<A: Address> Reader<A> {
    /// Looks up `addresses`, in host byte order, and puts the value of the longest prefix that holds `addresses[i]` at
    /// `values[i]`, or 0 where there is none. Any number of addresses; bursts of 32 and more are fastest.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn look_up(&mut self, addresses: &[A], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        let shared = &*self.table.shared;
        self.pass.enter(&shared.grace);
        // SAFETY: the words are a table of this family that its one writer keeps: a link's group lies within, and links end
        // at the address's last bit; the processor has `isa`, or there would be no reader of it; lengths were compared.
        unsafe { either!(shared.words, words => A::look_up(words, self.isa, addresses, values)) };
        self.pass.announce(&shared.grace);
    }

    /// Looks up one address: the value, or 0 when no prefix holds it.
    #[inline]
    pub fn look_up_one(&mut self, address: A) -> u32 {
        let shared = &*self.table.shared;
        let mut value = [0];
        self.pass.enter(&shared.grace);
        // SAFETY: as in `look_up`; every processor has the scalar instructions.
        unsafe { either!(shared.words, words => A::look_up(words, Isa::Scalar, &[address], &mut value)) };
        self.pass.announce(&shared.grace);
        value[0]
    }

    /// Fetches the cache line that a look-up of an address loads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        either!(self.table.shared.words, words => prefetch(words.as_ptr().wrapping_add(address.top()).cast()));
    }

    /// Says that this reader looks nothing up until it next does. A worker that rests for long calls it so that the groups
    /// which routes no longer need can be used again; the look-up after it costs a memory fence more.
    pub fn idle(&mut self) {
        self.pass.idle();
    }

    /// Returns the instructions it uses.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns the table it reads.
    #[must_use]
    pub fn table(&self) -> &Table<A> {
        &self.table
    }
}

impl<A: Address> Clone for Reader<A> {
    fn clone(&self) -> Self {
        self.table.reader_of(self.isa)
    }
}

impl<A: Address> Drop for Reader<A> {
    fn drop(&mut self) {
        self.table.shared.grace.unregister(&self.pass);
    }
}
