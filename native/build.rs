//! Compiles the C network functions: Debian's flags for DPDK, then -O3 and this machine's own instructions.

fn main() {
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-changed=build.rs");
    let lib = pkg_config::Config::new()
        .atleast_version("22.11")
        .cargo_metadata(false)
        .probe("libdpdk")
        .expect("libdpdk (make setup)");
    let mut c = cc::Build::new();
    let names = [
        "bridge",
        "cells",
        "conntrack",
        "filter",
        "firewall",
        "hash",
        "io",
        "l2fwd",
        "mac_table",
        "maglev",
        "memory",
        "monitor",
        "nat",
        "police",
        "ring",
        "router",
        "router6",
        "spread",
        "ttl",
    ];
    c.files(names.map(|name| format!("c/{name}.c"))).includes(&lib.include_paths).opt_level(3).warnings(true);
    // -march=native has to come last
    for flag in
        ["-include", "rte_config.h", "-march=corei7", "-march=native", "-Wno-unused-parameter", "-Wno-unused-function"]
    {
        c.flag(flag);
    }
    c.compile("bondstone_native");
    // what only the baselines use of DPDK
    let libdir = pkg_config::get_variable("libdpdk", "libdir").expect("libdpdk.pc names its libdir");
    println!("cargo:rustc-link-search=native={libdir}");
    for name in ["fib", "rib", "acl", "hash", "meter", "ring"] {
        println!("cargo:rustc-link-lib=static:-bundle=rte_{name}");
    }
}
