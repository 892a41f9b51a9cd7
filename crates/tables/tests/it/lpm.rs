//! The tables against a slow model: every route there is, the longest that holds the address.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use tables::Pages;
use tables::lpm::{Address, Error, Isa, Limits, MAX_GROUPS, MAX_TAG, MAX_VALUE, Writer};
use tables::{lpm4, lpm6};

/// The routes, in the order of address and length, at 128 bits: IPv4 in the upper 32.
#[derive(Default)]
struct Model(BTreeMap<(u128, u8), u32>);

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

impl Model {
    fn longest(&self, address: u128) -> Option<(u8, u32)> {
        let holding = self.0.iter().filter(|((prefix, len), _)| address & mask(*len) == *prefix);
        holding.max_by_key(|((_, len), _)| *len).map(|((_, len), value)| (*len, *value))
    }

    /// Groups that the routes need: one for each stretch of 24, 32, ... bits that has a longer route.
    fn groups(&self) -> usize {
        let stretches =
            self.0.keys().flat_map(|(prefix, len)| (24..*len).step_by(8).map(move |end| (prefix & mask(end), end)));
        stretches.collect::<BTreeSet<_>>().len()
    }
}

trait Wide: Address {
    const WIDTH: u8;
    fn wide(self) -> u128;
    fn narrow(wide: u128) -> Self;
}

impl Wide for u32 {
    const WIDTH: u8 = 32;
    fn wide(self) -> u128 {
        u128::from(self) << 96
    }
    fn narrow(wide: u128) -> u32 {
        (wide >> 96) as u32
    }
}

impl Wide for u128 {
    const WIDTH: u8 = 128;
    fn wide(self) -> u128 {
        self
    }
    fn narrow(wide: u128) -> u128 {
        wide
    }
}

#[derive(Clone, Debug)]
enum Change {
    Insert(u128, u8, u32),
    /// The so-manieth route there is, with another value.
    Replace(usize, u32),
    Remove(usize),
    /// A route that most likely is not there.
    RemoveAny(u128, u8),
}

/// Addresses that share long beginnings, so that routes nest and touch.
fn address() -> impl Strategy<Value = u128> {
    let head =
        prop_oneof![Just(0u128), Just(u128::MAX), Just(0x2001_0db8_0001 << 80), Just(0x2001_0db8 << 96), any::<u128>()];
    (head, any::<u128>(), 0u8..=128).prop_map(|(head, tail, kept)| head & mask(kept) | tail & !mask(kept))
}

fn length(width: u8) -> impl Strategy<Value = u8> {
    prop_oneof![1 => 0..8u8, 6 => 8..=width, 6 => 22..=34u8, 2 => Just(width), 1 => Just(24u8)]
        .prop_map(move |len| len.min(width))
}

/// Values at most that words of 16 bits hold.
const NARROW: u32 = 0x7fff;

fn changes(width: u8, most: u32) -> impl Strategy<Value = Vec<Change>> {
    let value = move || prop_oneof![1..=3u32, 1..=most, Just(most)];
    let change = prop_oneof![
        4 => (address(), length(width), value()).prop_map(|(a, l, v)| Change::Insert(a, l, v)),
        1 => (any::<usize>(), value()).prop_map(|(n, v)| Change::Replace(n, v)),
        2 => any::<usize>().prop_map(Change::Remove),
        1 => (address(), length(width)).prop_map(|(a, l)| Change::RemoveAny(a, l)),
    ];
    proptest::collection::vec(change, 1..40)
}

/// The ends of all routes, what lies just outside them, and some more.
fn probes<A: Wide>(model: &Model, more: &[u128]) -> Vec<A> {
    let one = 1u128 << (128 - u32::from(A::WIDTH));
    let ends = model.0.keys().flat_map(|(prefix, len)| {
        let last = prefix | !mask(*len);
        [*prefix, prefix.wrapping_sub(one), last, last.wrapping_add(one), prefix | (!mask(*len) >> 1)]
    });
    ends.chain(more.iter().copied()).map(A::narrow).collect()
}

