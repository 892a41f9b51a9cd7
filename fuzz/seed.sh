#!/bin/bash
# Fills fuzz/corpus from the captures of $BONDSTONE_DATA (../shared/data if unset), the example chain files and fuzz/seeds.
set -euo pipefail
cd "$(dirname "$0")"

data=${BONDSTONE_DATA:-../../shared/data}
mkdir -p corpus/{capture,chain_file,control_socket,dns,dpi,fpm,http,ids_rules,maglev,measure_text,nf,router,scenario,streams,tls,traffic_text,wire}

for target in corpus/*; do
    seeds=seeds/$(basename "$target")
    [[ -d $seeds ]] && cp -n "$seeds"/* "$target/"
done
while IFS= read -r file; do
    cp -n "$file" corpus/chain_file/
done < <(find ../examples -name '*.toml' 2>/dev/null)

while IFS= read -r file; do
    cp -n "$file" "corpus/scenario/$(basename "$(dirname "$file")")-$(basename "$file")"
done < <(grep -rl --include='*.toml' '^\[scenario\]' ../scenarios 2>/dev/null)

if [[ ! -d $data/dpi ]]; then
    echo "no captures in $data/dpi: fuzzing starts with fuzz/seeds alone"
    exit 0
fi
nf=0
# The first 60 captures of up to 8 KiB: small inputs are mutated faster.
while IFS= read -r file; do
    name=$(basename "$file")
    [[ -e corpus/capture/$name ]] && continue
    cp --no-preserve=mode "$file" "corpus/capture/$name"
    gzip -cn "$file" >"corpus/capture/$name.gz"
    # The first frame, after the headers of the pcap file and the record.
    head -c 1540 "$file" | tail -c +41 >"corpus/wire/$name"
    # Burst, spare buffers, a single NF (each in turn) with the settings of its example; then the capture.
    { printf '\37\40\0%b\1' "\\$((nf = (nf + 1) % 8))" && cat "$file"; } >"corpus/nf/$name"
    # The settings of each list in turn; then the capture.
    { printf '%b' "\\$((nf % 3))" && cat "$file"; } >"corpus/dpi/$name"
done < <(find "$data/dpi" -name '*.pcap*' -size -9k | LC_ALL=C sort | head -n 60)
