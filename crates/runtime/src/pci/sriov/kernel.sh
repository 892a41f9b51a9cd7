# kernel.sh LINE FILE: acts as the kernel when LINE is written to FILE in a simulated /sys, the directory of this script.
# kernel.sh ip ARGUMENT...: acts as the kernel when "ip" is called.
# The exit status is an errno. Every call is appended to the file "log". These files, if they exist, inject faults:
# kill (before|after NUMBER): kills the caller before or after the call with this number in the log;
# refuse (ERRNO LINE, or NUMBER): fails this call; deaf (ADDRESS): no driver binds to this function;
# shared: all functions are in the NIC's IOMMU group; stray: they are in none; used: exists while a port is open.
sys=${0%/*}
pci=$sys/devices/pci0000:00
nic=$pci/0000:01:00.0

bind() { # FUNCTION DRIVER
	grep -qsx "$1" "$sys/deaf" || ln -s "$sys/bus/pci/drivers/$2" "$pci/$1/driver"
}
probe() { # FUNCTION
	[ -e "$pci/$1/driver" ] && return
	override=$(cat "$pci/$1/driver_override")
	if [ "$override" != "(null)" ]; then
		bind "$1" "$override"
	elif [ "$(cat "$nic/sriov_drivers_autoprobe")" = 1 ]; then
		bind "$1" ixgbevf
	fi
}
make_functions() { # HOW_MANY
	n=0
	while [ $n -lt "$1" ]; do
		function=$(cat "$sys/name")$n
		mkdir "$pci/$function"
		echo "(null)" >"$pci/$function/driver_override"
		ln -s "$pci/$function" "$sys/bus/pci/devices/$function"
		ln -s "$pci/$function" "$nic/virtfn$n"
		ln -s "$nic" "$pci/$function/physfn"
		# one group for all, or one for each
		group=$sys/kernel/iommu_groups/$([ -e "$sys/shared" ] && echo 1 || echo 2$n)
		mkdir -p "$group/devices"
		ln -s "$pci/$function" "$group/devices/$function"
		[ -e "$sys/stray" ] || ln -s "$group" "$pci/$function/iommu_group"
		probe "$function"
		n=$((n + 1))
	done
}
remove_functions() {
	for link in "$nic"/virtfn*; do
		[ -e "$link" ] || continue
		function=$(basename "$(readlink "$link")")
		rm -r "$link" "$pci/$function" "$sys/bus/pci/devices/$function" "$sys"/kernel/iommu_groups/*/devices/"$function"
	done
}
write() { # LINE FILE
	case $2 in
	*/sriov_numvfs)
		[ "$1" -le "$(cat "$nic/sriov_totalvfs")" ] || return 34
		if [ "$1" = 0 ]; then
			remove_functions
		else
			[ "$(cat "$2")" = 0 ] || return 16
			make_functions "$1"
		fi
		echo "$1" >"$2"
		;;
	*/sriov_drivers_autoprobe) echo "$1" >"$2" ;;
	*/driver_override) echo "${1:-(null)}" >"$2" ;;
	*/drivers_probe)
		[ -e "$pci/$1" ] || return 19
		probe "$1"
		;;
	*/unbind)
		[ "$(readlink -f "$pci/$1/driver")" = "${2%/unbind}" ] || return 19
		# the function is still in use
		[ -e "$sys/used" ] && echo "in use" >>"$sys/log"
		rm "$pci/$1/driver"
		;;
	*) return 2 ;;
	esac
}

if [ "$1" = ip ]; then
	call=$*
else
	file=$(readlink -f "$2")
	[ -e "$file" ] || exit 2
	call="${file#"$sys"/} $1"
fi
echo "$call" >>"$sys/log"
number=$(wc -l <"$sys/log")
grep -qsx "before $number" "$sys/kill" && kill -9 $PPID && exit
errno=$(grep -s " $call\$" "$sys/refuse") && exit "${errno%% *}"
grep -qsx "$number" "$sys/refuse" && exit 5
if [ "$1" != ip ]; then
	write "$1" "$file" || exit
fi
grep -qsx "after $number" "$sys/kill" && kill -9 $PPID
exit 0
