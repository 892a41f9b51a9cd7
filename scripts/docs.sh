#!/usr/bin/env bash
# The API documentation into target/doc, the book into target/book.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps --locked
if command -v mdbook >/dev/null; then
	mdbook build docs
else
	echo "skipped: the book as HTML needs mdbook (cargo install --locked mdbook); docs/SUMMARY.md is its table of contents"
fi
