//! What comes out of a stream, told to what looks at it.

use super::memory::Memory;
use super::slide::{Shape, Slide};
use super::stream::Chunk;
use super::{Event, Flow, Look, Verdict, Window};

/// Tells what looks at a stream what comes out of it.
pub(super) struct Teller<'a, L: Look> {
    pub(super) look: &'a mut L,
    pub(super) state: &'a mut L::State,
    pub(super) slide: &'a mut Slide,
    pub(super) shown: &'a mut u64,
    pub(super) bytes: &'a mut u64,
    pub(super) shape: Shape,
    pub(super) flow: Flow<'a>,
    pub(super) verdict: Verdict,
    /// Whether something was shown.
    pub(super) told: bool,
}

impl<L: Look> Teller<'_, L> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) -> bool {
        self.told = true;
        let flow = Flow { offset: *self.shown, ..self.flow };
        self.verdict = self.look.look(&flow, self.state, event);
        self.verdict == Verdict::Forward
    }

    /// Shows windows: all that are full with `bytes`, or what is left.
    #[inline(always)]
    pub(super) fn windows(&mut self, memory: &mut Memory, bytes: Option<&[u8]>) -> bool {
        let Self { look, state, slide, shown, bytes: count, shape, flow, verdict, told } = self;
        let mut show = |bytes: &[u8], old: usize| {
            *told = true;
            let fresh = (bytes.len() - old) as u64;
            let flow = Flow { offset: **shown, ..*flow };
            **shown += fresh;
            **count += fresh;
            *verdict = look.look(&flow, state, Event::Window(Window { bytes, old }));
            *verdict == Verdict::Forward
        };
        match bytes {
            Some(bytes) => slide.push(*shape, memory, bytes, &mut show),
            None => slide.flush(*shape, &mut show),
        }
    }

    #[inline(always)]
    pub(super) fn tell(&mut self, memory: &mut Memory, chunk: Chunk<'_>) -> bool {
        // who has decided is asked no more
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
