//! RTP.

use super::bytes::{be16, be32, byte};
use super::{Context, Verdict};

/// Recognises the second of two packets of a source whose sequence numbers are close (RFC 3550 §5.1, appendix A.1).
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let [first, second, ..] = payload else { return Verdict::NoMatch };
    let (Some(sequence), Some(source)) = (be16(payload, 2), be32(payload, 8)) else { return Verdict::NoMatch };
    let kind = second & 0x7f;
    let contributors = usize::from(first & 15);
    // types of 72 to 76 are those of RTCP
    if first >> 6 != 2 || !matches!(kind, 0..=34 | 77..=127) || source == 0 || payload.len() < 13 + 4 * contributors {
        return Verdict::NoMatch;
    }
    let previous = context.previous.bytes();
    let (Some(last), Some(last_source)) = (be16(previous, 2), be32(previous, 8)) else { return Verdict::NeedMore };
    if last_source != source || byte(previous, 0).map(|byte| byte >> 6) != Some(2) {
        return Verdict::NeedMore;
    }
    let step = sequence.wrapping_sub(last);
    if (1..=64).contains(&step) || (0xfff0..).contains(&step) { Verdict::Match } else { Verdict::NoMatch }
}
