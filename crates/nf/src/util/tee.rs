//! Copying packets to a second output.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, Counters, Named, Nf, Node};
use packet::Batch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `tee`: passes every packet and sends copies to a second output.
pub struct Tee;

/// Settings of [`Tee`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Sampling rate: one packet in `every` is copied, 1 or more.
    every: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { every: 1 }
    }
}

graph::named_enum! {
    /// Outputs.
    enum Output {
        #[allow(dead_code, reason = "packets leave by output 0 unless another one is named")]
        Out = "out",
        Copy = "copy",
    }
}

graph::named_enum! {
    /// Counters.
    enum CounterId {
        /// Packets that were not copied because the buffer pool was empty.
        NotCopied = "not_copied",
    }
}

struct TeeNode {
    every: u32,
    /// Packets until the next copy.
    remaining: u32,
    counters: Counters<CounterId>,
}

impl Nf for Tee {
    type Settings = Settings;
    const KIND: &'static str = "tee";
    const ABOUT: &'static str = "Passes every packet and sends a copy of one in `every` to its output \"copy\".";
    const OUTPUTS: &'static [&'static str] = Output::NAMES;
    const EXAMPLE: &'static str = "every = 100";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        if settings.every == 0 {
            let d = Diagnostic::new("sampling rate is 0").key("every").value(0);
            return Err(d.remedy("write 1 to copy every packet, 100 to copy one in a hundred"));
        }
        Ok(TeeNode { every: settings.every, remaining: settings.every, counters: Counters::default() })
    }
}

impl Node for TeeNode {
    fn outputs(&self) -> &[&'static str] {
        Tee::OUTPUTS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.iter() {
            self.remaining -= 1;
            if self.remaining != 0 {
                continue;
            }
            self.remaining = self.every;
            match cx.copy(packet) {
                Some(copy) => cx.emit(Output::Copy, copy),
                None => self.counters[CounterId::NotCopied].add(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tee;
    use testkit::{Harness, HarnessBuilder};

    #[test]
    fn copies_one_packet_in_three() {
        let mut nf = Harness::new::<Tee>("every = 3");
        let frames: Vec<Vec<u8>> = (0..100u8).map(|i| vec![i; 60]).collect();
        let copies = frames.iter().skip(2).step_by(3).cloned().collect();
        assert_eq!(nf.feed_input(0, &frames), [frames, copies]);
    }

    #[test]
    fn passes_packets_when_no_buffer_is_free() {
        let mut nf = HarnessBuilder::new::<Tee>("").buffers(32).build().unwrap();
        let frames: Vec<Vec<u8>> = (0..32u8).map(|i| vec![i; 60]).collect();
        assert_eq!(nf.feed_input(0, &frames), [frames, vec![]]);
        assert_eq!(nf.counters(), [("not_copied".to_owned(), 32)]);
    }

    #[test]
    fn rejects_a_sampling_rate_of_0() {
        assert!(Harness::try_new::<Tee>("every = 0").unwrap_err().key == Some("every"));
    }
}
