#!/usr/bin/env bash
# Installs the system packages that are missing. setup.sh build: to build and run; setup.sh test: for every test as well.
set -euo pipefail

# package, and why
build_needs=(
	"libdpdk-dev:DPDK, which moves the packets"
	"libclang-dev:reads DPDK's headers for the Rust binding"
	"clang:headers of the above"
	"pkg-config:finds DPDK"
	"gcc:compiles the C shim and the C baselines"
	"libnuma-dev:DPDK is linked statically with these"
	"libbsd-dev:DPDK is linked statically with these"
	"libelf-dev:DPDK is linked statically with these"
	"zlib1g-dev:DPDK is linked statically with these"
	"libxdp-dev:AF_XDP ports"
	"libbpf-dev:AF_XDP ports"
	"libpcap0.8:filter expressions of capture and trace"
)
test_needs=(
	"dpdk-dev:testpmd, to compare with"
	"dpkg-dev:the Debian package"
	"groff-base:checks manual pages"
	"openvswitch-switch-dpdk:a device to be measured"
	"nftables:a device to be measured"
	"runc:devices and sandboxes in containers"
	"qemu-system-x86:sandboxes that are virtual machines"
	"openssh-client:devices on another machine, which is a network namespace in the tests"
	"openssh-server:the other machine, started by the tests in a folder and a namespace of their own"
	"postgresql:a server of results, started by the tests in a folder of their own"
	"iproute2:namespaces and interfaces"
	"iputils-ping:traffic"
	"curl:traffic"
	"prometheus:scrapes and checks the metrics"
	"frr:a peer of the FPM server, started by the tests in namespaces and a folder of their own"
	"bird2:routes for it"
	"nginx-light:traffic"
	"iperf3:traffic"
	"traceroute:traffic"
	"bind9-dnsutils:traffic"
	"dnsmasq-base:answers it"
	"ethtool:switches offloads off"
	"tshark:an independent reader of captures"
	"nfdump:a collector of flows"
	"util-linux:running as another user"
	"busybox-static:the inside of a guest with an emulated NIC"
	"cpio:the same"
	"libhyperscan5:the faster search of ids, where the distribution has it"
	"shellcheck:checks the scripts"
)

needs=("${build_needs[@]}")
[ "${1:-build}" = test ] && needs+=("${test_needs[@]}")

if ! command -v cargo >/dev/null; then
	echo "Rust is missing: install rustup first (Debian, Ubuntu: apt-get install rustup && rustup default stable)" >&2
	exit 3
fi
if ! command -v apt-get >/dev/null; then
	echo "note: this is no Debian or Ubuntu; install by hand: $(printf '%s ' "${needs[@]%%:*}")" >&2
	exit 0
fi

if [ "${1:-build}" = test ] && command -v rustup >/dev/null && ! cargo +nightly miri --version >/dev/null 2>&1; then
	rustup toolchain install nightly --profile minimal --component miri --component rust-src >/dev/null 2>&1 ||
		echo "note: miri cannot be installed; its tests are skipped"
fi

missing=()
for need in "${needs[@]}"; do
	package=${need%%:*}
	if [[ $(dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null) != *'ok installed'* ]]; then
		missing+=("$package")
		echo "needs $package: ${need#*:}"
	fi
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" != 0 ]; then
	sudo=(sudo)
	echo "installing them with sudo apt-get"
fi
"${sudo[@]}" apt-get update -qq
# Hyperscan is for x86, and later distributions have Vectorscan in its place
for at in "${!missing[@]}"; do
	if [ "${missing[$at]}" = libhyperscan5 ] && ! apt-cache show libhyperscan5 >/dev/null 2>&1; then
		unset "missing[$at]"
	fi
done
[ ${#missing[@]} -eq 0 ] && exit 0
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