fn agree<A: Wide>(writer: &Writer<A>, model: &Model, probes: &[A]) -> Result<(), TestCaseError> {
    let expected: Vec<_> = probes.iter().map(|a| model.longest(a.wide())).collect();
    for isa in Isa::ALL {
        let Some(mut reader) = writer.table().reader_with(isa) else { continue };
        let mut values = vec![u32::MAX; probes.len()];
        reader.look_up(probes, &mut values);
        for ((address, value), expected) in probes.iter().zip(&values).zip(&expected) {
            prop_assert_eq!(*value, expected.map_or(0, |e| e.1), "{:x?} by {:?}", address, isa);
        }
    }
    for (address, expected) in probes.iter().zip(&expected) {
        prop_assert_eq!(writer.longest(*address), *expected);
    }
    prop_assert_eq!(writer.usage().groups, model.groups());
    prop_assert_eq!(writer.len(), model.0.len());
    let mut routes: Vec<_> = writer.iter().map(|(a, len, value)| ((a.wide(), len), value)).collect();
    routes.sort_unstable();
    prop_assert!(routes.iter().copied().eq(model.0.iter().map(|(k, v)| (*k, *v))));
    Ok(())
}

fn tags_agree<A: Wide>(writer: &Writer<A>, model: &Model) -> Result<(), TestCaseError> {
    for of in 0..=MAX_TAG {
        let mut tagged: Vec<_> = writer.of_tag(of).map(|(a, len, value)| ((a.wide(), len), value)).collect();
        tagged.sort_unstable();
        let expected = model.0.iter().filter(|(_, v)| tag(**v) == of).map(|(k, v)| (*k, *v));
        prop_assert!(tagged.into_iter().eq(expected));
    }
    Ok(())
}

/// The tag that routes with this value get.
fn tag(value: u32) -> u8 {
    (value % 4) as u8
}

/// Applies `changes` and compares after each; removes everything again, and then nothing may be left of it.
fn follows_the_model<A: Wide>(
    writer: &mut Writer<A>,
    changes: Vec<Change>,
    more: &[u128],
) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    let mut seen = more.to_vec();
    let nth = |model: &Model, n: usize| model.0.keys().nth(n.checked_rem(model.0.len())?).copied();
    for change in changes {
        match change {
            Change::Insert(address, len, value) => {
                let prefix = A::narrow(address & mask(len));
                seen.push(address);
                let old = model.0.insert((prefix.wide(), len), value);
                prop_assert_eq!(writer.insert_tagged(prefix, len, value, tag(value)).unwrap(), old);
                prop_assert_eq!(writer.get(prefix, len), Some(value));
            }
            Change::Replace(n, value) => {
                let Some((prefix, len)) = nth(&model, n) else { continue };
                let old = model.0.insert((prefix, len), value);
                prop_assert_eq!(writer.insert_tagged(A::narrow(prefix), len, value, tag(value)).unwrap(), old);
            }
            Change::Remove(n) => {
                let Some((prefix, len)) = nth(&model, n) else { continue };
                let old = model.0.remove(&(prefix, len));
                prop_assert_eq!(writer.remove(A::narrow(prefix), len), old);
                prop_assert_eq!(writer.get(A::narrow(prefix), len), None);
                seen.extend([prefix, prefix | !mask(len)]);
            }
            Change::RemoveAny(address, len) => {
                let prefix = A::narrow(address & mask(len));
                prop_assert_eq!(writer.remove(prefix, len), model.0.remove(&(prefix.wide(), len)));
            }
        }
        agree(writer, &model, &probes(&model, &seen))?;
        tags_agree(writer, &model)?;
    }
    while let Some(((prefix, len), value)) = model.0.pop_first() {
        prop_assert_eq!(writer.remove(A::narrow(prefix), len), Some(value));
    }
    agree(writer, &model, &probes(&model, &seen))
}

