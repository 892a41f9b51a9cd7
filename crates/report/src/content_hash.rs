//! The content hash that identifies a document: SHA-256 of its canonical form (RFC 8785) without the member `id`.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Returns the content hash of a document.
pub(crate) fn content_hash(document: &Value) -> String {
    let mut document = document.clone();
    if let Some(members) = document.as_object_mut() {
        members.remove("id");
    }
    sha256(canonical(&document).as_bytes())
}

/// Returns the canonical form (RFC 8785).
pub(crate) fn canonical(value: &Value) -> String {
    // fails only for infinite numbers and for keys that are not strings; a `Value` has neither
    serde_json_canonicalizer::to_string(value).unwrap_or_default()
}

/// Returns the SHA-256 in lower-case hexadecimal, for [`Dut::chain_sha256`](crate::Dut::chain_sha256) and traces.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Returns true if a text has the format of [`sha256`]: 64 hexadecimal digits in lower case.
pub fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form_is_that_of_rfc_8785() {
        // RFC 8785 §3.2.2 and §3.2.3
        let text = r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        let canonical_text = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
            \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(canonical(&value), canonical_text);
        // §3.2.3: sorted by UTF-16 code units
        let text = r#"{"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        let order: String = canonical(&value).chars().filter(|c| ('2'..='7').contains(c) || *c == '1').collect();
        assert_eq!(order, "21467153");
    }

    #[test]
    fn hash_is_sha_256() {
        // FIPS 180-4, the example of "abc"
        let hash = sha256(b"abc");
        assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_hash(&hash) && !is_hash(&hash[1..]) && !is_hash(&hash.to_uppercase()));
    }
}
