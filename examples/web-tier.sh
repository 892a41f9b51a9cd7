#!/usr/bin/env bash
# Runs web-tier.toml between network namespaces with three web servers (nginx), fetches pages, stops one server, fetches
# again, and removes everything. Needs root, two CPUs, iproute2, ethtool, curl, nginx: scripts/setup.sh test.
set -euo pipefail
cd "$(dirname "$0")/.."
bondstone=${BONDSTONE:-target/release/bondstone}
if [ "$(id -u)" != 0 ]; then
	echo "examples/web-tier.sh: needs root to create network namespaces" >&2
	exit 3
fi
tag=bswt$$
work=$(mktemp -d)
pids=()
clean() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	for name in c lb sw b1 b2 b3; do ip netns del "$tag-$name" 2>/dev/null || true; done
	rm -rf "$work"
}
trap clean EXIT

for name in c lb sw b1 b2 b3; do
	ip netns add "$tag-$name"
	ip -n "$tag-$name" link set lo up
done
# Creates a link between two namespaces without offloads, so that packets are sent unmerged and with checksums.
link() {
	ip -n "$tag-$1" link add "$2" type veth peer name "$4" netns "$tag-$3"
	for end in "$1 $2" "$3 $4"; do
		read -r space interface <<<"$end"
		ip netns exec "$tag-$space" ethtool -K "$interface" tx off rx off tso off gso off gro off >/dev/null 2>&1
		ip -n "$tag-$space" link set "$interface" up
	done
}
link lb wan c c0
ip -n "$tag-sw" link add br0 type bridge
ip -n "$tag-sw" link set br0 up
link lb lan sw p0
link lb check sw p1
ip -n "$tag-lb" addr add 10.2.0.254/24 dev check
ip -n "$tag-sw" link set p0 master br0
ip -n "$tag-sw" link set p1 master br0
ip -n "$tag-c" addr add 10.1.0.2/24 dev c0
ip -n "$tag-c" route add default via 10.1.0.1
for n in 1 2 3; do
	link sw "s$n" "b$n" e0
	ip -n "$tag-sw" link set "s$n" master br0
	ip -n "$tag-b$n" addr add "10.2.0.1$n/24" dev e0
	ip -n "$tag-b$n" route add default via 10.2.0.1
	mkdir -p "$work/$n"
	echo "web$n" >"$work/$n/index.html"
	cat >"$work/$n.conf" <<-END
		daemon off; master_process off; pid $work/$n/pid; error_log $work/$n/error.log; events {}
		http { access_log off; client_body_temp_path $work/$n/a; proxy_temp_path $work/$n/b; fastcgi_temp_path $work/$n/c;
		uwsgi_temp_path $work/$n/d; scgi_temp_path $work/$n/e; server { listen 8080; root $work/$n; } }
	END
	ip netns exec "$tag-b$n" nginx -p "$work/$n" -e "$work/$n/error.log" -c "$work/$n.conf" &
	pids+=($!)
done

ip netns exec "$tag-lb" "$bondstone" run examples/web-tier.toml >"$work/out" 2>"$work/err" &
balancer=$!
pids+=("$balancer")
for _ in $(seq 100); do
	grep -q '^CPU ' "$work/err" && break
	sleep 0.1
done
pages() {
	for _ in $(seq 30); do
		ip netns exec "$tag-c" curl -s --max-time 5 http://192.0.2.10/ || echo "no answer"
	done | sort | uniq -c
}
echo "30 pages, from:"
pages
echo "web2 stops; two seconds later 30 pages, from:"
kill "${pids[1]}"
sleep 2
pages
kill -INT "$balancer"
wait "$balancer" || true
cat "$work/out"
