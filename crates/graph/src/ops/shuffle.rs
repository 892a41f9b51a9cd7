//! Choosing the core of a packet.

use crate::{Exit, HeaderStack, Operator, OperatorNames, View};
use packet::Metadata;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Packet metadata set by [`Operator::shuffle`]: the core is this number modulo the number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct ShuffleTo(pub u32);

impl Metadata for ShuffleTo {
    const NAME: &'static str = "bondstone/shuffle";
}

/// Operator returned by [`Operator::shuffle`].
pub struct Shuffle<U, F> {
    upstream: U,
    f: F,
}

impl<U, F> Shuffle<U, F> {
    pub(crate) fn new(upstream: U, f: F) -> Self {
        Shuffle { upstream, f }
    }
}

impl<I: HeaderStack, U: Operator<I>, F> Operator<I> for Shuffle<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> usize + Send,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let mut view = self.upstream.run(view, first)?;
        let core = (self.f)(&view) as u32;
        view.meta_mut().set_metadata(ShuffleTo(core));
        Ok(view)
    }
}
