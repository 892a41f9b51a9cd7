//! Histograms as text: base64 of the compressed second form of HdrHistogram, as its logs have it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::io::Read;

use crate::limit;

/// Cookie of the second form, plain.
const PLAIN: u32 = 0x1c84_9313;
/// Cookie of the second form, compressed.
const COMPRESSED: u32 = 0x1c84_9314;
/// Bytes of the head of the plain form.
const HEAD: usize = 40;
/// Most bytes of the plain form: three digits over all of u64 are 56,320 counts; nine bytes each.
const MOST: usize = HEAD + 9 * 56_320;
/// Most significant digits, what bounds the memory of a histogram to half a megabyte.
const DIGITS: u32 = 3;

/// Why a histogram was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HdrError {
    /// Not of the form.
    #[error("not base64 of a compressed HdrHistogram: {0}")]
    Form(String),
    /// More significant digits than are kept.
    #[error("{0} significant digits, 1 to {DIGITS} are kept")]
    Digits(u32),
    /// Does not fit in a document.
    #[error("{0} characters, at most {most} are kept; use fewer significant digits", most = limit::HDR)]
    TooLong(usize),
}

/// Writes a histogram.
///
/// # Errors
/// When it has more than three significant digits, or its text is longer than [`limit::HDR`].
pub fn encode(histogram: &Histogram<u64>) -> Result<String, HdrError> {
    if u32::from(histogram.sigfig()) > DIGITS {
        return Err(HdrError::Digits(histogram.sigfig().into()));
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|e| HdrError::Form(e.to_string()))?;
    let text = STANDARD.encode(bytes);
    if text.len() > limit::HDR { Err(HdrError::TooLong(text.len())) } else { Ok(text) }
}

/// Reads a histogram of a stranger: memory is bounded whatever the text says.
///
/// # Errors
/// When it is not a histogram, or one that [`encode`] does not write.
pub fn decode(text: &str) -> Result<Histogram<u64>, HdrError> {
    let form = |what: &str| HdrError::Form(what.to_owned());
    if text.len() > limit::HDR {
        return Err(HdrError::TooLong(text.len()));
    }
    let bytes = STANDARD.decode(text).map_err(|e| HdrError::Form(e.to_string()))?;
    let Some((&head, body)) = bytes.split_first_chunk::<8>() else { return Err(form("cut short")) };
    if word(&head, 0) != COMPRESSED {
        return Err(form("another cookie"));
    }
    if word(&head, 4) as usize != body.len() {
        return Err(form("another length than it says"));
    }
    let mut plain = Vec::new();
    let inflated = ZlibDecoder::new(body).take(MOST as u64 + 1).read_to_end(&mut plain);
    inflated.map_err(|e| HdrError::Form(e.to_string()))?;
    if plain.len() > MOST || plain.len() < HEAD {
        return Err(form("too long or cut short"));
    }
    if word(&plain, 0) != PLAIN || word(&plain, 4) as usize != plain.len() - HEAD {
        return Err(form("another length than it says"));
    }
    let digits = word(&plain, 12);
    if !(1..=DIGITS).contains(&digits) {
        return Err(HdrError::Digits(digits));
    }
    counts(&plain[HEAD..])?;
    Deserializer::new().deserialize(&mut plain.as_slice()).map_err(|e| HdrError::Form(e.to_string()))
}

/// Four bytes, big-endian; the caller has seen to the length.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// Whether the counts can be added up: the reader of the library relies on it.
fn counts(mut body: &[u8]) -> Result<(), HdrError> {
    let mut total = 0u64;
    while !body.is_empty() {
        let (mut number, mut used) = (0u64, 0);
        loop {
            let Some(&byte) = body.get(used) else { return Err(HdrError::Form("ends within a count".to_owned())) };
            // the ninth byte is whole (LEB128 of 64 bits in nine bytes)
            let (bits, more) = if used == 8 { (byte, false) } else { (byte & 0x7f, byte & 0x80 != 0) };
            number |= u64::from(bits) << (7 * used);
            used += 1;
            if !more {
                break;
            }
        }
        body = &body[used..];
        let zeros = number & 1 == 1;
        let n = number >> 1;
        total = total.saturating_add(if zeros { 0 } else { n });
        if total > limit::COUNT || (zeros && n > MOST as u64) {
            return Err(HdrError::Form("counts too large".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(plain: &[u8]) -> String {
        use std::io::Write;
        let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        z.write_all(plain).unwrap();
        let body = z.finish().unwrap();
        let mut out = COMPRESSED.to_be_bytes().to_vec();
        out.extend((body.len() as u32).to_be_bytes());
        out.extend(body);
        STANDARD.encode(out)
    }

    fn plain(digits: u32, body: &[u8]) -> Vec<u8> {
        let mut out = PLAIN.to_be_bytes().to_vec();
        out.extend((body.len() as u32).to_be_bytes());
        out.extend(0u32.to_be_bytes());
        out.extend(digits.to_be_bytes());
        out.extend(1u64.to_be_bytes());
        out.extend(1_000_000u64.to_be_bytes());
        out.extend(1.0f64.to_be_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn the_form_is_that_of_its_logs() {
        let mut h = Histogram::<u64>::new(3).unwrap();
        h.record(1000).unwrap();
        // every compressed histogram of the second form starts with its cookie
        assert!(encode(&h).unwrap().starts_with("HISTF"));
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut bomb = plain(3, &[]);
        bomb.resize(64 << 20, 0);
        let text = pack(&bomb);
        assert!(text.len() < limit::HDR, "{}", text.len());
        assert!(decode(&text).is_err());
        assert_eq!(decode(&pack(&plain(5, &[2]))).unwrap_err(), HdrError::Digits(5));
        assert_eq!(decode(&pack(&plain(3, &[4, 6]))).unwrap().len(), 5);
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        for body in [&[0xff; 9][..], &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x80]] {
            assert!(matches!(decode(&pack(&plain(3, body))), Err(HdrError::Form(_))), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(samples in prop::collection::vec((any::<u64>(), 0..64u32), 0..200)) {
            let mut h = Histogram::<u64>::new(3).unwrap();
            for &(n, shift) in &samples {
                h.record(n >> shift).unwrap();
            }
            prop_assert_eq!(decode(&encode(&h).unwrap()).unwrap(), h);
        }

        #[test]
        fn no_body_panics(digits in 0u32..5, body in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(h) = decode(&pack(&plain(digits, &body))) {
                prop_assert!(h.len() <= limit::COUNT && h.value_at_quantile(0.999) <= h.max());
            }
        }

        #[test]
        fn no_text_panics(text in "[A-Za-z0-9+/=]{0,80}") {
            prop_assert!(decode(&text).is_err());
        }
    }
}
