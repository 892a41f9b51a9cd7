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

# Creates an interface: its name, and what it is to testpmd.
create() {
	echo "$1 $2" >>"$known"
	echo "$1"
}

# The place of an interface in the order of their creation.
place() {
	at=$(grep -n "^$1 " "$known") || {
		echo "unknown interface $1"
		exit 1
	}
	at=${at%%:*}
}

# Once each interface leads somewhere, testpmd is told of the line from the first, by what leads on, to the second.
joined() {
	echo "$1" >>"$hops"
	[ "$(wc -l <"$hops")" = "$(wc -l <"$known")" ] || exit 0
	devices="" at=1 n=0
	while :; do
		devices="$devices --vdev=$(sed -n "${at}s/^[^ ]* //p" "$known" | sed "s/,/$n,/")"
		[ "$at" != 2 ] || break
		at=$(sed -n "s/^$at //p" "$hops")
		n=$((n + 1))
	done
	echo "$devices" >"$cli.tell"
	# VPP listens as soon as an interface is created
	sed -n 's/.*net_vhost,iface=\(.*\),queues=1$/\1/p' "$known" | while read -r socket; do
		until [ -S "$socket" ]; do sleep 0.1; done
	done
}

case "$*" in
"show version") echo "vpp v24.06-release built by test" ;;
"create vhost-user socket "*" server packed")
	create "VirtualEthernet0/0/$(wc -l <"$known")" "net_vhost,iface=$4,queues=1"
	;;
"create host-interface name "*) create "host-$4" "net_af_packet,iface=$4" ;;
"set interface state "*" up") place "$4" ;;
"set interface l2 xconnect "*)
	place "$5"
	from=$at
	place "$6"
	joined "$from $at"
	;;
"set interface l2 bridge "*)
	place "$5"
	[ "$6" != 1 ] || {
		echo "bridge domain 1: not here"
		exit 0
	}
	joined "$at alone"
	;;
*) echo "$*: unknown input" ;;
esac
