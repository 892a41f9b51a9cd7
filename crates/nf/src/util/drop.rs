//! Dropping every packet.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Named, Nf, Node};
use packet::Batch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `drop`: drops every packet.
pub struct DropAll;

/// `drop` has no settings.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {}

graph::named_enum! {
    /// Drop reasons.
    enum DropReason {
        /// Every packet.
        Discarded = "discarded",
    }
}

struct DropNode;

impl Nf for DropAll {
    type Settings = Settings;
    const KIND: &'static str = "drop";
    const ABOUT: &'static str = "Drops every packet; the last NF of a path that has no output port.";
    const OUTPUTS: &'static [&'static str] = &[];

    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(DropNode)
    }
}

impl Node for DropNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn outputs(&self) -> &[&'static str] {
        DropAll::OUTPUTS
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        batch.drain().for_each(|packet| cx.drop(DropReason::Discarded, packet));
    }
}

#[cfg(test)]
mod tests {
    use super::DropAll;
    use testkit::Harness;

    #[test]
    fn drops_every_packet() {
        assert_eq!(Harness::new::<DropAll>("").feed_one(&[0; 60]), Err("discarded"));
    }
}
