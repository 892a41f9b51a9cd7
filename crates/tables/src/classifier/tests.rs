//! The classifier against a scan of the rules that shares nothing with it.

mod changing;

use super::block::NONE;
use super::*;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::prelude::*;

/// A packet, before it is a key.
#[derive(Clone, Debug)]
struct Packet {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    fragment: FragmentKind,
    upper: Header,
}

#[derive(Clone, Debug)]
enum Header {
    Unknown,
    Ports(u16, u16),
    Tcp(u16, u16, u8),
    Icmp(u8, u8),
}

impl Packet {
    fn key4(&self) -> Option<Key4> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (self.src, self.dst) else { return None };
        let key = Key4::new(src, dst, self.protocol, self.fragment);
        Some(match self.upper {
            Header::Unknown => key,
            Header::Ports(src, dst) => key.with_ports(src, dst),
            Header::Tcp(src, dst, flags) => key.with_tcp(src, dst, flags),
            Header::Icmp(kind, code) => key.with_icmp(kind, code),
        })
    }

    fn key6(&self) -> Option<Key6> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (self.src, self.dst) else { return None };
        let key = Key6::new(src, dst, self.protocol, self.fragment);
        Some(match self.upper {
            Header::Unknown => key,
            Header::Ports(src, dst) => key.with_ports(src, dst),
            Header::Tcp(src, dst, flags) => key.with_tcp(src, dst, flags),
            Header::Icmp(kind, code) => key.with_icmp(kind, code),
        })
    }

    /// Matches a rule as its documentation says, condition by condition.
    fn matches(&self, rule: &Rule) -> bool {
        let within = |address: u128, prefix: u128, width: u32, len: u8| {
            let free = width - u32::from(len);
            address.checked_shr(free).unwrap_or(0) == prefix.checked_shr(free).unwrap_or(0)
        };
        let addresses = match (rule.addresses, self.src, self.dst) {
            (Addresses::Any, ..) => true,
            (Addresses::V4 { src, dst }, IpAddr::V4(s), IpAddr::V4(d)) => {
                within(s.to_bits().into(), src.0.to_bits().into(), 32, src.1)
                    && within(d.to_bits().into(), dst.0.to_bits().into(), 32, dst.1)
            }
            (Addresses::V6 { src, dst }, IpAddr::V6(s), IpAddr::V6(d)) => {
                within(s.to_bits(), src.0.to_bits(), 128, src.1) && within(d.to_bits(), dst.0.to_bits(), 128, dst.1)
            }
            _ => false,
        };
        let later = self.fragment == FragmentKind::Later;
        let upper = match (&rule.upper, &self.upper) {
            (Upper::Any, _) => true,
            (Upper::Ports { src, dst }, Header::Ports(s, d) | Header::Tcp(s, d, _)) => {
                !later && src.contains(s) && dst.contains(d)
            }
            (Upper::Icmp { kind, code }, Header::Icmp(k, c)) => {
                let own = if self.src.is_ipv4() { 1 } else { 58 };
                !later && self.protocol == own && kind.contains(k) && code.contains(c)
            }
            _ => false,
        };
        let flags = match (rule.tcp_flags, &self.upper) {
            (None, _) => true,
            (Some(wanted), Header::Tcp(.., flags)) => {
                !later && self.protocol == 6 && flags & wanted.mask == wanted.value
            }
            _ => false,
        };
        let fragment = match rule.fragment {
            FragmentMatch::Any => true,
            FragmentMatch::Whole => self.fragment == FragmentKind::Whole,
            FragmentMatch::Fragment => self.fragment != FragmentKind::Whole,
            FragmentMatch::First => self.fragment == FragmentKind::First,
            FragmentMatch::Later => later,
        };
        addresses && upper && flags && fragment && rule.protocol.is_none_or(|p| p == self.protocol)
    }
}

/// Generates few distinct values, so that prefixes nest and packets match.
fn address4() -> impl Strategy<Value = u32> {
    prop_oneof![
        (0u32..4, 0u32..4, 0u32..3, any::<u8>()).prop_map(|(a, b, c, d)| a << 24 | b << 16 | c << 8 | u32::from(d)),
        prop::sample::select(vec![0, 1, u32::MAX, u32::MAX - 1, 0x8000_0000, 0x7fff_ffff]),
        any::<u32>(),
    ]
}

