#!/usr/bin/env bash
# Runs examples/demo.toml over a capture. demo.sh CAPTURE
set -euo pipefail
cd "$(dirname "$0")/.."
capture=$(realpath -- "$1")
if [ ! -f "$capture" ]; then
	echo "there is no capture $1: name one with CAPTURE=my.pcap" >&2
	exit 2
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ln -s "$capture" "$dir/demo.pcap"
cp examples/demo.toml "$dir/demo.toml"
echo "bondstone run examples/demo.toml, over $1"
target/release/bondstone run "$dir/demo.toml"
