//! Choosing the core of a packet.

use crate::{Exit, HeaderStack, Operator, OperatorNames, OperatorTrace, View};
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

    #[inline(always)]
    fn step<'p, S: HeaderStack>(&mut self, mut view: View<'p, S>) -> Result<View<'p, S>, Exit>
    where
        F: FnMut(&View<'_, S>) -> usize,
    {
        let core = (self.f)(&view) as u32;
        view.meta_mut().set_metadata(ShuffleTo(core));
        Ok(view)
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
        let view = self.upstream.run(view, first)?;
        self.step(view)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        trace.step("shuffle", None, view, |view| self.step(view))
    }
}
