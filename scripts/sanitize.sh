#!/usr/bin/env bash
# Runs the tests of the packet path with a sanitizer, or those of the tables under miri: sanitize.sh address|thread|miri. Needs
# a nightly toolchain with rust-src.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitizer=${1:-}
toolchain=${SANITIZER_TOOLCHAIN:-nightly}
if ! [ -d "$(rustc "+$toolchain" --print sysroot 2>/dev/null)/lib/rustlib/src" ]; then
	echo "skipped: needs a nightly toolchain with its sources (rustup toolchain install nightly --component rust-src,miri)"
	exit
fi
case $sanitizer in
miri)
	# the others take hours
	PROPTEST_CASES=4 MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation" CARGO_TARGET_DIR=target/miri \
		cargo "+$toolchain" miri test --locked -p bondstone-tables --lib -- cuckoo:: flow:: lpm:: memory::
	exit
	;;
address)
	packages=(tables graph nf pcap streams dpdk runtime)
	# NFs hold packets until the process ends; a test asks for more memory than there is
	export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
	;;
thread)
	# the crates with threads
	packages=(tables graph runtime)
	export TSAN_OPTIONS="suppressions=$PWD/scripts/thread-sanitizer.txt halt_on_error=1 allocator_may_return_null=1"
	;;
*)
	echo "usage: $0 address|thread|miri" >&2
	exit 2
	;;
esac
host=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')
# with a target, build scripts are not instrumented; the standard library has to be, as it synchronises threads
RUSTFLAGS="-Zsanitizer=$sanitizer" CARGO_TARGET_DIR=target/$sanitizer PROPTEST_CASES=${PROPTEST_CASES:-16} \
	cargo "+$toolchain" test --release --locked -Zbuild-std --target "$host" "${packages[@]/#/-pbondstone-}" \
	--no-fail-fast --lib --tests -- --nocapture --test-threads 1
