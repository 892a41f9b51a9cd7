use proptest::prelude::*;

use super::*;

fn of(values: &[u64]) -> Delays {
    let mut delays = Delays::new();
    values.iter().for_each(|ns| delays.record(*ns));
    delays
}

#[test]
fn nothing_is_nothing() {
    let delays = Delays::new();
    assert_eq!(
        (delays.min_ns(), delays.max_ns(), delays.quantile_ns(0.5), delays.pdv_ns(0.99)),
        (None, None, None, None)
    );
    assert_eq!(delays.mean_ns(), None);
    assert_eq!(Delays::from_base64(&delays.to_base64().unwrap()).unwrap(), delays);
}

#[test]
fn delays_beyond_the_range_still_count() {
    let delays = of(&[0, MAX_NS * 3, u64::MAX]);
    assert_eq!(delays.count(), 3);
    assert_eq!(delays.min_ns(), Some(0));
    assert!(delays.max_ns().is_some_and(|max| max >= MAX_NS));
}

#[test]
fn variation() {
    let mut delays = Delays::new();
    (0..1000).for_each(|i| delays.record(1000 + i));
    assert_eq!(delays.pdv_ns(1.0), Some(999));
    let report = delays.rfc8219().unwrap();
    assert_eq!((report.typical_ns, report.worst_ns, report.pdv_ns), (1499, 1998, 998));
    assert_eq!(of(&[5; 499]).rfc8219(), None);
}

#[test]
fn jitter_by_hand() {
    let mut jitter = Jitter::default();
    jitter.record(1_000_000);
    assert_eq!(jitter.ns(), 0.0, "the first packet has no predecessor");
    jitter.record(1_001_600);
    assert_eq!(jitter.ns(), 100.0);
    jitter.record(1_001_600);
    assert_eq!(jitter.ns(), 93.75);
}

#[test]
fn merging_is_recording_all() {
    let (mut a, b) = (of(&[1, 2, 3_000_000]), of(&[7, 3_000_000]));
    a.merge(&b);
    assert_eq!(a, of(&[1, 2, 3_000_000, 7, 3_000_000]));
    assert_eq!(a.buckets().map(|(_, count)| count).sum::<u64>(), 5);
    a.clear();
    assert_eq!(a, Delays::new());
}

#[test]
fn the_format_is_hdrhistograms() {
    let text = of(&[1000]).to_base64().unwrap();
    // Every deflated V2 histogram starts with its cookie.
    assert!(text.starts_with("HISTF"), "{text}");
}

#[test]
fn hostile_texts() {
    assert!(matches!(Delays::from_base64("*"), Err(HdrError::Text(_))));
    assert!(matches!(Delays::from_base64(""), Err(HdrError::Text(_))));
    assert!(matches!(Delays::from_base64(&"A".repeat(MAX_TEXT + 1)), Err(HdrError::Long(_))));
    let pack = |plain: &[u8]| {
        let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut deflated, plain).unwrap();
        let deflated = deflated.finish().unwrap();
        STANDARD.encode([&V2_DEFLATE[..], &(deflated.len() as u32).to_be_bytes(), &deflated].concat())
    };
    let header = |payload: u32, digits: u32, high: u64| {
        [
            &V2[..],
            &payload.to_be_bytes(),
            &[0; 4],
            &digits.to_be_bytes(),
            &1_u64.to_be_bytes(),
            &high.to_be_bytes(),
            &1.0_f64.to_be_bytes(),
        ]
        .concat()
    };
    let read = |plain: &[u8]| Delays::from_base64(&pack(plain)).unwrap_err();
    // A bomb: 100 MB of zeros.
    assert!(matches!(read(&vec![0; 100_000_000]), HdrError::Damaged(_)));
    assert!(matches!(read(&header(u32::MAX, 3, 1000)), HdrError::Damaged(_)));
    assert!(matches!(read(&header(0, 5, u64::MAX)), HdrError::Shape { digits: 5, .. }));
    assert!(matches!(read(&header(0, 3, u64::MAX)), HdrError::Shape { .. }));
    assert_eq!(Delays::from_base64(&pack(&header(0, 3, MAX_NS))), Ok(Delays::new()));
    // The longest run of zeros a varint can tell, i64::MIN.
    assert!(matches!(read(&[&header(9, 3, MAX_NS)[..], &[0xff; 9]].concat()), HdrError::Damaged(_)));
    // Counters that overflow when added.
    let huge = [[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]; 3].concat();
    assert!(matches!(read(&[&header(27, 3, MAX_NS)[..], &huge].concat()), HdrError::Damaged(_)));
    assert!(matches!(read(&[&header(2, 3, MAX_NS)[..], &[0xff, 0xff]].concat()), HdrError::Damaged(_)));
}

#[test]
fn scales() {
    assert_eq!(Scale::new(1_000_000_000).ns(123_456_789_012), 123_456_789_012);
    let hour = Scale::new(2_700_000_000).ns(2_700_000_000 * 3600);
    assert!(hour.abs_diff(3_600_000_000_000) < 3_600, "{hour}: off by more than 1 in 10⁹");
    assert_eq!(Scale::new(0).ns(u64::MAX), u64::MAX);
}

proptest! {
    #[test]
    fn round_trip(values in prop::collection::vec(0_u64..20_000_000_000, 0..300)) {
        let delays = of(&values);
        prop_assert_eq!(Delays::from_base64(&delays.to_base64().unwrap()), Ok(delays));
    }

    #[test]
    fn quantiles_are_near(mut values in prop::collection::vec(0_u64..MAX_NS, 1..300), share in 0.0..=1.0_f64) {
        let delays = of(&values);
        values.sort_unstable();
        let exact = values[((share * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
        let told = delays.quantile_ns(share).unwrap();
        prop_assert!(told >= exact && told - exact <= exact / 900 + 1, "{} for {}", told, exact);
    }

    #[test]
    fn damaged_texts_are_read_or_refused(
        values in prop::collection::vec(0_u64..MAX_NS, 0..50), at: prop::sample::Index, byte: u8,
    ) {
        let text = of(&values).to_base64().unwrap();
        let mut bytes = STANDARD.decode(text).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Delays::from_base64(&STANDARD.encode(bytes));
    }
}
