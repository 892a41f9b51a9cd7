#!/bin/sh
# Stands for VPP's command line: answers as that does to what Bondstone says, and to nothing else.
set -eu
[ "$1" = -s ] && cli=$2
shift 2
[ -e "$cli" ]
known="$cli.interfaces"
hops="$cli.hops"
: >>"$known"
: >>"$hops"

# The place of an interface in the order of their creation.
place() {
	grep -n "^$1 " "$known" | cut -d: -f1
}

# Once each interface has its place, testpmd is told of the line from the first, by what leads on, to the second.
joined() {
	[ "$(wc -l <"$hops")" = "$(wc -l <"$known")" ] || exit 0
	devices="" at=1 n=0
	while :; do
		devices="$devices --vdev=net_vhost$n,iface=$(sed -n "${at}s/^[^ ]* //p" "$known"),queues=1"
		[ "$at" != 2 ] || break
		at=$(sed -n "s/^$at //p" "$hops")
		n=$((n + 1))
	done
	echo "$devices" >"$cli.tell"
	# VPP listens as soon as an interface is created
	while read -r _ socket; do
		until [ -S "$socket" ]; do sleep 0.1; done
	done <"$known"
}

case "$*" in
"show version") echo "vpp v24.06-release built by nobody" ;;
"create vhost-user socket "*" server")
	name="VirtualEthernet0/0/$(wc -l <"$known")"
	echo "$name $4" >>"$known"
	echo "$name"
	;;
"set interface state "*" up") place "$4" >/dev/null ;;
"set interface l2 xconnect "*)
	echo "$(place "$5") $(place "$6")" >>"$hops"
	joined
	;;
"set interface l2 bridge "*)
	echo "$(place "$5") alone in $6" >>"$hops"
	joined
	;;
*) echo "$*: unknown input" ;;
esac
