//! Tables that change under their readers, on real threads: every answer was right at some time during its look-up.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tables::Pages;
use tables::lpm::{Address, Error, Isa, Limits, Table, Writer};
use tables::{lpm4, lpm6};

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// Ends the readers, also when the writer fails: else its panic would wait for them for ever.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// So many readers on threads of their own, each checking bursts of what `draw` draws by `right`, while `write` runs here.
/// Returns how many answers were checked.
fn under_readers<A: Address>(
    count: u64,
    table: &Table<A>,
    draw: impl Fn(&mut Random) -> A + Sync,
    right: impl Fn(A, u32) -> bool + Sync,
    write: impl FnOnce(),
) -> u64 {
    let (over, checked, started) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (over, checked, started, draw, right) = (&over, &checked, &started, &draw, &right);
    std::thread::scope(|scope| {
        let mut readers = 0;
        for seed in 1..=count {
            let isa = Isa::ALL[seed as usize % Isa::ALL.len()];
            let Some(mut reader) = table.reader_with(isa) else { continue };
            readers += 1;
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
                let mut bursts = 0;
                while !over.load(Relaxed) || bursts == 0 {
                    let addresses: [A; 32] = std::array::from_fn(|_| draw(&mut random));
                    let mut values = [u32::MAX; 32];
                    reader.look_up(&addresses, &mut values);
                    for (address, value) in addresses.into_iter().zip(values) {
                        assert!(right(address, value), "{address:x?} gave {value} by {isa:?}");
                    }
                    bursts += 1;
                    if bursts == 1 {
                        started.fetch_add(1, Relaxed);
                    }
                    // Now and then a worker has nothing to do.
                    if bursts % 1000 == 0 {
                        reader.idle();
                    }
                }
                checked.fetch_add(bursts * 32, Relaxed);
            });
        }
        // A reader that fails never starts twice: the scope hands its panic on.
        let until = Instant::now() + Duration::from_secs(10);
        while started.load(Relaxed) < readers && Instant::now() < until {
            std::thread::yield_now();
        }
        let _end = End(over);
        write();
    });
    checked.load(Relaxed)
}

