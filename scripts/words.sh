#!/usr/bin/env bash
# Fails where code, documentation or a message contains a word that docs/reference/glossary.md lists as retired.
set -euo pipefail
cd "$(dirname "$0")/.."
# rows of the table under "Retired words": | `pattern`, `pattern` | replacement |
patterns=$(sed -n '/^## Retired words/,$s/^| \(`.*`\) |.*|$/\1/p' docs/reference/glossary.md | tr -d '`' | sed 's/, /|/g' | paste -sd'|')
[ -n "$patterns" ] || { echo "error: docs/reference/glossary.md: no retired words found" >&2; exit 1; }
found=$(git grep -nwiIP -e "$patterns" -- '*.rs' '*.c' '*.h' '*.md' '*.sh' '*.py' '*.toml' Makefile ':!docs/reference/glossary.md' ':!crates/config/src' ':!CHANGELOG.md' ':!Cargo.lock' || true)
if [ -n "$found" ]; then
	echo "$found"
	echo "error: $(wc -l <<<"$found") lines with retired words; docs/reference/glossary.md lists what to write instead" >&2
	exit 1
fi
