#!/usr/bin/env bash
# Checks the licences, sources and known vulnerabilities of dependencies. Installs cargo-deny if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
cargo deny --locked --all-features check licenses bans sources
