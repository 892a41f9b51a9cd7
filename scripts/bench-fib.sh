#!/usr/bin/env bash
# Measures the exact-match table up to a billion entries. Reserves huge pages for the time of the run where it may.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -p bondstone-native
# 8.5 GiB for a billion entries, 2.5 for DPDK's hash table of 64 million
want=5700
pages=/proc/sys/vm/nr_hugepages
before=$(cat $pages)
if [ -w $pages ]; then
	trap 'echo "$before" > $pages' EXIT
	[ "$before" -ge $want ] || echo $want > $pages
fi
free=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages)
if [ "$free" -lt $want ]; then
	echo "note: $free of the $want huge pages (2 MiB) that the largest table wants are free; tables that do not fit go to" \
		"transparent huge pages, and rte_hash is left out where DPDK finds none. As root: echo $want > $pages" >&2
fi
if [ $# -eq 0 ]; then
	set -- --entries 1000000 --entries 16000000 --entries 64000000
	available=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
	if [ $((available / 1024 + free * 2)) -ge 13000 ]; then
		set -- "$@" --entries 1000000000
	else
		echo "skipped: a billion entries: they want 13 GB of free memory" >&2
	fi
fi
target/release/fib-bench "$@"
