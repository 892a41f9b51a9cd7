#!/usr/bin/env bash
# Every test; test.sh check: the quick part alone. Reserves huge pages for the time of the run where it may.
set -euo pipefail
cd "$(dirname "$0")/.."
only=${1:-all}
step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

pages=/proc/sys/vm/nr_hugepages
before=$(cat $pages 2>/dev/null || echo 0)
if [ "$before" -lt 512 ] && [ -w $pages ]; then
	trap 'echo "$before" > $pages' EXIT
	echo 512 > $pages
fi

# nobody steps through what is tested
export CARGO_PROFILE_RELEASE_DEBUG=0

step "format, lints, scripts, licences"
scripts/lint.sh
step "documentation"
scripts/docs.sh
# what is selected decides which features dependencies have: with the same packages all the time, each is compiled once
step "unit, property and documentation tests"
if [ "$only" = check ]; then
	cargo test --release --locked --workspace --exclude bondstone --lib --bins --tests
	cargo test --release --locked -p bondstone-cli --lib --test book
	cargo test --release --locked --workspace --doc
else
	scripts/host.sh
	scripts/emulated-nic.sh || echo "note: no emulated NIC with virtual functions"
	step "and through the command line: captures, processes, namespaces, walls, wrong input"
	cargo test --release --locked --workspace --lib --bins --tests -- --nocapture
	cargo test --release --locked --workspace --doc
fi
# each keeps one CPU busy, and most of the time no more
step "the packet crate under miri; what cores share, under every interleaving (loom)"
miri=
if cargo +nightly miri --version >/dev/null 2>&1; then
	PROPTEST_CASES=4 MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation" CARGO_TARGET_DIR=target/miri \
		cargo +nightly miri test -p bondstone-packet --lib &
	miri=$!
else
	echo "skipped: needs miri (rustup +nightly component add miri)"
fi
if [ "$only" = check ]; then
	wait $miri
	step "done"
	exit 0
fi
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release --locked -p bondstone-tables -p bondstone-graph --test handoff_loom --test exact_loom --test state_loom
wait $miri
step "examples"
for file in examples/*.toml; do
	target/release/bondstone check "$file"
done
step "panics beside another chain, one chain on all cores"
# with the examples in it this selects what the tests did
cargo build --release --locked --workspace --bins --examples
target/release/examples/panics --seconds 1
target/release/examples/scaling --rounds 1
step "C baselines give the same packets"
target/release/native-bench --pairs 2 --json target/bench/test.json
step "done"
