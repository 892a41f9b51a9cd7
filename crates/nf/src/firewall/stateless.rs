//! The node without connection tracking.

use super::drop_reason::DropReason;
use super::key::{self, FrameKey};
use super::live_rules::{LiveRules, Mailbox};
use super::rule::Action;
use super::rule_set::{BatchVerdict, WorkerRules};
use super::updates::{self, ChangeCounter};
use graph::{Context, Counter, Counters, Named, Node};
use packet::{BURST, Batch};
use std::sync::Arc;
use std::time::Duration;
use tables::classifier::{FragmentKind, Key4, Key6};

/// Interval at which a worker checks for new rules when no packets arrive.
const UPDATE_INTERVAL: Duration = Duration::from_millis(10);

/// Treatment of a packet before the rules are evaluated.
#[derive(Clone, Copy)]
enum FrameClass {
    V4,
    V6,
    Drop(DropReason),
    Pass,
}

impl BatchVerdict {
    /// Returns the drop reason of packet number `at`, or `None` if it passes.
    #[inline(always)]
    fn reason(self, at: usize) -> Option<DropReason> {
        let reason = if self.missed >> at & 1 == 0 { DropReason::Denied } else { DropReason::DeniedByDefault };
        (self.drop >> at & 1 != 0).then_some(reason)
    }
}

/// The node without connection tracking.
pub(super) struct StatelessNode {
    rules: Box<WorkerRules>,
    mailbox: Arc<Mailbox>,
    live: Arc<LiveRules>,
    change_counters: Counters<ChangeCounter>,
    other: Action,
    keys4: [Key4; BURST],
    keys6: Vec<Key6>,
}

impl StatelessNode {
    pub(super) fn new(live: Arc<LiveRules>, other: Action) -> Self {
        let change_counters = Counters::<ChangeCounter>::default();
        let (mailbox, rules) = updates::attach(&live, change_counters.named());
        StatelessNode {
            rules,
            mailbox,
            live,
            change_counters,
            other,
            keys4: [Key4::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
            keys6: vec![Key6::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
        }
    }

    /// Processes a batch of arbitrary packets.
    #[inline(never)]
    fn process_mixed(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        let mut classes = [FrameClass::Pass; BURST];
        let (mut n4, mut n6, mut at) = (0, 0, 0);
        batch.for_each(|packet| {
            let class = match key::parse(packet.data()) {
                FrameKey::V4(key) => {
                    self.keys4[n4 & (BURST - 1)] = key;
                    n4 += 1;
                    FrameClass::V4
                }
                FrameKey::V6(key) => {
                    self.keys6[n6 & (BURST - 1)] = key;
                    n6 += 1;
                    FrameClass::V6
                }
                FrameKey::Other if self.other == Action::Accept => FrameClass::Pass,
                FrameKey::Other => FrameClass::Drop(DropReason::NotIp),
                FrameKey::Malformed => FrameClass::Drop(DropReason::MalformedIp),
                FrameKey::TinyFragment => FrameClass::Drop(DropReason::TinyFragment),
            };
            classes[at & (BURST - 1)] = class;
            at += 1;
        });
        let (v4, v6) = (self.rules.classify4_new(&self.keys4[..n4]), self.rules.classify6_new(&self.keys6[..n6]));
        let (mut at4, mut at6) = (0..n4, 0..n6);
        let mut classes = classes.iter();
        batch.extract_if(
            |_| match classes.next()? {
                FrameClass::V4 => v4.reason(at4.next()?),
                FrameClass::V6 => v6.reason(at6.next()?),
                FrameClass::Drop(reason) => Some(*reason),
                FrameClass::Pass => None,
            },
            |reason, packet| cx.drop(reason, packet),
        );
    }
}

impl Node for StatelessNode {
    fn drops(&self) -> &[&'static str] {
        &DropReason::NAMES[..=DropReason::TinyFragment as usize]
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.rules.counters.clone().unwrap_or_default()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.mailbox.receive(&mut self.rules, cx);
        let n = batch.len();
        let (mut not_plain, mut at) = (0u64, 0);
        let keys = &mut self.keys4;
        batch.for_each(
            #[inline(always)]
            |packet| {
                if !key::write_plain_key(packet.data(), &mut keys[at & (BURST - 1)]) {
                    not_plain |= 1 << at;
                }
                at += 1;
            },
        );
        if not_plain != 0 {
            return self.process_mixed(cx, batch);
        }
        let verdict = self.rules.classify4_new(&self.keys4[..n]);
        if verdict.drop != 0 {
            let mut at = 0..n;
            batch.extract_if(|_| verdict.reason(at.next()?), |reason, packet| cx.drop(reason, packet));
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(UPDATE_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.mailbox.receive(&mut self.rules, cx);
        let (changed, rejected) = self.live.change_counts();
        self.change_counters[ChangeCounter::Changed].set(changed);
        self.change_counters[ChangeCounter::Rejected].set(rejected);
    }
}
