//! What the device under test is offered.

use crate::{Profile, limit, rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The traffic of all trials of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Traffic {
    /// Sizes of the frames.
    pub frames: Frames,
    /// Flows: distinct five-tuples in a direction.
    pub flows: u64,
    /// What is in the frames, as `udp4`; `as captured` for those of a capture.
    pub protocol: String,
    /// Frames sent back to back; 1 is even spacing.
    pub burst: u32,
    /// Directions at once, 1 or 2. All rates of the document are those of one.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 2))]
    pub directions: u8,
    /// SHA-256 of the trace's file, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub trace_sha256: Option<String>,
    /// SHA-256 of the file that is sent the other way at the same time, where that is one of its own, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub back_sha256: Option<String>,
    /// The script by which it changed from second to second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Seed of what is random in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

fn one() -> u8 {
    1
}

/// Sizes of frames, in bytes with the FCS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// All of one size.
    FrameBytes(u16),
    /// A mix of sizes.
    Mix(Mix),
    /// As in a trace.
    Trace(Trace),
}

/// A mix of frame sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// Its sizes.
    #[serde(deserialize_with = "limit::list::<_, _, { limit::SIZES }>")]
    #[schemars(length(min = 1, max = limit::SIZES))]
    pub parts: Vec<MixPart>,
}

/// One size of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MixPart {
    /// Bytes of a frame, with the FCS.
    pub frame_bytes: u16,
    /// How many of these, against the weights of the others.
    #[schemars(range(min = 1))]
    pub weight: u32,
}

/// The frames of a trace, sent over and over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Trace {
    /// Its file's name, without its folder; those of both directions, separated by a comma.
    pub name: String,
    /// Frames in it that are sent.
    #[schemars(range(min = 1))]
    pub frames: u64,
    /// Mean bytes of a frame, with the FCS.
    pub mean_frame_bytes: f64,
}

impl Frames {
    /// Mean bytes of a frame, with the FCS.
    pub fn mean_bytes(&self) -> f64 {
        match self {
            Frames::FrameBytes(bytes) => f64::from(*bytes),
            Frames::Trace(trace) => trace.mean_frame_bytes,
            Frames::Mix(mix) => {
                let sum = |f: fn(&MixPart) -> f64| mix.parts.iter().map(f).sum::<f64>();
                let weight = sum(|p| f64::from(p.weight));
                if weight > 0.0 { sum(|p| f64::from(p.weight) * f64::from(p.frame_bytes)) / weight } else { 0.0 }
            }
        }
    }

    /// What to call it: the size, or the name of the mix or trace.
    pub fn label(&self) -> String {
        match self {
            Frames::FrameBytes(bytes) => bytes.to_string(),
            Frames::Mix(mix) => mix.name.clone(),
            Frames::Trace(trace) => trace.name.clone(),
        }
    }
}

impl Traffic {
    /// Bits a second on the wire at `pps`, with preamble and gap.
    pub fn l1_bps(&self, pps: f64) -> f64 {
        rate::l1_bps(pps, self.frames.mean_bytes())
    }

    /// Bits a second in frames at `pps`.
    pub fn l2_bps(&self, pps: f64) -> f64 {
        rate::l2_bps(pps, self.frames.mean_bytes())
    }

    /// Most frames a second on 10-Gigabit Ethernet.
    pub fn line_pps(&self) -> f64 {
        rate::line_pps(rate::TEN_GBE_BPS, self.frames.mean_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_mix_is_weighted() {
        // 7:4:1 of 64, 594, 1518, as NFVbench has it
        let parts = [(64, 7), (594, 4), (1518, 1)].map(|(frame_bytes, weight)| MixPart { frame_bytes, weight });
        let mix = Frames::Mix(Mix { name: "imix".to_owned(), parts: parts.to_vec() });
        assert!((mix.mean_bytes() - 361.833).abs() < 1e-3);
        assert_eq!(Frames::Mix(Mix { name: String::new(), parts: Vec::new() }).mean_bytes(), 0.0);
    }
}
