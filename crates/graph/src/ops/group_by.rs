//! Branches inside a chain, merged behind it.

use crate::{Exit, Operator, Reasons, Stack, View};

/// [`Operator::group_by`].
pub struct GroupBy<U, F, B> {
    up: U,
    f: F,
    branches: B,
}

impl<U, F, B> GroupBy<U, F, B> {
    pub(crate) fn new(up: U, f: F, branches: B) -> Self {
        GroupBy { up, f, branches }
    }
}

/// A tuple of two to eight chains that all begin with the headers `S`.
pub trait Branches<S: Stack>: Send {
    /// Drop reasons that all branches have.
    const REASONS: u8;

    /// Names the drop reasons and outputs of all branches.
    fn name(&mut self, names: &mut Reasons);

    /// Takes one packet through branch number `branch`, or the last; drop reasons are numbered from `first`. The headers known are afterwards those known before.
    ///
    /// # Errors
    /// The way out of a packet that does not go through to the end.
    fn run<'p>(&mut self, branch: usize, view: View<'p, S>, first: u8) -> Result<View<'p, S>, Exit>;
}

macro_rules! branches {
    ($($B:ident $n:tt),+; $Last:ident $last:tt) => {
        impl<S: Stack, $($B: Operator<S>,)+ $Last: Operator<S>> Branches<S> for ($($B,)+ $Last) {
            const REASONS: u8 = $($B::REASONS +)+ $Last::REASONS;

            fn name(&mut self, names: &mut Reasons) {
                $(self.$n.name(names);)+
                self.$last.name(names);
            }

            #[inline(always)]
            fn run<'p>(&mut self, branch: usize, view: View<'p, S>, first: u8) -> Result<View<'p, S>, Exit> {
                let stack = view.stack;
                $(
                    if branch == $n {
                        return Ok(self.$n.run(view, first)?.with(stack));
                    }
                    let first = first + $B::REASONS;
                )+
                Ok(self.$last.run(view, first)?.with(stack))
            }
        }
    };
}
branches!(A 0; B 1);
branches!(A 0, B 1; C 2);
branches!(A 0, B 1, C 2; D 3);
branches!(A 0, B 1, C 2, D 3; E 4);
branches!(A 0, B 1, C 2, D 3, E 4; G 5);
branches!(A 0, B 1, C 2, D 3, E 4, G 5; H 6);
branches!(A 0, B 1, C 2, D 3, E 4, G 5, H 6; J 7);

impl<I: Stack, U: Operator<I>, F, B> Operator<I> for GroupBy<U, F, B>
where
    F: FnMut(&View<'_, U::Output>) -> usize + Send,
    B: Branches<U::Output>,
{
    type Output = U::Output;
    const REASONS: u8 = U::REASONS + B::REASONS;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        self.branches.name(names);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.up.run(view, first)?;
        let branch = (self.f)(&view);
        self.branches.run(branch, view, first + U::REASONS)
    }
}
