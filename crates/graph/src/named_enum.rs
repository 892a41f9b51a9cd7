//! Drop reasons, outputs and counters as enums that are declared once, with their names.

use crate::Counter;
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::Arc;

/// Number of a drop reason or output of a node: its position in the list of names.
///
/// [`named_enum!`](crate::named_enum) implements it; `u8` implements it for nodes that number their outputs at run
/// time.
pub trait Numbered: Copy {
    /// Returns the position in the list of names.
    fn number(self) -> u8;
}

impl Numbered for u8 {
    #[inline(always)]
    fn number(self) -> u8 {
        self
    }
}

/// An enum whose variants have the names that users see.
pub trait Named: Numbered + 'static {
    /// Names of all variants, in order of declaration.
    const NAMES: &'static [&'static str];

    /// Returns the name of this variant.
    fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.number())]
    }
}

/// Declares an enum of drop reasons, outputs or counters together with the names that users see.
///
/// A node returns `Drop::NAMES` from [`Node::drops`](crate::Node::drops) and passes a variant to
/// [`Context::drop`](crate::Context::drop); [`Counters`](crate::Counters) has one counter for each variant. The enum
/// implements [`Named`](crate::Named), and [`Operator::drop_if`](crate::Operator::drop_if) accepts it.
///
/// ```
/// use graph::Named;
///
/// graph::named_enum! {
///     /// Drop reasons.
///     pub enum Drop {
///         /// The time to live is used up.
///         TtlExpired = "ttl_expired",
///         /// No route matches.
///         NoRoute = "no_route",
///     }
/// }
/// assert_eq!(Drop::NAMES, ["ttl_expired", "no_route"]);
/// assert_eq!(Drop::NoRoute.name(), "no_route");
/// ```
#[macro_export]
macro_rules! named_enum {
    ($(#[$attribute:meta])* $vis:vis enum $enum:ident {
        $($(#[$variant_attribute:meta])* $variant:ident = $name:literal),+ $(,)?
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        $vis enum $enum {
            $($(#[$variant_attribute])* $variant),+
        }

        impl $crate::Numbered for $enum {
            #[inline(always)]
            fn number(self) -> u8 {
                self as u8
            }
        }

        impl $crate::Named for $enum {
            const NAMES: &'static [&'static str] = &[$($name),+];
        }
    };
}

/// One counter for each variant of an enum declared by [`named_enum!`](crate::named_enum).
///
/// ```
/// use graph::Counters;
///
/// graph::named_enum! {
///     enum Count { Learned = "learned", Aged = "aged" }
/// }
/// let counters = Counters::<Count>::default();
/// counters[Count::Learned].add(1);
/// assert_eq!(counters.named()[0].0, "learned");
/// ```
pub struct Counters<E> {
    counters: Box<[Arc<Counter>]>,
    of: PhantomData<E>,
}

impl<E: Named> Counters<E> {
    /// Returns the counters with their names, as [`Node::counters`](crate::Node::counters) reports them.
    pub fn named(&self) -> Vec<(String, Arc<Counter>)> {
        E::NAMES.iter().zip(&self.counters).map(|(name, counter)| ((*name).to_owned(), counter.clone())).collect()
    }
}

impl<E: Named> Default for Counters<E> {
    fn default() -> Self {
        Counters { counters: E::NAMES.iter().map(|_| Arc::default()).collect(), of: PhantomData }
    }
}

impl<E: Named> Index<E> for Counters<E> {
    type Output = Arc<Counter>;

    #[inline]
    fn index(&self, counter: E) -> &Arc<Counter> {
        &self.counters[usize::from(counter.number())]
    }
}
