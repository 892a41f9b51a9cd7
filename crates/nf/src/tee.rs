//! Copies for somebody else.

use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, Nf, Node};
use packet::Batch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `tee`: sends a copy of packets out of a second output.
pub struct Tee;

/// Settings of [`Tee`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Copies one packet out of this many.
    every: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { every: 1 }
    }
}

struct Copying {
    every: u32,
    /// Packets until the next copy.
    left: u32,
    not_copied: Arc<Counter>,
}

impl Nf for Tee {
    type Settings = Settings;
    const KIND: &'static str = "tee";
    const ABOUT: &'static str = "Lets every packet pass and sends a copy out of its output \"copy\".";
    const OUTPUTS: &'static [&'static str] = &["out", "copy"];
    const EXAMPLE: &'static str = "every = 100";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        if settings.every == 0 {
            let d = Diagnostic::new("no packet is the 0th").key("every").value(0);
            return Err(d.remedy("write 1 to copy every packet, 100 to copy one in a hundred"));
        }
        Ok(Copying { every: settings.every, left: settings.every, not_copied: Arc::default() })
    }
}

impl Node for Copying {
    fn outputs(&self) -> &[&'static str] {
        Tee::OUTPUTS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![("not_copied".to_owned(), self.not_copied.clone())]
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.iter() {
            self.left -= 1;
            if self.left != 0 {
                continue;
            }
            self.left = self.every;
            match cx.copy(packet) {
                Some(copy) => cx.emit(1, copy),
                None => self.not_copied.add(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tee;
    use testkit::{Bench, Setup};

    #[test]
    fn copies_one_in_so_many() {
        let mut nf = Bench::of::<Tee>("every = 3");
        let frames: Vec<Vec<u8>> = (0..100u8).map(|i| vec![i; 60]).collect();
        let copies = frames.iter().skip(2).step_by(3).cloned().collect();
        assert_eq!(nf.feed_by(0, &frames), [frames, copies]);
    }

    #[test]
    fn without_buffers_the_packets_still_pass() {
        let mut nf = Setup::of::<Tee>("").buffers(32).build().unwrap();
        let frames: Vec<Vec<u8>> = (0..32u8).map(|i| vec![i; 60]).collect();
        assert_eq!(nf.feed_by(0, &frames), [frames, vec![]]);
        assert_eq!(nf.counters(), [("not_copied".to_owned(), 32)]);
    }

    #[test]
    fn every_nought_is_refused() {
        assert!(Bench::try_of::<Tee>("every = 0").unwrap_err().key == Some("every"));
    }
}