/// Inserts and removes `flapped` for a while; readers must see what holds without it or what holds with it.
fn only_old_or_new<A: Address>(
    mut writer: Writer<A>,
    standing: &[(A, u8, u32)],
    flapped: (A, u8),
    draw: impl Fn(&mut Random) -> A + Sync,
) {
    const WITH: u32 = 77;
    writer.extend(standing.iter().copied()).unwrap();
    let (_, mut before) = (writer.insert(flapped.0, flapped.1, WITH).unwrap(), writer.table().reader());
    // The two answers, from the table when it stands still, for a sample that the readers then draw from.
    let mut random = Random(4242);
    let mut sample: Vec<(A, [u32; 2])> = (0..4096).map(|_| (draw(&mut random), [0; 2])).collect();
    sample.sort_unstable();
    sample.iter_mut().for_each(|(address, both)| both[1] = before.look_up_one(*address));
    writer.remove(flapped.0, flapped.1).unwrap();
    sample.iter_mut().for_each(|(address, both)| both[0] = before.look_up_one(*address));
    before.idle();
    assert!(sample.iter().any(|(_, [old, new])| old != new && *new == WITH), "some addresses change");
    let table = writer.table().clone();
    let seen = [AtomicBool::new(false), AtomicBool::new(false)];
    let both_seen = || seen.iter().all(|seen| seen.load(Relaxed));
    let right = |address, value| {
        let at = sample.binary_search_by(|(a, _)| a.cmp(&address)).expect("drawn from the sample");
        let (_, [old, new]) = sample[at];
        if old != new && [old, new].contains(&value) {
            seen[usize::from(value == new)].store(true, Relaxed);
        }
        value == old || value == new
    };
    under_readers(
        3,
        &table,
        |random| sample[random.below(sample.len() as u64) as usize].0,
        right,
        || {
            let start = Instant::now();
            // Longer where other work slows it, but not for ever.
            while start.elapsed() < Duration::from_millis(if both_seen() { 120 } else { 60_000 }) {
                match writer.insert(flapped.0, flapped.1, WITH) {
                    Ok(_) => assert_eq!(writer.remove(flapped.0, flapped.1), Some(WITH)),
                    Err(Error::Groups { waiting, .. }) => {
                        assert!(waiting > 0, "only readers keep groups");
                        std::thread::yield_now();
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        },
    );
    assert!(both_seen(), "readers saw the change come and go: {seen:?}");
}

#[test]
fn ipv4_flaps_show_the_old_or_the_new() {
    let at = 0x0a01_0240u32;
    // More specific routes stand inside each flapped one, and one holds it.
    let standing =
        [(0x0a00_0000, 8, 1), (0x0a01_0000, 16, 2), (0x0a01_0280, 25, 3), (0x0a01_0250, 29, 4), (0x0a01_0241, 32, 5)];
    for len in [4, 9, 15, 17, 23, 24, 25, 26, 27, 30] {
        let flapped = at & (!0 << (32 - len));
        let (writer, _) = lpm4::with(Limits { groups: 64, ..lpm4::DEFAULT_LIMITS }).unwrap();
        only_old_or_new(writer, &standing, (flapped, len), |random| {
            let scale = random.below(32);
            at ^ (random.next() & ((1 << scale) - 1)) as u32
        });
    }
}

#[test]
fn ipv6_flaps_show_the_old_or_the_new() {
    let at = 0x2001_0db8_0001_0002_0003_0004_0005_0040u128;
    let cut = |len: u8| at & (!0 << (128 - len));
    let standing = [(cut(16), 16, 1), (cut(33), 33, 2), (cut(48) | 1 << 70, 60, 3), (cut(64), 64, 4), (at | 3, 128, 5)];
    for len in [12, 20, 29, 32, 36, 47, 48, 56, 63, 71, 96, 121, 126] {
        let (writer, _) = lpm6::with(Limits { groups: 64, ..lpm6::DEFAULT_LIMITS }).unwrap();
        only_old_or_new(writer, &standing, (cut(len), len), |random| {
            let scale = random.below(121);
            let bits = u128::from(random.next()) << 64 | u128::from(random.next());
            at ^ bits & ((1 << scale) - 1)
        });
    }
}

/// So many /24s share so many groups: each answer must be its own /24's, whichever /24 the group served before.
fn groups_go_round(stretches: u32, groups: usize, readers: u64) {
    let (mut writer, table) = lpm4::with(Limits { groups, ..lpm4::DEFAULT_LIMITS }).unwrap();
    let base = 0x0a00_0000;
    writer.extend((0..stretches).map(|i| (base + (i << 8), 24, 2 * i + 1))).unwrap();
    let (mut linked, mut refused) = (0u64, 0u64);
    let checked = under_readers(
        readers,
        &table,
        |random| base + random.below(u64::from(stretches) << 8) as u32,
        |address, value| {
            let own = 2 * ((address - base) >> 8) + 1;
            value == own || value == own + 1 && address & 0xf0 == 0x50
        },
        || {
            let mut random = Random(7);
            let start = Instant::now();
            // Longer where other work slows it, but not for ever.
            while start.elapsed() < Duration::from_secs(if linked < 300 { 60 } else { 2 }) {
                let stretch = random.below(u64::from(stretches)) as u32;
                let part = base + (stretch << 8) + 0x50;
                match writer.insert(part, 28, 2 * stretch + 2) {
                    Ok(_) => {
                        linked += 1;
                        assert_eq!(writer.remove(part, 28), Some(2 * stretch + 2));
                    }
                    Err(Error::Groups { waiting, .. }) => {
                        assert!(waiting > 0, "only readers keep groups");
                        refused += 1;
                        std::thread::yield_now();
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        },
    );
    println!("{linked} groups linked and unlinked, {refused} refused meanwhile, {checked} answers checked");
    assert!(linked >= 300, "{linked}");
    // All readers are gone: nothing waits, and nothing is lost.
    writer.extend((0..groups as u32).map(|i| (i << 8, 32, 1000))).unwrap();
    assert_eq!((writer.usage().groups, writer.usage().waiting), (groups, 0));
}

#[test]
fn a_group_is_not_used_again_under_a_reader() {
    // More readers than cores: one that stops in the middle of a burst would soon see another stretch's values.
    groups_go_round(64, 8, 4);
}

#[test]
fn a_group_is_filled_before_it_is_linked() {
    // One reader beside the writer, and groups enough that the writer need not wait: links come and go all the time.
    groups_go_round(4, 4096, 1);
}

#[test]
fn words_are_widened_under_readers() {
    for _ in 0..4 {
        let (mut writer, table) = lpm4::new().unwrap();
        writer.extend((0..4096u32).map(|i| (i << 20 | i, 32, 1 + i))).unwrap();
        let seen = AtomicBool::new(false);
        under_readers(
            3,
            &table,
            |random| {
                let i = random.below(4096) as u32;
                i << 20 | i
            },
            |address, value| {
                let i = address >> 20;
                if value == 1_000_000 + i {
                    seen.store(true, Relaxed);
                }
                value == 1 + i || value == 1_000_000 + i
            },
            || {
                for i in 0..4096 {
                    assert_eq!(writer.insert(i << 20 | i, 32, 1_000_000 + i).unwrap(), Some(1 + i));
                }
                let start = Instant::now();
                while !seen.load(Relaxed) && start.elapsed() < Duration::from_secs(20) {
                    std::thread::yield_now();
                }
            },
        );
        assert!(seen.load(Relaxed), "readers go on in the wider words");
    }
}

/// Holds huge pages that were set aside.
struct Held(Vec<(*mut std::ffi::c_void, usize)>);

impl Held {
    /// All that are free. Promised and not touched, so that it takes no time.
    fn all() -> Self {
        let mut held = vec![];
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        for bits in (21..40).rev() {
            // SAFETY: a new mapping where the kernel likes touches no memory of anybody.
            while let Ok(at) = unsafe { mmap_anonymous(null_mut(), 1 << bits, ProtFlags::READ, flags) } {
                held.push((at, 1 << bits));
            }
        }
        Held(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (at, bytes) in &self.0 {
            // SAFETY: mapped above, without other users.
            unsafe { munmap(*at, *bytes).unwrap() };
        }
    }
}

/// A route in one slice of the first level after another (2 MiB: a /4), while readers look up right there: in zeros that
/// nothing backs, then in the new route's words.
fn slice_after_slice(pages: Pages) {
    const SLICES: u32 = 16;
    let (mut writer, table) = lpm4::with(Limits { pages, ..lpm4::DEFAULT_LIMITS }).unwrap();
    let now = AtomicU32::new(0);
    let seen: Vec<[AtomicBool; 2]> = (0..SLICES).map(|_| Default::default()).collect();
    let wait = |seen: &AtomicBool| {
        let start = Instant::now();
        while !seen.load(Relaxed) && start.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        assert!(seen.load(Relaxed), "readers look up in slice {}", now.load(Relaxed));
    };
    under_readers(
        2,
        &table,
        |random| now.load(Relaxed) << 28 | random.below(1 << 28) as u32,
        |address, value| {
            let slice = address >> 28;
            let right = value == 0 || value == slice + 1;
            if right {
                seen[slice as usize][usize::from(value != 0)].store(true, Relaxed);
            }
            right
        },
        || {
            for slice in 0..SLICES {
                now.store(slice, Relaxed);
                wait(&seen[slice as usize][0]);
                writer.insert(slice << 28, 4, slice + 1).unwrap();
                wait(&seen[slice as usize][1]);
            }
        },
    );
    let mut reader = table.reader();
    for slice in 0..SLICES {
        let (first, last) = (slice << 28, (slice << 28) + ((1 << 28) - 1));
        assert_eq!([reader.look_up_one(first), reader.look_up_one(last)], [slice + 1; 2]);
    }
    let backing = table.backing();
    assert!(backing.total() >= (SLICES as usize) << 21, "{backing:?}");
}

#[test]
fn slices_are_backed_under_readers() {
    for pages in [Pages::Ordinary, Pages::Transparent, Pages::Hugetlb] {
        slice_after_slice(pages);
    }
}

#[test]
fn slices_are_backed_under_readers_when_no_huge_page_is_free() {
    let held = Held::all();
    slice_after_slice(Pages::Hugetlb);
    drop(held);
}
