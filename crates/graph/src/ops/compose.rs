//! A chain of operators as a node.

use crate::{Context, Counter, Exit, Node, Operator, OperatorNames, OperatorTrace, Raw, View};
use packet::Batch;
use std::sync::Arc;

/// Node returned by [`Operator::compose`].
pub struct Composed<O> {
    chain: O,
    names: OperatorNames,
}

impl<O: Operator<Raw>> Composed<O> {
    pub(crate) fn new(mut chain: O) -> Self {
        let mut names = OperatorNames { outputs: vec!["out"], ..OperatorNames::default() };
        chain.register(&mut names);
        debug_assert_eq!(names.drops.len(), usize::from(O::DROP_REASONS));
        Composed { chain, names }
    }

    /// Processes the packets one by one, and shows what each operator does.
    #[cold]
    #[inline(never)]
    fn process_traced(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        for mut packet in batch.drain() {
            let (meta, bytes) = packet.split_mut();
            let mut trace = OperatorTrace::new(&self.names.drops, &self.names.outputs);
            let result = self.chain.run_traced(View { meta, bytes, stack: Raw, now: cx.now() }, 0, &mut trace);
            let exit = result.err().filter(|exit| *exit != Exit::Pass);
            cx.show_operators(trace.into_steps());
            match exit {
                Some(exit) => cx.exit(exit, packet),
                // the batch has contained it
                None => batch.push(packet).unwrap_or_else(drop),
            }
        }
    }
}

impl<O: Operator<Raw> + 'static> Node for Composed<O> {
    fn drops(&self) -> &[&'static str] {
        &self.names.drops
    }

    fn outputs(&self) -> &[&'static str] {
        &self.names.outputs
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        Counter::named(self.names.counters.iter().map(|(name, count)| (*name, count)))
    }

    #[inline]
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        if cx.wants_explanations() {
            return self.process_traced(cx, batch);
        }
        let now = cx.now();
        batch.extract_if(
            #[inline(always)]
            |packet| {
                let (meta, bytes) = packet.split_mut();
                self.process_packet(View { meta, bytes, stack: Raw, now })
            },
            #[inline(always)]
            |exit, packet| cx.exit(exit, packet),
        );
    }

    fn is_per_packet(&self) -> bool {
        true
    }

    #[inline(always)]
    fn process_packet(&mut self, frame: View<'_, Raw>) -> Option<Exit> {
        match self.chain.run(frame, 0) {
            Ok(_) | Err(Exit::Pass) => None,
            Err(exit) => Some(exit),
        }
    }
}
