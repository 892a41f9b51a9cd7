#!/usr/bin/env bash
# Measures NFs beside their C baselines. Reserves huge pages for the time of the run where it may.
set -euo pipefail
cd "$(dirname "$0")/.."
pages=/proc/sys/vm/nr_hugepages
before=$(cat $pages)
if [ "$before" -lt 512 ] && [ -w $pages ]; then
	trap 'echo "$before" > $pages' EXIT
	echo 512 > $pages
fi
cargo build --release --locked -p bondstone-native
target/release/native-bench "$@"
if [ $# -eq 0 ]; then
	cargo build --release --locked -q -p bondstone-cli
	cargo run --release --locked -q -p bondstone-cli --example sandbox_costs
	cargo run --release --locked -q -p bondstone-cli --example ovs_comparison || echo "skipped: ovs_comparison (see above)"
	cargo run --release --locked -q -p bondstone-runtime --example scaling -- --json target/bench/scaling.json
fi
