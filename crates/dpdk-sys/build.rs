//! Finds libdpdk, compiles the shim and generates the bindings.

use std::{env, path::Path, path::PathBuf};

/// Drivers, linked as whole archives because their constructors register them; those that are not installed are left
/// out.
const DRIVERS: &[&str] = &[
    "bus_vdev",
    "bus_pci",
    "bus_auxiliary",
    "bus_vmbus",
    "mempool_ring",
    "mempool_stack",
    // software
    "net_null",
    "net_ring",
    "net_tap",
    "net_af_packet",
    "net_af_xdp",
    "net_memif",
    "net_vhost",
    "net_virtio",
    "net_bond",
];
/// Drivers of hardware NICs that need no additional library.
const NICS: &[&str] = &[
    "net_e1000",
    "net_igc",
    "net_ixgbe",
    "net_i40e",
    "net_iavf",
    "net_ice",
    "net_fm10k",
    "net_ena",
    "net_gve",
    "net_vmxnet3",
    "net_bnxt",
    "net_netvsc",
];
/// Libraries that the drivers and the shim depend on, in any order.
const LIBS: &[&str] = &[
    "eal",
    "kvargs",
    "telemetry",
    "ring",
    "rcu",
    "mempool",
    "mbuf",
    "net",
    "meter",
    "ethdev",
    "pci",
    "cmdline",
    "metrics",
    "hash",
    "timer",
    "bpf",
    "cryptodev",
    "security",
    "dmadev",
    "gso",
    "gro",
    "ip_frag",
    "vhost",
    "sched",
    "stack",
    "common_iavf",
    "log",
    "argparse",
];
/// System libraries that these depend on, each before its own dependencies.
const SYSTEM: &[&str] = &["xdp", "bpf", "numa", "bsd", "md", "elf", "z", "m", "dl", "pthread"];

fn main() {
    for file in ["shim.h", "shim.c", "memif_guard.c", "shared_ring.c", "build.rs"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let dynamic = env::var_os("CARGO_FEATURE_DYNAMIC").is_some();
    let lib = pkg_config::Config::new().atleast_version("22.11").cargo_metadata(dynamic).probe("libdpdk").unwrap_or_else(|e| {
        panic!("libdpdk 22.11 or later is needed (Debian, Ubuntu: `make setup`, or apt-get install libdpdk-dev libclang-dev): {e}")
    });
    let libdir = pkg_config::get_variable("libdpdk", "libdir").expect("libdpdk.pc names its libdir");
    if !dynamic {
        link_static(Path::new(&libdir));
    }

    // the pkg-config crate drops these two flags, without which headers and library disagree about layouts
    let mut flags = vec!["-include".to_owned(), "rte_config.h".to_owned()];
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|a| a == "x86_64") {
        flags.push("-march=corei7".to_owned());
    }

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang_version = bindgen::clang_version();
    let compiler_headers = clang_version.parsed.and_then(|(major, _)| compiler_headers(major));
    bindgen::Builder::default()
        .header("shim.h")
        .clang_args(lib.include_paths.iter().map(|p| format!("-I{}", p.display())))
        .clang_args(&flags)
        // otherwise those of the program `clang`, which may be of another version
        .detect_include_paths(compiler_headers.is_none())
        .clang_args(compiler_headers.iter().flat_map(|dir| ["-resource-dir".to_owned(), dir.display().to_string()]))
        .use_core()
        .allowlist_function("bs_.*|rte_mempool_avail_count|rte_thread_register|rte_thread_unregister|rte_strerror|rte_version|rte_eth_call_[rt]x_callbacks")
        .allowlist_var("BS_.*|rte_eth_fp_ops")
        .allowlist_type("bs_.*")
        // packed types that contain aligned ones, which rustc refuses (E0588); none is used
        .opaque_type("rte_arp_.*|rte_l2tpv2_.*|rte_gre_.*")
        .opaque_type("rte_mbuf|rte_mempool")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .generate()
        .unwrap_or_else(|e| {
            panic!(
                "bindgen cannot read shim.h with libclang ({}); install the headers of that version (Debian, Ubuntu: \
                 libclang-VERSION-dev), or set LIBCLANG_PATH to the folder of another libclang: {e}",
                clang_version.full
            )
        })
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");

    let mut shim = cc::Build::new();
    shim.file("shim.c")
        .file("memif_guard.c")
        .file("shared_ring.c")
        .includes(&lib.include_paths)
        .opt_level(3)
        .flag("-Wno-unused-parameter");
    for flag in &flags {
        shim.flag(flag);
    }
    shim.compile("bondstone_dpdk_shim");
    println!("cargo:include={}", env::join_paths(&lib.include_paths).expect("no colon in paths").display());
}

/// Returns the folder that has the compiler's own headers, such as `stddef.h`, of a major version of libclang.
fn compiler_headers(major: u32) -> Option<PathBuf> {
    let folders =
        [format!("/usr/lib/llvm-{major}/lib/clang"), "/usr/lib/clang".to_owned(), "/usr/lib64/clang".to_owned()];
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let is_version = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.split('.').next()?.parse().ok()) == Some(major)
    };
    entries.map(|entry| entry.path()).filter(is_version).find(|path| path.join("include/stddef.h").exists())
}

fn link_static(libdir: &Path) {
    println!("cargo:rustc-link-search=native={}", libdir.display());
    let installed = |name: &str| libdir.join(format!("librte_{name}.a")).exists();
    let nics = if env::var_os("CARGO_FEATURE_NICS").is_some() { NICS } else { &[] };
    for name in DRIVERS.iter().chain(nics).filter(|n| installed(n)) {
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=rte_{name}");
    }
    for name in LIBS.iter().filter(|n| installed(n)) {
        println!("cargo:rustc-link-lib=static:-bundle=rte_{name}");
    }
    // a fully static program if requested
    let fully_static = env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|all| all.split(',').any(|f| f == "crt-static"));
    let kind = if fully_static { "static:-bundle" } else { "dylib" };
    let needed = |name: &&&str| match **name {
        "xdp" | "bpf" => installed("net_af_xdp"),
        // the shared libbsd depends on it itself
        "md" => fully_static,
        _ => true,
    };
    for name in SYSTEM.iter().filter(needed) {
        println!("cargo:rustc-link-lib={kind}={name}");
    }
}
