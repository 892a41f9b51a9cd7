//! Histograms as text: base64 of the compressed V2 encoding of HdrHistogram, as in HdrHistogram logs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::io::Read;

use crate::limit;

/// Cookie of the V2 encoding.
const V2_COOKIE: u32 = 0x1c84_9313;
/// Cookie of the compressed V2 encoding.
const V2_COMPRESSED_COOKIE: u32 = 0x1c84_9314;
/// Bytes of the header of the V2 encoding.
const HEADER_LEN: usize = 40;
/// Maximum size of the V2 encoding, bytes: three digits over the range of u64 are 56,320 counts of nine bytes.
const MAX_LEN: usize = HEADER_LEN + 9 * 56_320;
/// Maximum number of significant digits; bounds the memory of a histogram to half a megabyte.
const MAX_DIGITS: u32 = 3;

/// Why a histogram was not decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HdrError {
    /// Invalid encoding.
    #[error("not base64 of a compressed HdrHistogram: {0}")]
    Encoding(String),
    /// Unsupported number of significant digits.
    #[error("{0} significant digits: 1 to {MAX_DIGITS} are supported")]
    Digits(u32),
    /// Too long for a document.
    #[error("{0} characters, the limit is {max}; use fewer significant digits", max = limit::HDR)]
    TooLong(usize),
}

/// Encodes a histogram.
///
/// # Errors
/// If it has more than three significant digits, or its text is longer than [`limit::HDR`].
pub fn encode(histogram: &Histogram<u64>) -> Result<String, HdrError> {
    if u32::from(histogram.sigfig()) > MAX_DIGITS {
        return Err(HdrError::Digits(histogram.sigfig().into()));
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|e| HdrError::Encoding(e.to_string()))?;
    let text = STANDARD.encode(bytes);
    if text.len() > limit::HDR { Err(HdrError::TooLong(text.len())) } else { Ok(text) }
}

/// Decodes an untrusted histogram; memory is bounded for any text.
///
/// # Errors
/// If it is not a histogram, or one that [`encode`] does not produce.
pub fn decode(text: &str) -> Result<Histogram<u64>, HdrError> {
    let invalid = |problem: &str| HdrError::Encoding(problem.to_owned());
    if text.len() > limit::HDR {
        return Err(HdrError::TooLong(text.len()));
    }
    let bytes = STANDARD.decode(text).map_err(|e| HdrError::Encoding(e.to_string()))?;
    let Some((&header, body)) = bytes.split_first_chunk::<8>() else { return Err(invalid("truncated")) };
    if read_u32(&header, 0) != V2_COMPRESSED_COOKIE {
        return Err(invalid("wrong cookie"));
    }
    if read_u32(&header, 4) as usize != body.len() {
        return Err(invalid("wrong length"));
    }
    let mut plain = Vec::new();
    let inflated = ZlibDecoder::new(body).take(MAX_LEN as u64 + 1).read_to_end(&mut plain);
    inflated.map_err(|e| HdrError::Encoding(e.to_string()))?;
    if plain.len() > MAX_LEN || plain.len() < HEADER_LEN {
        return Err(invalid("too long or truncated"));
    }
    if read_u32(&plain, 0) != V2_COOKIE || read_u32(&plain, 4) as usize != plain.len() - HEADER_LEN {
        return Err(invalid("wrong length"));
    }
    let digits = read_u32(&plain, 12);
    if !(1..=MAX_DIGITS).contains(&digits) {
        return Err(HdrError::Digits(digits));
    }
    check_counts(&plain[HEADER_LEN..])?;
    Deserializer::new().deserialize(&mut plain.as_slice()).map_err(|e| HdrError::Encoding(e.to_string()))
}

/// Reads a big-endian u32; the caller checks the length.
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

/// Checks that the sum of the counts does not overflow, which the deserialiser relies on.
fn check_counts(mut body: &[u8]) -> Result<(), HdrError> {
    let mut total = 0u64;
    while !body.is_empty() {
        let (mut number, mut used) = (0u64, 0);
        loop {
            let Some(&byte) = body.get(used) else { return Err(HdrError::Encoding("truncated count".to_owned())) };
            // the ninth byte has eight bits (LEB128 of 64 bits in nine bytes)
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
        if total > limit::COUNT || (zeros && n > MAX_LEN as u64) {
            return Err(HdrError::Encoding("count overflow".to_owned()));
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
        let mut out = V2_COMPRESSED_COOKIE.to_be_bytes().to_vec();
        out.extend((body.len() as u32).to_be_bytes());
        out.extend(body);
        STANDARD.encode(out)
    }

    fn plain(digits: u32, body: &[u8]) -> Vec<u8> {
        let mut out = V2_COOKIE.to_be_bytes().to_vec();
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
    fn encoding_is_that_of_hdrhistogram_logs() {
        let mut h = Histogram::<u64>::new(3).unwrap();
        h.record(1000).unwrap();
        // base64 of the cookie
        assert!(encode(&h).unwrap().starts_with("HISTF"));
    }

    #[test]
    fn rejects_compression_bomb() {
        let mut bomb = plain(3, &[]);
        bomb.resize(64 << 20, 0);
        let text = pack(&bomb);
        assert!(text.len() < limit::HDR, "{}", text.len());
        assert!(decode(&text).is_err());
        assert_eq!(decode(&pack(&plain(5, &[2]))).unwrap_err(), HdrError::Digits(5));
        assert_eq!(decode(&pack(&plain(3, &[4, 6]))).unwrap().len(), 5);
    }

    #[test]
    fn rejects_overflowing_counts() {
        for body in [&[0xff; 9][..], &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x80]] {
            assert!(matches!(decode(&pack(&plain(3, body))), Err(HdrError::Encoding(_))), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn decodes_encoded_histograms(samples in prop::collection::vec((any::<u64>(), 0..64u32), 0..200)) {
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
