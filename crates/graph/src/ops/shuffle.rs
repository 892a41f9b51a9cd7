//! To which core a packet goes.

use crate::{Exit, Operator, Reasons, Stack, View};
use packet::Note;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The note that [`Operator::shuffle`] leaves: a number, of which the remainder by the number of cores counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct ShuffleTo(pub u32);

impl Note for ShuffleTo {
    const NAME: &'static str = "bondstone/shuffle";
}

/// [`Operator::shuffle`].
pub struct Shuffle<U, F> {
    up: U,
    f: F,
}

impl<U, F> Shuffle<U, F> {
    pub(crate) fn new(up: U, f: F) -> Self {
        Shuffle { up, f }
    }
}

impl<I: Stack, U: Operator<I>, F> Operator<I> for Shuffle<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> usize + Send,
{
    type Output = U::Output;
    const REASONS: u8 = U::REASONS;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let mut view = self.up.run(view, first)?;
        let to = (self.f)(&view) as u32;
        view.meta_mut().set_note(ShuffleTo(to));
        Ok(view)
    }
}
