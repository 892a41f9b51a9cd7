#!/usr/bin/env bash
# Runs every test; `test.sh check` runs the part that sends no traffic. Reserves huge pages for the run if it may.
set -euo pipefail
cd "$(dirname "$0")/.."
only=${1:-all}

pages=/proc/sys/vm/nr_hugepages
before=$(cat $pages 2>/dev/null || echo 0)
times=() name=''
step() {
	[ -z "$name" ] || times+=("$(printf '%6d s  %s' $((SECONDS - begun)) "$name")")
	name=$1 begun=$SECONDS
	[ -z "$name" ] || printf '\n== %s\n' "$name"
}
finish() {
	status=$?
	if [ -w $pages ] && [ "$(cat $pages)" != "$before" ]; then echo "$before" >$pages; fi
	[ $status = 0 ] || name="$name: FAILED"
	step ''
	printf '\n'
	printf '%s\n' "${times[@]}"
	printf '%6d s  in total\n' $SECONDS
	exit $status
}
trap finish EXIT
if [ "$before" -lt 512 ] && [ -w $pages ]; then echo 512 >$pages; fi

# Runs cargo test, and after a failure prints the command that repeats each failed test alone.
tests() {
	local log status=0
	log=$(mktemp)
	cargo test --release --locked --no-fail-fast "$@" 2>&1 | tee "$log" || status=$?
	awk '
		/^failures:$/ { list = 1; delete failed; n = 0; next }
		list && /^    [^ ]/ { failed[n++] = $1 }
		/^test result:/ { list = 0 }
		/^error: test failed, to rerun pass/ {
			split($0, part, "`")
			for (i = 0; i < n; i++)
				printf "to repeat: cargo test --release --locked %s -- --exact --nocapture %s\n", part[2], failed[i]
			n = 0
		}' "$log"
	rm -f "$log"
	return $status
}

# tests are not run in a debugger
export CARGO_PROFILE_RELEASE_DEBUG=0

step "format, lints, names, scripts"
scripts/lint.sh
step "API documentation"
scripts/docs.sh
if [ "$only" = check ]; then
	step "unit and property tests"
	tests --workspace --exclude bondstone-cli --exclude bondstone --lib --bins --tests
	tests -p bondstone-cli --lib
	tests -p bondstone-cli --test it -- book::
	exit
fi
step "the program for containers and virtual machines"
scripts/host.sh
step "compiling the tests"
cargo test --release --locked --workspace --lib --bins --tests --no-run
step "unit, property and integration tests"
tests --workspace --lib --bins --tests -- --nocapture
step "documentation tests"
tests --workspace --doc
# miri and loom keep one CPU busy each
step "the packet crate under miri; state shared by cores under every interleaving (loom)"
miri=
if cargo +nightly miri --version >/dev/null 2>&1; then
	PROPTEST_CASES=4 MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation" CARGO_TARGET_DIR=target/miri \
		cargo +nightly miri test -p bondstone-packet --lib &
	miri=$!
else
	echo "skipped: needs miri (rustup toolchain install nightly --component miri --component rust-src)"
fi
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release --locked -p bondstone-tables -p bondstone-graph \
	--test message_queue_loom --test cuckoo_loom --test state_loom
[ -z "$miri" ] || wait "$miri"
step "examples: chain files, panics beside another chain, reloads, one chain on all cores"
for file in examples/*.toml; do
	# 3: this machine lacks an interface that the file names
	target/release/bondstone check "$file" || [ $? = 3 ]
done
# the same selection of packages as above, so that no dependency is compiled with other features
cargo build --release --locked --workspace --bins --examples
target/release/examples/panics --seconds 1
target/release/examples/reloads --seconds 1 --judge
target/release/examples/scaling --rounds 1
step "C baselines: the same output packets"
target/release/native-bench --pairs 2 --json target/bench/test.json