fn address6() -> impl Strategy<Value = u128> {
    (address4(), address4(), address4()).prop_map(|(a, b, c)| u128::from(a) << 96 | u128::from(b) << 48 | u128::from(c))
}

fn len(width: u8) -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(width), 0..=width, (1..=width / 8).prop_map(|n| n * 8)]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![prop::sample::select(vec![0, 22, 53, 80, 443, 1023, 1024, 8080, 65535]), any::<u16>()]
}

fn span<T: Copy + Ord + core::fmt::Debug + 'static>(
    point: impl Strategy<Value = T> + Clone + 'static,
    all: (T, T),
) -> BoxedStrategy<core::ops::RangeInclusive<T>> {
    prop_oneof![
        Just(all.0..=all.1),
        point.clone().prop_map(|p| p..=p),
        (point.clone(), point).prop_map(|(a, b)| a.min(b)..=a.max(b)),
    ]
    .boxed()
}

fn addresses() -> impl Strategy<Value = Addresses> {
    prop_oneof![
        1 => Just(Addresses::Any),
        6 => (address4(), len(32), address4(), len(32)).prop_map(|(s, sl, d, dl)| Addresses::V4 {
            src: (Ipv4Addr::from_bits(s), sl),
            dst: (Ipv4Addr::from_bits(d), dl),
        }),
        6 => (address6(), len(128), address6(), len(128)).prop_map(|(s, sl, d, dl)| Addresses::V6 {
            src: (Ipv6Addr::from_bits(s), sl),
            dst: (Ipv6Addr::from_bits(d), dl),
        }),
    ]
}

/// Generates valid rules of every kind.
fn rule() -> impl Strategy<Value = Rule> {
    let ports = || {
        (span(port().boxed(), (0, u16::MAX)), span(port().boxed(), (0, u16::MAX)))
            .prop_map(|(src, dst)| Upper::Ports { src, dst })
    };
    let byte = || prop_oneof![0..4u8, any::<u8>()].boxed();
    let icmp = (span(byte(), (0, 255)), span(byte(), (0, 255))).prop_map(|(kind, code)| Upper::Icmp { kind, code });
    let flags = (any::<u8>(), any::<u8>()).prop_map(|(mask, value)| Some(TcpFlags { mask, value: value & mask }));
    let plain = (Just(Upper::Any), prop_oneof![Just(None), any::<u8>().prop_map(Some)], Just(None));
    let kinds = prop_oneof![
        plain,
        (ports(), prop::sample::select(vec![None, Some(6), Some(17), Some(132)]), Just(None)),
        (ports(), prop::sample::select(vec![None, Some(6)]), flags.clone()),
        (Just(Upper::Any), Just(Some(6)), flags),
        (icmp, Just(None), Just(None)),
    ];
    let fragment = prop_oneof![
        4 => Just(FragmentMatch::Any),
        1 => Just(FragmentMatch::Whole),
        1 => Just(FragmentMatch::Fragment),
        1 => Just(FragmentMatch::First),
        1 => Just(FragmentMatch::Later),
    ];
    (addresses(), kinds, fragment).prop_map(|(addresses, (upper, protocol, tcp_flags), mut fragment)| {
        if fragment == FragmentMatch::Later && (upper != Upper::Any || tcp_flags.is_some()) {
            fragment = FragmentMatch::Any;
        }
        Rule { addresses, protocol, upper, tcp_flags, fragment }
    })
}

/// Choice of a rule and of fields that miss: input of [`aim`].
type Raw = ((prop::sample::Index, bool, u8), (u128, u128), (u16, u16, u8), (u8, u8));

fn raw() -> impl Strategy<Value = Raw> {
    (
        (any::<prop::sample::Index>(), any::<bool>(), any::<u8>()),
        (address6(), address6()),
        (port(), port(), any::<u8>()),
        (prop::sample::select(vec![6, 6, 17, 17, 1, 58, 132, 50, 0, 255]), any::<u8>()),
    )
}

