#!/usr/bin/env bash
# Measures examples/router.toml in memory; with a capture, runs examples/demo.toml over it instead. demo.sh [CAPTURE]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${1:-}" ]; then
	mkdir -p target/demo
	set -- bench examples/router.toml --db target/demo/results.sqlite --report target/demo/report.html
	echo "bondstone $*"
	exec target/release/bondstone "$@"
fi
if [ ! -f "$1" ]; then
	echo "there is no capture $1: name one with CAPTURE=my.pcap" >&2
	exit 2
fi
capture=$(realpath -- "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ln -s "$capture" "$dir/demo.pcap"
cp examples/demo.toml "$dir/demo.toml"
echo "bondstone run examples/demo.toml --for 10s, with $1 as its demo.pcap"
target/release/bondstone run "$dir/demo.toml" --for 10s
