#!/usr/bin/env bash
# Format, lints, scripts, licences.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all --check
# in the profile of the tests: what builds and macros run is built once
cargo clippy --release --workspace --all-targets --locked -- -D warnings
if command -v shellcheck >/dev/null; then
	shellcheck scripts/*.sh fuzz/*.sh crates/bondstone-cli/tests/vpp/*.sh .ci/run
else
	echo "skipped: shellcheck is not installed"
fi
if command -v cargo-deny >/dev/null; then
	cargo deny --locked --all-features check licenses bans sources
else
	echo "skipped: cargo-deny is not installed (cargo install --locked cargo-deny)"
fi