/// Returns a packet that matches the rule in most fields, at the edges of its ranges often.
fn aim(rules: &[Rule], raw: &Raw) -> Packet {
    let ((index, v4, choice), (a, b), (p, q, flags), (mut protocol, edge)) = *raw;
    let rule = if rules.is_empty() { &Rule::ANY } else { index.get(rules) };
    let miss = |bit: u8| choice & 7 == bit;
    let low = |width: u8, len: u8| if len >= width { 0 } else { u128::MAX >> (128 - width + len) };
    let fill = |edge: u8, random: u128| [0, u128::MAX, random, random][usize::from(edge & 3)];
    let within = |prefix: u128, width, len, random| prefix & !low(width, len) | fill(edge, random) & low(width, len);
    let (src, dst) = match rule.addresses {
        Addresses::V4 { src, dst } if !miss(0) => (
            Ipv4Addr::from_bits(within(src.0.to_bits().into(), 32, src.1, a) as u32).into(),
            Ipv4Addr::from_bits(within(dst.0.to_bits().into(), 32, dst.1, b) as u32).into(),
        ),
        Addresses::V6 { src, dst } if !miss(0) => (
            Ipv6Addr::from_bits(within(src.0.to_bits(), 128, src.1, a)).into(),
            Ipv6Addr::from_bits(within(dst.0.to_bits(), 128, dst.1, b)).into(),
        ),
        _ if v4 => (Ipv4Addr::from_bits((a >> 96) as u32).into(), Ipv4Addr::from_bits((b >> 96) as u32).into()),
        _ => (IpAddr::V6(Ipv6Addr::from_bits(a)), IpAddr::V6(Ipv6Addr::from_bits(b))),
    };
    let at = |lo: u16, hi: u16, random: u16| match edge >> 2 & 7 {
        0 => lo,
        1 => hi,
        2 => lo.wrapping_sub(1),
        3 => hi.wrapping_add(1),
        _ => (u32::from(lo) + u32::from(random) % (u32::from(hi - lo) + 1)) as u16,
    };
    let (mut x, mut y) = (p, q);
    if !miss(1) {
        protocol = rule.protocol.unwrap_or(protocol);
        match &rule.upper {
            Upper::Any => {}
            Upper::Ports { src, dst } => (x, y) = (at(*src.start(), *src.end(), p), at(*dst.start(), *dst.end(), q)),
            Upper::Icmp { kind, code } => {
                protocol = if src.is_ipv4() { 1 } else { 58 };
                x = at((*kind.start()).into(), (*kind.end()).into(), p);
                y = at((*code.start()).into(), (*code.end()).into(), q);
            }
        }
    }
    let wanted = rule.tcp_flags.filter(|_| !miss(2)).map_or(flags, |f| flags & !f.mask | f.value);
    if rule.tcp_flags.is_some() && !miss(2) {
        protocol = 6;
    }
    let upper = match protocol {
        6 if !miss(3) => Header::Tcp(x, y, wanted),
        6 | 17 | 132 if !miss(4) => Header::Ports(x, y),
        1 | 58 if !miss(4) => Header::Icmp(x as u8, y as u8),
        _ => Header::Unknown,
    };
    let fragment = match (rule.fragment, choice >> 3 & 3) {
        (_, 0) | (FragmentMatch::Any, 1) => FragmentKind::Later,
        (FragmentMatch::First | FragmentMatch::Fragment, _) | (_, 1) => FragmentKind::First,
        (FragmentMatch::Later, _) => FragmentKind::Later,
        _ => FragmentKind::Whole,
    };
    Packet { src, dst, protocol, fragment, upper }
}

/// Returns the rule of each packet, which has to be in one set.
fn one_each(out: &mut [u32], classify: impl FnOnce(&mut dyn FnMut(u32, u64)) -> u64) {
    let mut seen = 0u64;
    let mut put = |rule, set| {
        assert_eq!(seen & set, 0, "no packet has two rules");
        seen |= set;
        (0..BURST).filter(|i| set >> i & 1 != 0).for_each(|i| out[i] = rule);
    };
    let none = classify(&mut put);
    put(NONE, none);
    assert_eq!(seen, u64::MAX >> (BURST - out.len()), "every packet has one, or none");
}

