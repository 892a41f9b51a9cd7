//! The end of a path.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Nf, Node};
use packet::Batch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `drop`: drops every packet.
pub struct Discard;

/// `drop` has no settings.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {}

struct Discarding;

impl Nf for Discard {
    type Settings = Settings;
    const KIND: &'static str = "drop";
    const ABOUT: &'static str = "Drops every packet; a path may end with it.";
    const OUTPUTS: &'static [&'static str] = &[];

    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(Discarding)
    }
}

impl Node for Discarding {
    fn drops(&self) -> &[&'static str] {
        &["discarded"]
    }

    fn outputs(&self) -> &[&'static str] {
        &[]
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        batch.drain().for_each(|packet| cx.drop(0, packet));
    }
}

#[cfg(test)]
mod tests {
    use super::Discard;
    use testkit::Bench;

    #[test]
    fn nothing_comes_out() {
        assert_eq!(Bench::of::<Discard>("").one(&[0; 60]), Err("discarded"));
    }
}
