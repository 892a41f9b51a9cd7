#!/usr/bin/env bash
# Runs examples/demo.toml over a capture. demo.sh CAPTURE
set -euo pipefail
cd "$(dirname "$0")/.."
capture=$(realpath -- "$1")
if [ ! -f "$capture" ]; then
	echo "there is no capture $1: name one with CAPTURE=my.pcap" >&2
	exit 2
fi
if [ "$capture" = "$(realpath examples/demo.pcap)" ]; then
	echo "bondstone run examples/demo.toml --for 10s"
	exec target/release/bondstone run examples/demo.toml --for 10s
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ln -s "$capture" "$dir/demo.pcap"
cp examples/demo.toml "$dir/demo.toml"
echo "bondstone run examples/demo.toml --for 10s, with $1 as its demo.pcap"
target/release/bondstone run "$dir/demo.toml" --for 10s
