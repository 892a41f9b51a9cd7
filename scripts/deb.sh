#!/usr/bin/env bash
# Writes the Debian package bondstone_VERSION_ARCH.deb from a folder with the programs `bondstone` and
# `examples/cli_pages`: deb.sh [FOLDER [OUTPUT FOLDER]]. Without arguments it builds them, and writes to target/deb.
set -euo pipefail
[ $# = 0 ] || built=$(realpath -- "$1")
out=$(realpath -m -- "${2:-$(dirname "$0")/../target/deb}")
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
	cargo build --release --locked --workspace --bin bondstone --example cli_pages
	built=$PWD/target/release
fi
command -v dpkg-shlibdeps >/dev/null || { echo "dpkg-shlibdeps is missing: install dpkg-dev" >&2; exit 3; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/root
share=$root/usr/share

install -D "$built/bondstone" "$root/usr/bin/bondstone"
# names of functions are kept for perf and crash reports
strip --strip-debug "$root/usr/bin/bondstone"
install -D -m 644 deploy/systemd/bondstone@.service -t "$root/usr/lib/systemd/system"
install -D -m 644 deploy/systemd/bondstone.sysusers "$root/usr/lib/sysusers.d/bondstone.conf"
install -D -m 644 deploy/systemd/60-bondstone.rules -t "$root/usr/lib/udev/rules.d"
install -D -m 644 examples/router.toml -t "$share/doc/bondstone/examples"
mkdir -p "$root/etc/bondstone"

"$built/examples/cli_pages" "$work/pages"
mkdir -p "$share/man"
mv "$work/pages/man1" "$share/man/man1"
gzip -9n "$share"/man/man1/*
install -D -m 644 "$work/pages/bash/bondstone.bash" "$share/bash-completion/completions/bondstone"
install -D -m 644 "$work/pages/zsh/_bondstone" -t "$share/zsh/vendor-completions"
install -D -m 644 "$work/pages/fish/bondstone.fish" -t "$share/fish/vendor_completions.d"

gzip -9nc CHANGELOG.md >"$share/doc/bondstone/changelog.gz"
{
	echo "Licensed under the Apache License 2.0 (/usr/share/common-licenses/Apache-2.0) or, at your option:"
	echo
	cat LICENSE-MIT
} >"$share/doc/bondstone/copyright"

version=$("$built/bondstone" --version)
version=${version#bondstone }
arch=$(dpkg --print-architecture)
mkdir -p "$work/debian" "$root/DEBIAN"
# dpkg-shlibdeps reads the names of the packages
printf 'Source: bondstone\n\nPackage: bondstone\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -eroot/usr/bin/bondstone)
cat >"$root/DEBIAN/control" <<END
Package: bondstone
Version: $version
Architecture: $arch
Maintainer: Bondstone maintainers <maintainers@bondstone.invalid>
Installed-Size: $(du -k -s "$root" | cut -f 1)
Depends: ${depends#shlibs:Depends=}
Recommends: libpcap0.8, libhyperscan5 | libvectorscan5
Section: net
Priority: optional
Description: builds, runs, isolates and measures network functions on DPDK
 Chain files join ports and network functions such as routers, firewalls and
 NAT, which bondstone@.service runs. Needs a processor with AVX2.
END
install deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm -t "$root/DEBIAN"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/bondstone_${version}_$arch.deb"
