#!/usr/bin/env bash
# Writes a container image (OCI layout, tar) with the program, without Docker: container.sh [PROGRAM [OUTPUT]]. Without
# arguments it builds the program with drivers of NICs in one file, and writes target/container/bondstone.tar.
set -euo pipefail
[ $# = 0 ] || program=$(realpath -- "$1")
out=$(realpath -m -- "${2:-$(dirname "$0")/../target/container/bondstone.tar}")
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
	scripts/host.sh nics bondstone-container
	program=target/release/bondstone-container
fi
version=$("$program" --version)
mkdir -p "$(dirname "$out")"
# the chain without arguments: between /run/bondstone/in.sock and out.sock
"$program" image oci count --name "bondstone:${version#bondstone }" --out "$out"
