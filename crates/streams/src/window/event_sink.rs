//! Delivery of stream events to the closure.

use super::memory::Memory;
use super::sliding_window::{SlidingWindow, WindowShape};
use super::stream_state::Chunk;
use super::{Event, Flow, Inspect, Verdict, Window};

/// Delivers events of a stream to the closure.
pub(super) struct EventSink<'a, L: Inspect> {
    pub(super) look: &'a mut L,
    pub(super) state: &'a mut L::State,
    pub(super) slide: &'a mut SlidingWindow,
    pub(super) shown: &'a mut u64,
    pub(super) bytes: &'a mut u64,
    pub(super) shape: WindowShape,
    pub(super) flow: Flow<'a>,
    pub(super) verdict: Verdict,
    /// True after an event was delivered.
    pub(super) told: bool,
}

impl<L: Inspect> EventSink<'_, L> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) -> bool {
        self.told = true;
        let flow = Flow { offset: *self.shown, ..self.flow };
        self.verdict = self.look.inspect(&flow, self.state, event);
        self.verdict == Verdict::Forward
    }

    /// Delivers windows: all that are complete with `bytes`, or the rest.
    #[inline(always)]
    pub(super) fn windows(&mut self, memory: &mut Memory, bytes: Option<&[u8]>) -> bool {
        let Self { look, state, slide, shown, bytes: count, shape, flow, verdict, told } = self;
        let mut show = |bytes: &[u8], old: usize| {
            *told = true;
            let fresh = (bytes.len() - old) as u64;
            let flow = Flow { offset: **shown, ..*flow };
            **shown += fresh;
            **count += fresh;
            *verdict = look.inspect(&flow, state, Event::Window(Window { bytes, old }));
            *verdict == Verdict::Forward
        };
        match bytes {
            Some(bytes) => slide.push(*shape, memory, bytes, &mut show),
            None => slide.flush(*shape, &mut show),
        }
    }

    #[inline(always)]
    pub(super) fn tell(&mut self, memory: &mut Memory, chunk: Chunk<'_>) -> bool {
        // no events after a verdict
        if self.verdict != Verdict::Forward {
            return false;
        }
        match chunk {
            Chunk::Bytes(bytes) => self.windows(memory, Some(bytes)),
            Chunk::Gap(..) | Chunk::End(_) => self.tell_rest(memory, &chunk),
        }
    }

    #[cold]
    fn tell_rest(&mut self, memory: &mut Memory, chunk: &Chunk<'_>) -> bool {
        if !self.windows(memory, None) {
            return false;
        }
        self.slide.clear(memory);
        match *chunk {
            Chunk::Gap(bytes, why) => {
                let more = self.event(Event::Gap { bytes, why });
                *self.shown += u64::from(bytes);
                more
            }
            Chunk::End(why) => self.event(Event::End(why)),
            Chunk::Bytes(_) => true,
        }
    }
}
