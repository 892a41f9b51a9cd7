#!/usr/bin/env bash
# Builds target/release/bondstone-host, the program without what measures and without drivers of NICs, with all libraries in
# it, for containers and VMs; host.sh FEATURES NAME builds target/release/NAME with these features.
set -euo pipefail
cd "$(dirname "$0")/.."
features=${1:-} name=${2:-bondstone-host}
target=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_TARGET_DIR=target/host
export RUSTFLAGS="${RUSTFLAGS:--Ctarget-cpu=x86-64-v3} -Ctarget-feature=+crt-static"
"${CARGO:-cargo}" build --release --locked --target "$target" -p bondstone-cli --bin bondstone \
	--no-default-features --features "$features"
install -D "target/host/$target/release/bondstone" "target/release/$name"
