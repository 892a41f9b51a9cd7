#!/usr/bin/env bash
# Brings a QEMU that emulates a NIC with virtual functions (8 or later), and a kernel with its driver, into the user's cache:
# from the distribution's packages, and from its backports where they are older. Installs nothing.
set -euo pipefail
to=${XDG_CACHE_HOME:-$HOME/.cache}/bondstone/emulated-nic
[ -e "$to/complete" ] && exit 0
command -v apt-get >/dev/null || { echo "this is no Debian or Ubuntu" >&2; exit 3; }

# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# the format is apt's own
# shellcheck disable=SC2016
from=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk -v of="$codename" '$2 == of { print $1; exit }')
[ -n "$from" ] || { echo "apt knows no packages of ${codename:-this distribution}: apt-get update" >&2; exit 3; }

rm -rf "$to"
mkdir -p "$to"/apt/{parts,lists/partial,cache/archives/partial}
printf 'deb %s %s main\n' "$from" "$codename" "$from" "$codename-backports" >"$to/apt/parts/all.list"
cd "$to"
apt=(-q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$to/apt/parts"
	-o "Dir::State::Lists=$to/apt/lists" -o "Dir::Cache=$to/apt/cache")
apt-get "${apt[@]}" update
kernel=$(apt-cache "${apt[@]}" depends linux-image-amd64 | sed -n 's/^ *Depends: //p')
packages=("$kernel")
for package in qemu-system-x86 qemu-system-common qemu-system-data seabios; do
	packages+=("$package/$codename-backports")
done
apt-get "${apt[@]}" download "${packages[@]}"
for archive in *.deb; do
	dpkg-deb -x "$archive" .
done
rm -rf ./*.deb apt
touch complete
