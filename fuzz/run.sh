#!/bin/bash
# Fuzzes the parsers: fuzz/run.sh [SECONDS] [TARGET...]
#
# SECONDS is the time per target, 600 by default; without TARGET all targets are run. A crash ends its target only. Requires
# a nightly toolchain and a C++ compiler, but not cargo-fuzz. FUZZ_TOOLCHAIN selects another toolchain; targets then run
# without AddressSanitizer.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-600}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: fuzz/run.sh [SECONDS] [TARGET...]" >&2
    exit 2
fi
shift || true
targets=("$@")
# The parsers of goals and scenarios link with DPDK.
linked='^(measure_text|scenario)$'
if ((${#targets[@]} == 0)); then
    for file in fuzz_targets/*.rs; do
        target=$(basename "$file" .rs)
        if [[ $target =~ $linked ]] && ! pkg-config --exists libdpdk 2>/dev/null; then
            echo "skipped: $target needs libdpdk"
            continue
        fi
        targets+=("$target")
    done
fi
selected=()
for target in "${targets[@]}"; do
    [[ -f fuzz_targets/$target.rs ]] || {
        echo "unknown target: $target; targets: $(basename -s .rs fuzz_targets/*.rs | paste -sd' ')" >&2
        exit 2
    }
    selected+=(--bin "$target")
    if [[ $target =~ $linked ]]; then
        selected+=(--features measure)
    fi
done

# Check the list first, because rustup installs a toolchain that a command refers to.
toolchain=${FUZZ_TOOLCHAIN:-nightly}
if ! grep -q "^$toolchain" <<<"$(rustup toolchain list 2>/dev/null)"; then
    echo "skipped: fuzzing needs a nightly toolchain (rustup toolchain install nightly)"
    exit 0
fi

# The flags of cargo-fuzz.
host=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')
flags=(--cfg fuzzing -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares)
if [[ $toolchain == nightly* ]] && compgen -G "$(rustc "+$toolchain" --print target-libdir)/*_rt.asan*" >/dev/null; then
    flags+=(-Zsanitizer=address)
    sanitizer="with AddressSanitizer"
else
    sanitizer="without AddressSanitizer"
fi
# With an explicit target the flags do not apply to build scripts and procedural macros.
RUSTFLAGS="${flags[*]}" cargo "+$toolchain" build --release --quiet "${selected[@]}" --target "$host"
built=${CARGO_TARGET_DIR:-target}/$host/release

# The targets check for leaked packets; LeakSanitizer needs a permission that containers often lack.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}
./seed.sh
trap 'echo "stopped"; exit 130' INT TERM

failed=0
for target in "${targets[@]}"; do
    corpus=corpus/$target artifacts=artifacts/$target
    mkdir -p "$corpus" "$artifacts"
    log=$artifacts/log
    options=(-max_total_time="$seconds" -rss_limit_mb=2048 -timeout=60 -print_final_stats=1 -artifact_prefix="$artifacts/")
    if [[ -f dicts/$target.dict ]]; then
        options+=(-dict="dicts/$target.dict")
    fi
    echo "$target: $seconds s $sanitizer"
    status=0
    "$built/$target" "${options[@]}" "$corpus" >"$log" 2>&1 || status=$?
    # Exit status of libFuzzer after Ctrl-C.
    if ((status == 72)); then
        echo "stopped"
        exit 130
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    reached=$(grep -o 'cov: [0-9]* ft: [0-9]* corp: [0-9]*' "$log" | tail -n 1 || true)
    echo "$target: ${runs:-?} runs, ${rate:-?} per second, ${reached:-no coverage}"
    if ((status != 0)); then
        failed=1
        grep -m 1 -A 3 'panicked at' "$log" | cut -c 1-400 || true
        grep 'SUMMARY:' "$log" || true
        input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        echo "$target: FAILED (status $status), log: fuzz/$log"
        if [[ -n $input ]]; then
            echo "  input:      fuzz/$input"
            echo "  reproduce:  cd fuzz && ASAN_OPTIONS=detect_leaks=0 $built/$target $input"
            echo "  minimize:   cd fuzz && $built/$target -minimize_crash=1 -max_total_time=60 -artifact_prefix=$artifacts/ $input"
        fi
    fi
done
exit "$failed"
