#!/usr/bin/env bash
# Checks format, lints, import cycles, retired words and scripts.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all --check
scripts/import_cycles.py
scripts/words.sh
if command -v shellcheck >/dev/null; then
	shellcheck scripts/*.sh deploy/debian/* fuzz/*.sh crates/bondstone-cli/tests/vpp/*.sh .ci/run
else
	echo "skipped: shellcheck is not installed"
fi
# in the profile of the tests, so that dependencies are checked once
cargo clippy --release --workspace --all-targets --locked -- -D warnings
