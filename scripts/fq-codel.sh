#!/usr/bin/env bash
# Compares latencies beside a download through `schedule` with those of the HTB and fq_codel of a kernel, for machines
# whose own kernel has none: in a VM without KVM. Downloads a kernel of Debian and installs nothing. RATE is in Mbit/s.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in qemu-system-x86_64 busybox cpio ip tc ethtool ping iperf3 taskset ss; do
	command -v "$tool" >/dev/null || { echo "skipped: no $tool on this machine" >&2; exit 0; }
done
test=$(cargo test --release --locked -p bondstone-cli --test it --no-run --message-format json |
	sed -n 's/.*"kind":\["test"\].*"name":"it".*"executable":"\([^"]*\)".*/\1/p')
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
root=$at/root
mkdir -p "$root"/{proc,sys,dev,run,tmp,etc,var/run,usr/bin,usr/sbin,usr/lib,usr/lib64}
for folder in bin sbin lib lib64; do
	ln -s "usr/$folder" "$root/$folder"
done

package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p')
(cd "$at" && apt-get -q download "$package" && dpkg-deb -x ./*.deb kernel)
version=${package#linux-image-}
depmod -b "$at/kernel" "$version"
for module in bridge tun veth sch_htb sch_fq_codel; do
	modprobe -d "$at/kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$at/modules"
while read -r module; do
	cp "$module" "$root"
	echo "insmod /$(basename "$module")" >>"$root/modules"
done <"$at/modules"

# copies a file to its place in the VM, with its libraries
add() {
	local file
	for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
		mkdir -p "$root$(dirname "$file")"
		[ -e "$root$file" ] || cp -L "$file" "$root$file"
	done
}
for tool in busybox ip tc ethtool ping iperf3 taskset ss; do
	add "$(command -v "$tool")"
done
add "$test"
add "$(realpath "$(dirname "$test")/../bondstone")"
for applet in sh mount mkdir insmod; do
	ln -sf busybox "$root/bin/$applet"
done
cat >"$root/init" <<END
#!/bin/sh
export PATH=/usr/sbin:/usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
. /modules
cd /tmp
BONDSTONE_LINE_MBPS=${RATE:-10} $test --ignored --nocapture latency_beside_a_download && echo passed
echo o >/proc/sysrq-trigger
sleep 60
END
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$at/initrd"
timeout 900 qemu-system-x86_64 -nodefaults -no-user-config -display none -serial stdio -no-reboot -m 1800 \
	-accel tcg,thread=multi -cpu max -smp 2 -machine q35 -kernel "$at/kernel/boot/vmlinuz-$version" -initrd "$at/initrd" \
	-append "console=ttyS0 panic=-1 quiet" </dev/null | tee "$at/output"
if grep '^skipped' "$at/output" >&2; then exit 1; fi
grep -q '^passed' "$at/output"
