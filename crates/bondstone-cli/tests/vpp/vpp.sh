#!/bin/sh
# Stands for VPP where there is none: takes its configuration, and once vppctl.sh has connected the interfaces that it was
# told of, testpmd hands the packets on as it was told.
set -eu
[ "$1" = -c ]
# a word that stands where VPP has no such setting is an error there
for section in unix api-segment socksvr statseg cpu plugins; do
	grep -q "^$section {" "$2"
done
cli=$(sed -n 's/^unix {.* cli-listen \([^ ]*\) }$/\1/p' "$2")
cpu=$(sed -n 's/^cpu { main-core \([0-9]*\).*}$/\1/p' "$2")
# of the same name as VPP's memory for other programs
: >/dev/shm/bondstone-vpe-api
mkfifo "$cli.tell"
: >"$cli"
read -r devices <"$cli.tell"
rm "$cli.tell"
# shellcheck disable=SC2086
exec dpdk-testpmd "--lcores=0@$cpu,1@$cpu" --no-pci --no-shconf --no-huge -m 512 $devices -- \
	--forward-mode=io --no-mlockall --total-num-mbufs=16384 --port-topology=chained
