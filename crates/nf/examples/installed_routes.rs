//! Cost of routes that a routing daemon installs:
//! `cargo run --release -p bondstone-nf --example installed_routes [TENANTS|tables]`.
//!
//! The routes of `data/routes` are installed for each of TENANTS tenants of a router (default 1, at most 64), with 100 next
//! hops in turn; then all are changed to other next hops, and to groups of two, and removed. Prints routes per second and
//! the memory of the process for each tenant; or, for `tables`, the memory of the tables of one without the rest of it:
//! empty, with 1,000 routes, and with all.
#![allow(clippy::print_stdout, reason = "a program that prints its results")]
#![forbid(unsafe_code)]

use graph::{BuildContext, Nf};
use ipnet::IpNet;
use nf::L3fwd;
use nf::live::{InstalledHop, InstalledTarget, LiveRoutes, LiveVrf};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;
use tables::{lpm4, lpm6};

const HOPS: usize = 100;

/// Routes that an `l3fwd` without interfaces has.
const ALWAYS: &str = "0.0.0.0/8 127.0.0.0/8 224.0.0.0/4 240.0.0.0/4 ::/128 ::1/128 ff00::/8 fe80::/10";

/// Returns the `n`th next hop, on the network of the only interface.
fn hop(n: usize, is_ipv4: bool) -> InstalledHop {
    let host = 2 + (n % (2 * HOPS)) as u16;
    let gateway: IpAddr = match is_ipv4 {
        true => Ipv4Addr::from_bits(0x0a00_0000 + u32::from(host)).into(),
        false => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host).into(),
    };
    InstalledHop { gateway: Some(gateway), interface: Some(0), weight: 1 }
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Prints the memory of a table for each IP version with these routes, which are inserted one by one.
fn print_memory_of_tables(name: &str, prefixes: &[IpNet]) -> Result<(), tables::lpm::Error> {
    let always = ALWAYS.split(' ').filter_map(|prefix| prefix.parse().ok()).map(|prefix: IpNet| (prefix, 3));
    let routes = prefixes.iter().enumerate().map(|(n, prefix)| (*prefix, 10 + (n % HOPS) as u32));
    let routes: Vec<_> = always.chain(routes).collect();
    let (before, start) = (resident(), Instant::now());
    let (mut v4, _) = lpm4::new()?;
    for (prefix, value) in &routes {
        if let IpNet::V4(net) = prefix {
            v4.insert(net.network(), net.prefix_len(), *value)?;
        }
    }
    let with_v4 = resident();
    let (mut v6, _) = lpm6::new()?;
    for (prefix, value) in &routes {
        if let IpNet::V6(net) = prefix {
            v6.insert(net.network(), net.prefix_len(), *value)?;
        }
    }
    let (with_v6, time) = (resident(), start.elapsed());
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let part = |memory: u64, backing: usize| {
        let memory = memory as usize;
        format!("{:.1} MiB, {:.1} of them for readers", mib(memory), mib(backing))
    };
    let (of_v4, of_v6) = (with_v4 - before, with_v6 - with_v4);
    println!(
        "tables {name}: {:.1} MiB in {time:.2?} (IPv4 {}; IPv6 {})",
        mib((of_v4 + of_v6) as usize),
        part(of_v4, v4.table().backing().total()),
        part(of_v6, v6.table().backing().total()),
    );
    println!("  IPv4: {:?}\n  IPv6: {:?}", v4.usage(), v6.usage());
    Ok(())
}

/// Makes the change for every prefix, in every table; prints routes per second.
fn change(name: &str, tables: &[LiveVrf], prefixes: &[IpNet], target: impl Fn(usize, bool) -> Option<InstalledTarget>) {
    let targets: Vec<_> = (0..HOPS).map(|n| [target(n, false), target(n, true)]).collect();
    let start = Instant::now();
    for table in tables {
        for (prefix, targets) in prefixes.iter().zip(targets.iter().cycle()) {
            match &targets[usize::from(prefix.addr().is_ipv4())] {
                Some(target) => table.install(*prefix, target).unwrap_or_else(|e| panic!("{prefix}: {e}")),
                None => table.uninstall(*prefix),
            }
        }
    }
    let (n, time) = (tables.len() * prefixes.len(), start.elapsed());
    println!("{name}: {n} routes in {time:.2?}, {:.2} million per second", n as f64 / time.as_secs_f64() / 1e6);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "1".to_owned());
    let data =
        std::env::var("BONDSTONE_DATA").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into());
    let mut text = String::new();
    let file = std::fs::File::open(format!("{data}/routes/prefixes.txt.gz"))?;
    flate2::read::GzDecoder::new(file).read_to_string(&mut text)?;
    let prefixes = text.lines().map(str::parse).collect::<Result<Vec<IpNet>, _>>()?;
    if argument == "tables" {
        let thousand: Vec<_> = prefixes.iter().step_by(prefixes.len() / 1000).take(1000).copied().collect();
        print_memory_of_tables("without routes", &[])?;
        print_memory_of_tables("with 1,000 routes", &thousand)?;
        print_memory_of_tables("with all routes", &prefixes)?;
        return Ok(());
    }
    let n: usize = argument.parse()?;
    let before = resident();
    let tenant = |n| {
        format!(
            "interface.e{n} = {{ addresses = [\"10.0.0.1/16\", \"fd00::1/64\"], tenant = \"t{n}\" }}\n\
             tenant.t{n}.fpm.routes_max = 2_000_000\n"
        )
    };
    let settings = toml::from_str(&(0..n).map(tenant).collect::<String>())?;
    let cx = BuildContext { name: "router".to_owned(), ..BuildContext::default() };
    let router = L3fwd::build(&settings, &cx).map_err(|e| e.to_string())?;
    let live = cx.shared::<LiveRoutes>(|| Err(diagnostics::Diagnostic::new("no routes")))?;
    let tables: Vec<LiveVrf> = live.vrfs().filter(|vrf| vrf.tenant().is_some()).collect();
    let empty = resident();
    change("installed", &tables, &prefixes, |n, is_ipv4| Some(InstalledTarget::Via(vec![hop(n % HOPS, is_ipv4)])));
    let full = resident();
    let mib = |bytes: u64| bytes / n as u64 / (1 << 20);
    println!("memory for each tenant: {} MiB empty, {} MiB with the routes", mib(empty - before), mib(full - before));
    change("changed", &tables, &prefixes, |n, is_ipv4| Some(InstalledTarget::Via(vec![hop(HOPS + n % HOPS, is_ipv4)])));
    change("changed to groups", &tables, &prefixes, |n, is_ipv4| {
        Some(InstalledTarget::Via(vec![hop(n % HOPS, is_ipv4), hop(n % HOPS + 1, is_ipv4)]))
    });
    change("removed", &tables, &prefixes, |_, _| None);
    drop(router);
    Ok(())
}
