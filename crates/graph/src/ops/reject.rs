//! Dropping packets for one of several reasons.

use super::dropped;
use crate::{Exit, Operator, Reasons, Stack, View};

/// [`Operator::reject`].
pub struct Reject<const N: usize, U, F> {
    up: U,
    names: [&'static str; N],
    f: F,
}

impl<const N: usize, U, F> Reject<N, U, F> {
    pub(crate) fn new(up: U, names: [&'static str; N], f: F) -> Self {
        const { assert!(N > 0 && N < 128, "from one reason to 127") };
        Reject { up, names, f }
    }
}

impl<const N: usize, I: Stack, U: Operator<I>, F> Operator<I> for Reject<N, U, F>
where
    F: FnMut(&View<'_, U::Output>) -> Option<usize> + Send,
{
    type Output = U::Output;
    const REASONS: u8 = U::REASONS + N as u8;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        self.names.iter().for_each(|name| names.drop(name));
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.up.run(view, first)?;
        match (self.f)(&view) {
            None => Ok(view),
            Some(reason) => Err(dropped::<Self>(first + U::REASONS + reason.min(N - 1) as u8)),
        }
    }
}
