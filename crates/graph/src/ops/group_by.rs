//! Branches that merge.

use crate::operator_trace::OperatorResult;
use crate::{Exit, HeaderStack, Operator, OperatorNames, OperatorTrace, View};

/// Operator returned by [`Operator::group_by`].
pub struct GroupBy<U, F, B> {
    upstream: U,
    f: F,
    branches: B,
}

impl<U, F, B> GroupBy<U, F, B> {
    pub(crate) fn new(upstream: U, f: F, branches: B) -> Self {
        GroupBy { upstream, f, branches }
    }
}

/// A tuple of two to eight chains that start with the headers `S`.
pub trait Branches<S: HeaderStack>: Send {
    /// Number of branches.
    const COUNT: usize;

    /// Number of drop reasons of all branches.
    const DROP_REASONS: u8;

    /// Adds the names of all branches, like [`Operator::register`].
    fn register(&mut self, names: &mut OperatorNames);

    /// Processes one packet with branch number `branch`, or the last branch for larger numbers. The drop reasons are
    /// numbered from `first`. Headers parsed by the branch are forgotten.
    ///
    /// # Errors
    /// The exit of a packet that does not reach the end of the branch.
    fn run<'p>(&mut self, branch: usize, view: View<'p, S>, first: u8) -> Result<View<'p, S>, Exit>;

    /// As [`run`](Branches::run), and records the steps of the packet.
    ///
    /// # Errors
    /// As [`run`](Branches::run).
    fn run_traced<'p>(
        &mut self,
        branch: usize,
        view: View<'p, S>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, S>, Exit>;
}

macro_rules! branches {
    ($($B:ident $n:tt),+; $Last:ident $last:tt) => {
        impl<S: HeaderStack, $($B: Operator<S>,)+ $Last: Operator<S>> Branches<S> for ($($B,)+ $Last) {
            const COUNT: usize = $last + 1;
            const DROP_REASONS: u8 = $($B::DROP_REASONS +)+ $Last::DROP_REASONS;

            fn register(&mut self, names: &mut OperatorNames) {
                $(self.$n.register(names);)+
                self.$last.register(names);
            }

            #[inline(always)]
            fn run<'p>(&mut self, branch: usize, view: View<'p, S>, first: u8) -> Result<View<'p, S>, Exit> {
                let stack = view.stack;
                $(
                    if branch == $n {
                        return Ok(self.$n.run(view, first)?.with_stack(stack));
                    }
                    let first = first + $B::DROP_REASONS;
                )+
                Ok(self.$last.run(view, first)?.with_stack(stack))
            }

            fn run_traced<'p>(
                &mut self,
                branch: usize,
                view: View<'p, S>,
                first: u8,
                trace: &mut OperatorTrace<'_>,
            ) -> Result<View<'p, S>, Exit> {
                let stack = view.stack;
                $(
                    if branch == $n {
                        return Ok(self.$n.run_traced(view, first, trace)?.with_stack(stack));
                    }
                    let first = first + $B::DROP_REASONS;
                )+
                Ok(self.$last.run_traced(view, first, trace)?.with_stack(stack))
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

impl<I: HeaderStack, U: Operator<I>, F, B> Operator<I> for GroupBy<U, F, B>
where
    F: FnMut(&View<'_, U::Output>) -> usize + Send,
    B: Branches<U::Output>,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS + B::DROP_REASONS;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        self.branches.register(names);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        let branch = (self.f)(&view);
        self.branches.run(branch, view, first + U::DROP_REASONS)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        let mut branch = 0;
        let view = trace.step("group_by", None, view, |view| {
            branch = (self.f)(&view).min(B::COUNT - 1);
            Ok(view)
        })?;
        trace.passed_as(OperatorResult::Branch(branch));
        self.branches.run_traced(branch, view, first + U::DROP_REASONS, trace)
    }
}