/// Compares with the scan at every width of SIMD there is, and says how many packets matched.
fn check(rules: &[Rule], packets: &[Packet]) -> Result<usize, TestCaseError> {
    let mut classifier = Classifier::new(rules).expect("the rules are sound");
    let scan = |p: &&Packet| rules.iter().position(|r| p.matches(r)).map_or(NONE, |i| i as u32);
    let (v4, v6): (Vec<&Packet>, Vec<&Packet>) = packets.iter().partition(|p| p.src.is_ipv4());
    let keys4: Vec<Key4> = v4.iter().map(|p| p.key4().unwrap()).collect();
    let keys6: Vec<Key6> = v6.iter().map(|p| p.key6().unwrap()).collect();
    let (want4, want6): (Vec<u32>, Vec<u32>) = (v4.iter().map(scan).collect(), v6.iter().map(scan).collect());
    for simd in Simd::all() {
        classifier.simd = simd;
        let (mut out4, mut out6) = (vec![7; keys4.len()], vec![7; keys6.len()]);
        for (keys, out) in keys4.chunks(BURST).zip(out4.chunks_mut(BURST)) {
            one_each(out, |found| classifier.classify4(keys, found));
        }
        for (keys, out) in keys6.chunks(BURST).zip(out6.chunks_mut(BURST)) {
            one_each(out, |found| classifier.classify6(keys, found));
        }
        prop_assert_eq!(&out4, &want4, "{:?} of {:?}", simd, &v4);
        prop_assert_eq!(&out6, &want6, "{:?} of {:?}", simd, &v6);
    }
    Ok(want4.iter().chain(&want6).filter(|&&rule| rule != NONE).count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn few_rules_match_as_a_scan_does(rules in vec(rule(), 0..20), raw in vec(raw(), 0..80)) {
        let packets: Vec<Packet> = raw.iter().map(|raw| aim(&rules, raw)).collect();
        check(&rules, &packets)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn many_rules_match_as_a_scan_does(rules in vec(rule(), 20..400), raw in vec(raw(), 300)) {
        let packets: Vec<Packet> = raw.iter().map(|raw| aim(&rules, raw)).collect();
        check(&rules, &packets)?;
    }
}

/// Returns the rules of one kind only: nothing but sources, nothing but ports, …: what makes groups and cuts one-sided.
#[test]
fn one_sided_lists_match_as_a_scan_does() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut draw = |n: usize| vec(rule(), n).new_tree(&mut runner).unwrap().current();
    let all = draw(3000);
    let any4 = (Ipv4Addr::UNSPECIFIED, 0);
    let only = |f: &dyn Fn(Rule) -> Option<Rule>| -> Vec<Rule> { all.iter().cloned().filter_map(f).collect() };
    let lists = [
        only(&|r| match r.addresses {
            Addresses::V4 { src, .. } => Some(Rule { addresses: Addresses::V4 { src, dst: any4 }, ..r }),
            _ => None,
        }),
        only(&|r| match r.addresses {
            Addresses::V4 { dst, .. } => Some(Rule { addresses: Addresses::V4 { src: any4, dst }, ..Rule::ANY }),
            _ => None,
        }),
        only(&|r| matches!(r.upper, Upper::Ports { .. }).then_some(Rule { addresses: Addresses::Any, ..r })),
        only(&|r| r.tcp_flags.is_some().then_some(r)),
        only(&|r| (r.fragment != FragmentMatch::Any).then_some(r)),
        // the same rule over and over: nothing to cut
        vec![all[0].clone(); 500],
    ];
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let raw = vec(raw(), 500).new_tree(&mut runner).unwrap().current();
    for rules in &lists {
        assert!(rules.len() > 100, "enough to test with");
        let packets: Vec<Packet> = raw.iter().map(|raw| aim(rules, raw)).collect();
        let hits = check(rules, &packets).unwrap();
        assert!(hits > 50, "most packets are aimed at a rule, but {hits} matched");
    }
}

#[test]
fn the_greatest_list_is_taken_and_one_more_is_not() {
    // every rule another port, all addresses open: what is hardest to cut
    let rule = |i: usize| Rule {
        protocol: Some(if i < 65_536 { 6 } else { 17 }),
        upper: Upper::Ports { src: 0..=u16::MAX, dst: i as u16..=i as u16 },
        ..Rule::ANY
    };
    let rules: Vec<Rule> = (0..MAX_RULES).map(rule).collect();
    let classifier = Classifier::new(&rules).unwrap();
    assert_eq!(classifier.rules(), MAX_RULES);
    let key = |port| Key4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, 6, FragmentKind::Whole).with_tcp(9, port, 0);
    let mut out = [0; 3];
    one_each(&mut out, |found| classifier.classify4(&[key(0), key(40_000), key(65_535)], found));
    assert_eq!(out, [0, 40_000, NONE]);
    let given = MAX_RULES + 1;
    let error = Classifier::new(&vec![Rule::ANY; given]).unwrap_err();
    assert_eq!(error, Error::TooMany { given });
    assert!(error.to_string().contains("65529") && error.to_string().contains("65528"));
}