/// A table used case after case: so each case also shows that the one before left nothing behind.
fn shared<A: Address, R>(
    place: &Mutex<Option<Writer<A>>>,
    new: impl FnOnce() -> Writer<A>,
    run: impl FnOnce(&mut Writer<A>) -> Result<R, TestCaseError>,
) -> Result<R, TestCaseError> {
    let mut held = place.lock().unwrap_or_else(PoisonError::into_inner);
    let mut writer = held.take().unwrap_or_else(new);
    let done = run(&mut writer)?;
    *held = Some(writer);
    Ok(done)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn ipv4_follows_the_model(changes in changes(32, NARROW), more in proptest::collection::vec(address(), 0..80)) {
        static TABLE: Mutex<Option<lpm4::Writer>> = Mutex::new(None);
        shared(&TABLE, || lpm4::new().unwrap().0, |writer| follows_the_model(writer, changes, &more))?;
    }

    #[test]
    fn ipv6_follows_the_model(changes in changes(128, NARROW), more in proptest::collection::vec(address(), 0..80)) {
        static TABLE: Mutex<Option<lpm6::Writer>> = Mutex::new(None);
        shared(&TABLE, || lpm6::new().unwrap().0, |writer| follows_the_model(writer, changes, &more))?;
    }

    #[test]
    fn ipv4_of_any_value_follows_the_model(
        changes in changes(32, MAX_VALUE),
        more in proptest::collection::vec(address(), 0..80),
    ) {
        static TABLE: Mutex<Option<lpm4::Writer>> = Mutex::new(None);
        shared(&TABLE, || lpm4::new().unwrap().0, |writer| follows_the_model(writer, changes, &more))?;
    }

    #[test]
    fn ipv6_of_any_value_follows_the_model(
        changes in changes(128, MAX_VALUE),
        more in proptest::collection::vec(address(), 0..80),
    ) {
        static TABLE: Mutex<Option<lpm6::Writer>> = Mutex::new(None);
        shared(&TABLE, || lpm6::new().unwrap().0, |writer| follows_the_model(writer, changes, &more))?;
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one(routes in proptest::collection::vec((address(), length(128), 1..9u32), 0..60)) {
        static TABLE: Mutex<Option<lpm6::Writer>> = Mutex::new(None);
        shared(&TABLE, || lpm6::new().unwrap().0, |writer| {
            let routes: Vec<_> = routes.iter().map(|(a, len, v)| (a & mask(*len), *len, *v)).collect();
            writer.extend(routes.iter().copied()).unwrap();
            let model = Model(routes.iter().map(|(a, len, v)| ((*a, *len), *v)).collect());
            agree(writer, &model, &probes(&model, &[]))?;
            for (prefix, len) in model.0.keys() {
                writer.remove(*prefix, *len);
            }
            prop_assert!(writer.is_empty());
            Ok(())
        })?;
    }
}

#[test]
fn bursts_of_every_length_are_answered() {
    let (mut four, table4) = lpm4::new().unwrap();
    let (mut six, table6) = lpm6::new().unwrap();
    four.insert(Ipv4Addr::new(10, 0, 0, 0), 8, 1).unwrap();
    four.insert(Ipv4Addr::new(10, 0, 0, 128), 25, 2).unwrap();
    six.insert(Ipv6Addr::UNSPECIFIED, 0, 1).unwrap();
    six.insert(1u128 << 96 | 5, 128, 2).unwrap();
    for isa in Isa::ALL {
        let (Some(mut four), Some(mut six)) = (table4.reader_with(isa), table6.reader_with(isa)) else { continue };
        for n in 0..100 {
            let addresses: Vec<u32> = (0..n).map(|i| 0x0a00_007c + i).collect();
            let mut values = vec![9; n as usize];
            four.look_up(&addresses, &mut values);
            assert!(values.iter().enumerate().all(|(i, v)| *v == 1 + u32::from(i >= 4)), "{isa:?} {n}: {values:?}");
            let addresses: Vec<u128> = (0..n).map(|i| 1 << 96 | u128::from(i)).collect();
            six.look_up(&addresses, &mut values);
            assert!(values.iter().enumerate().all(|(i, v)| *v == 1 + u32::from(i == 5)), "{isa:?} {n}: {values:?}");
        }
        assert_eq!((four.look_up_one(0x0a00_0080), six.look_up_one(1 << 96 | 5)), (2, 2));
    }
}

#[test]
fn one_value_too_large_for_small_words_changes_no_other_answer() {
    let (mut writer, table) = lpm4::new().unwrap();
    let routes: Vec<(u32, u8, u32)> = (0..2000).map(|i| (i << 20 | i << 7, 25, 1 + i * 16)).collect();
    writer.extend(routes.iter().copied()).unwrap();
    let small = writer.usage().table_bytes;
    writer.insert(0xffff_ff80u32, 25, NARROW).unwrap();
    assert_eq!(writer.usage().table_bytes, small + 256 * 2);
    let mut reader = table.reader();
    assert_eq!(reader.look_up_one(0xffff_ffff), NARROW);
    writer.insert(0xffff_ff80u32, 25, NARROW + 1).unwrap();
    assert_eq!(writer.usage().table_bytes, 2 * (small + 256 * 2));
    assert_eq!((reader.look_up_one(0xffff_ffff), reader.look_up_one(0xffff_ff7f)), (NARROW + 1, 0));
    for isa in Isa::ALL {
        let Some(mut reader) = table.reader_with(isa) else { continue };
        let addresses: Vec<u32> = routes.iter().map(|(a, ..)| a | 0x7f).collect();
        let mut values = vec![0; addresses.len()];
        reader.look_up(&addresses, &mut values);
        assert!(values.iter().zip(&routes).all(|(value, (.., expected))| value == expected), "{isa:?}");
    }
}

#[test]
fn a_table_is_widened_before_it_has_to() {
    let (mut writer, table) = lpm4::new().unwrap();
    writer.insert(0x0a00_0000u32, 8, 7).unwrap();
    writer.widen_for(NARROW).unwrap();
    assert!(!writer.fits(NARROW + 1));
    writer.widen_for(NARROW + 1).unwrap();
    assert!(writer.fits(MAX_VALUE));
    assert_eq!((table.reader().look_up_one(0x0a00_0001), table.reader().look_up_one(0x0b00_0000)), (7, 0));
}

#[test]
fn more_groups_than_small_words_can_name() {
    let (mut writer, table) = lpm4::new().unwrap();
    let route = |i: u32| (i << 8 | 0x80, 25, 1 + i % NARROW);
    let narrow = |writer: &lpm4::Writer| writer.usage().table_bytes == ((1 << 24) + writer.usage().groups * 256) * 2;
    writer.extend((0..NARROW - 100).map(route)).unwrap();
    assert!(writer.fits(NARROW) && !writer.fits(NARROW + 1));
    writer.extend((NARROW - 100..=NARROW).map(route)).unwrap();
    assert!(narrow(&writer) && !writer.fits(1), "no group is left");
    writer.extend((NARROW + 1..40_000).map(route)).unwrap();
    assert!(!narrow(&writer));
    assert_eq!(writer.usage().groups, 40_000);
    for isa in Isa::ALL {
        let Some(mut reader) = table.reader_with(isa) else { continue };
        let addresses: Vec<u32> = (0..40_000).flat_map(|i| [i << 8 | 0x85, i << 8 | 5]).collect();
        let mut values = vec![9; addresses.len()];
        reader.look_up(&addresses, &mut values);
        for (i, both) in (0..40_000).zip(values.as_chunks::<2>().0) {
            assert_eq!(*both, [route(i).2, 0], "{isa:?} {i}");
        }
    }
    for (address, len, value) in (0..40_000).map(route) {
        assert_eq!(writer.remove(address, len), Some(value));
    }
    assert_eq!((writer.usage().groups, writer.usage().waiting), (0, 40_000));
}

#[test]
fn groups_of_ipv6_are_named_by_small_words_level_by_level() {
    // Each route takes a group of its own for its bits 41 to 48; 16 of them share one for bits 33 to 40.
    let route =
        |i: u32| (0x2000 << 112 | u128::from(i / 16) << 96 | u128::from(i % 16) << 88 | 1 << 80, 48, 1 + i % 999);
    let (mut writer, table) = lpm6::new().unwrap();
    let narrow = |writer: &lpm6::Writer| writer.usage().table_bytes == ((1 << 24) + writer.usage().groups * 256) * 2;
    let groups = |routes: u32| {
        let of = |bits: u32| (0..routes).map(|i| route(i).0 >> (128 - bits)).collect::<BTreeSet<_>>();
        of(24).len() + of(32).len() + of(40).len()
    };
    let agree = |writer: &lpm6::Writer, routes: u32| {
        assert_eq!(writer.usage().groups, groups(routes));
        for isa in Isa::ALL {
            let Some(mut reader) = table.reader_with(isa) else { continue };
            let addresses: Vec<u128> = (0..routes).flat_map(|i| [route(i).0 | 5, route(i).0 - 1]).collect();
            let mut values = vec![9; addresses.len()];
            reader.look_up(&addresses, &mut values);
            for (i, both) in (0..routes).zip(values.as_chunks::<2>().0) {
                assert_eq!(*both, [route(i).2, 0], "{isa:?} {i}");
            }
        }
    };
    writer.extend((0..=NARROW).map(route)).unwrap();
    assert!(narrow(&writer) && writer.usage().groups > NARROW as usize + 2000);
    agree(&writer, NARROW + 1);
    let before = table.backing().total();
    writer.extend((NARROW + 1..40_000).map(route)).unwrap();
    assert!(!narrow(&writer));
    agree(&writer, 40_000);
    assert!(table.backing().total() < 5 * before / 2, "the memory of the small words is free");
    for (address, len, value) in (0..40_000).map(route) {
        assert_eq!(writer.remove(address, len), Some(value));
    }
    assert_eq!(writer.usage().groups, 0);
    // All of them serve any level now.
    writer.extend((0..1000u128).map(|i| (0x2001 << 112 | i << 40, 88, 7))).unwrap();
    assert!((0..1000u128).all(|i| table.reader().look_up_one(0x2001 << 112 | i << 40 | 3) == 7));
}

#[test]
fn handles_go_to_other_threads() {
    fn goes<T: Send>() {}
    fn is_shared<T: Send + Sync + Clone>() {}
    goes::<lpm4::Writer>();
    goes::<lpm6::Writer>();
    goes::<lpm4::Reader>();
    goes::<lpm6::Reader>();
    is_shared::<lpm4::Table>();
    is_shared::<lpm6::Table>();
}

#[test]
#[should_panic(expected = "one value for each address")]
fn slices_of_two_lengths_are_refused() {
    lpm4::new().unwrap().1.reader().look_up(&[1, 2], &mut [0]);
}

#[test]
fn what_is_refused_changes_nothing() {
    let limits = Limits { routes: 3, groups: 2, pages: Pages::Ordinary };
    let (mut writer, table) = lpm6::with(limits).unwrap();
    let mut reader = table.reader();
    assert!(matches!(writer.insert(0u128, 129, 1), Err(Error::Length { len: 129, max: 128 })));
    assert!(matches!(writer.insert(1u128, 127, 1), Err(Error::HostBits { .. })));
    assert!(matches!(writer.insert(0u128, 0, 0), Err(Error::Value { value: 0, .. })));
    assert!(matches!(writer.insert(0u128, 0, MAX_VALUE + 1), Err(Error::Value { .. })));
    assert_eq!((writer.get(1u128, 127), writer.remove(1u128, 127), writer.remove(0u128, 200)), (None, None, None));

    assert!(matches!(writer.insert(0u128, 41, 1), Err(Error::Groups { limit: 2, waiting: 0, .. })));
    assert_eq!((writer.len(), writer.usage().groups, reader.look_up_one(0)), (0, 0, 0));
    writer.insert(0u128, 40, 1).unwrap();
    writer.insert(1u128 << 88, 40, 2).unwrap();
    assert!(matches!(writer.insert(1u128 << 127, 25, 3), Err(Error::Groups { .. })));
    writer.insert(1u128 << 127, 24, 3).unwrap();
    let full = writer.insert(1u128 << 126, 24, 4).unwrap_err();
    assert_eq!(full.to_string(), "no room for 4000::/24: 3 routes are the limit; raise `Limits::routes`");
    assert_eq!(writer.insert(1u128 << 127, 24, 5).unwrap(), Some(3), "a replacement needs no room");
    assert_eq!((reader.look_up_one(1 << 126), reader.look_up_one(1 << 127), reader.look_up_one(0)), (0, 5, 1));
    assert!(lpm4::with(Limits { groups: MAX_GROUPS + 1, ..lpm4::DEFAULT_LIMITS }).is_err());
    assert!(lpm4::with(Limits { groups: MAX_GROUPS, ..lpm4::DEFAULT_LIMITS }).is_ok(), "of address space only");
}

#[test]
fn too_many_at_once_stop_at_the_limit() {
    let (mut writer, _) = lpm4::with(Limits { routes: 10, ..lpm4::DEFAULT_LIMITS }).unwrap();
    assert!(matches!(writer.extend((0..11u32).map(|i| (i, 32, 1))), Err(Error::Routes { limit: 10, .. })));
    assert_eq!(writer.len(), 10);
    writer.extend((0..100u32).map(|i| (i % 10, 32, 1 + i))).unwrap();
    assert_eq!((writer.len(), writer.get(9u32, 32)), (10, Some(100)), "the last of equal ones stays");
    assert!(matches!(writer.extend([(1u32, 32, 7), (1, 31, 1)]), Err(Error::HostBits { .. })));
    assert_eq!(writer.get(1u32, 32), Some(92), "nothing of a faulty list is taken");
}

#[test]
fn a_resting_reader_keeps_groups_from_being_used_again_and_stops_nobody() {
    let (mut writer, table) = lpm4::with(Limits { groups: 8, ..lpm4::DEFAULT_LIMITS }).unwrap();
    let (mut resting, mut busy) = (table.reader(), table.reader());
    assert_eq!(table.reader_count(), 2);
    let flap = |writer: &mut lpm4::Writer| {
        writer.insert(7u32, 32, 1)?;
        assert_eq!(writer.remove(7u32, 32), Some(1));
        Ok::<_, Error>(())
    };
    for waiting in 1..=8 {
        flap(&mut writer).unwrap();
        busy.look_up_one(7);
        assert_eq!((writer.usage().groups, writer.usage().waiting), (0, waiting));
    }
    assert!(matches!(flap(&mut writer), Err(Error::Groups { limit: 8, waiting: 8, .. })));
    // Routes that need no group are still accepted.
    writer.insert(0u32, 0, 3).unwrap();
    assert_eq!(resting.look_up_one(7), 3);
    flap(&mut writer).unwrap();
    resting.idle();
    for _ in 0..20 {
        flap(&mut writer).unwrap();
        busy.look_up(&[], &mut []);
    }
    assert_eq!(resting.look_up_one(7), 3);
    for _ in 0..7 {
        flap(&mut writer).unwrap();
        busy.idle();
    }
    drop(resting);
    for _ in 0..20 {
        flap(&mut writer).unwrap();
    }
    assert_eq!(writer.usage().table_bytes, ((1 << 24) + 8 * 256) * 2);
}
