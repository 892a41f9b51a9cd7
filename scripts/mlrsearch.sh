#!/usr/bin/env bash
# Compares the trial time of the search with FD.io's MLRsearch (from PyPI, needs python3-venv) on simulated devices:
# mlrsearch.sh [SEEDS].
set -euo pipefail
cd "$(dirname "$0")/.."
venv=target/mlrsearch
[ -x $venv/bin/python ] || python3 -m venv $venv
$venv/bin/python -c 'import MLRsearch' 2>/dev/null || $venv/bin/pip install --quiet MLRsearch==1.2.1
cargo build --release --locked --workspace --example search_cost
$venv/bin/python scripts/mlrsearch.py target/release/examples/search_cost "${1:-9}"