#[test]
fn memory_stays_within_its_bound_where_nothing_separates() {
    // ranges that all overlap, in every field
    let rules: Vec<Rule> = (0..4000u16)
        .map(|i| Rule { upper: Upper::Ports { src: i..=40_000 + i, dst: 4000 - i..=60_000 - i }, ..Rule::ANY })
        .collect();
    let classifier = Classifier::new(&rules).unwrap();
    let bound = (16 * (4 + 500) * (256 + 512)) + 2 * 4 * (1 << 20);
    assert!(classifier.bytes() < bound, "{} bytes", classifier.bytes());
    let packets: Vec<Packet> = (0..200u16)
        .map(|i| Packet {
            src: Ipv4Addr::from_bits(i.into()).into(),
            dst: Ipv4Addr::LOCALHOST.into(),
            protocol: 17,
            fragment: FragmentKind::Whole,
            upper: Header::Ports(i * 300, i * 327),
        })
        .collect();
    assert!(check(&rules, &packets).unwrap() > 20);
}

#[test]
fn what_makes_no_sense_is_named() {
    let v4 = |sl, dl| Addresses::V4 { src: (Ipv4Addr::LOCALHOST, sl), dst: (Ipv4Addr::LOCALHOST, dl) };
    let ports = |lo, hi| Upper::Ports { src: 0..=u16::MAX, dst: lo..=hi };
    let icmp = || Upper::Icmp { kind: 8..=8, code: 0..=255 };
    let flags = Some(TcpFlags { mask: 0x02, value: 0x12 });
    let v6 = Addresses::V6 { src: (Ipv6Addr::LOCALHOST, 129), dst: (Ipv6Addr::LOCALHOST, 0) };
    let ok4 = v4(8, 32);
    let cases = [
        (Rule { addresses: v4(33, 0), ..Rule::ANY }, "33 is more than 32"),
        (Rule { addresses: v6, ..Rule::ANY }, "129 is more than 128"),
        (Rule { upper: ports(9, 7), ..Rule::ANY }, "9 to 7"),
        (Rule { upper: ports(7, 9), protocol: Some(1), ..Rule::ANY }, "protocol 1 has no ports"),
        (Rule { addresses: ok4, upper: icmp(), protocol: Some(58), ..Rule::ANY }, "protocol 58"),
        (Rule { upper: icmp(), protocol: Some(1), ..Rule::ANY }, "each IP version"),
        (Rule { tcp_flags: flags, ..Rule::ANY }, "0x12 are not within their mask 0x02"),
        (Rule { tcp_flags: flags, protocol: Some(17), ..Rule::ANY }, "protocol 17 has no TCP flags"),
        (Rule { upper: ports(1, 2), fragment: FragmentMatch::Later, ..Rule::ANY }, "later fragment"),
    ];
    for (rule, says) in cases {
        let error = Classifier::new(&[Rule::ANY, rule]).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("rule 1"), "{error}");
    }
}
