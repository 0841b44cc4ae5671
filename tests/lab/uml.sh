#!/bin/bash
# uml.sh COMMAND — boots a user-mode Linux on this machine's own file system and runs COMMAND in it as root, in the current folder.
# Output and exit status are COMMAND's; 99 if the kernel ended before it did. That kernel has what many others lack: SCTP, IPVS,
# ipset, dummy devices. It speaks the legacy iptables only.
#
# Needs Debian's packages user-mode-linux and kmod, and on processors with AMX a C compiler (see uml_xstate.c). UML_TIMEOUT
# (seconds) and UML_MEM bound it; UML_PROCESSOR is the number of the one processor that it keeps to. Several may run side by side.
set -eu
lab=$(cd "$(dirname "$0")" && pwd)
release=$(ls /usr/lib/uml/modules | head -1)
# Two that start at once on a fresh machine take turns here.
exec {turn}< "$lab/uml.sh"
flock "$turn"
if [ ! -e "/lib/modules/$release/modules.dep" ]; then
  mkdir -p /lib/modules
  ln -sfn "/usr/lib/uml/modules/$release" "/lib/modules/$release"
  depmod "$release"
fi
exec {turn}<&-
dir=$(mktemp -d /tmp/kproxy-uml.XXXXXX)
pid=
# A test run that is killed takes its kernels with it.
(while kill -0 "$PPID" 2> /dev/null; do sleep 1; done; kill "$$") > /dev/null 2>&1 < /dev/null &
parent=$!
# The child of timeout leads a group of its own, that of all of the kernel's processes.
finish() {
  kill "$parent" 2> /dev/null || true
  if [ -n "$pid" ]; then
    kernel=$(pgrep -P "$pid" || true)
    kill -KILL "$pid" ${kernel:+"-$kernel"} 2>/dev/null || true
  fi
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

preload=
if grep -qw amx_tile /proc/cpuinfo; then
  preload=$dir/uml_xstate.so
  gcc -O2 -shared -fPIC -nostdlib -o "$preload" "$lab/uml_xstate.c"
fi

# The runtime's databases must not be shared with this machine's own processes, nor with another kernel: locks and shared memory do
# not reach across, and what one writes crashes the other. So each kernel begins without any. What is translated is a copy, because a
# kernel that has looked at a file does not notice that another one replaces it. What was downloaded is only read.
cache=${DENO_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/deno}
case $cache in /*) ;; *) cache=$PWD/$cache ;; esac
translated=gen/file$PWD
mkdir -p "$cache/npm" "$cache/remote" "$dir/deno/$translated"
# What another process writes just now may be gone when its turn comes.
cp -r "$cache/$translated/." "$dir/deno/$translated" 2>/dev/null || true

mkdir "$dir/bin"
for family in iptables ip6tables; do
  for action in "" -save -restore; do
    ln -s /usr/sbin/xtables-legacy-multi "$dir/bin/$family$action"
  done
done
cat > "$dir/init" <<INIT
#!/bin/bash
export PATH=$dir/bin:$PATH HOME=${HOME:-/root} NO_COLOR=1
${KPROXY_TEST_BUNDLE:+export KPROXY_TEST_BUNDLE=$KPROXY_TEST_BUNDLE}
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run; mkdir -p /run/netns
modprobe -qa sctp nf_conntrack_netlink veth bridge dummy iptable_nat iptable_filter iptable_mangle ip6table_nat ip6table_filter \
  ip6table_mangle xt_comment xt_mark xt_MASQUERADE xt_addrtype xt_conntrack xt_statistic xt_recent xt_sctp xt_tcpudp \
  ipt_REJECT ip6t_REJECT ip_vs ip_vs_rr ip_set xt_set
# The kernel's own /dev lacks what a system's start adds to it; conntrack reads its input by this name.
[ -e /dev/stdin ] || ln -s /proc/self/fd/0 /dev/stdin
# A node of this little memory tracks so few connections that a minute of a connect loop fills the table.
sysctl -q -w net.netfilter.nf_conntrack_max=131072
# Packets that the kernel puts off would wait until every program that computes has had its turn.
chrt -f -p 1 "\$(pgrep -x ksoftirqd/0)"
ip link set lo up
mkdir /run/deno
ln -s $(printf %q "$cache/npm") $(printf %q "$cache/remote") $dir/deno/gen /run/deno
export DENO_DIR=/run/deno
# Nobody is told of changes on the machine's own file system; tests that wait for one would wait for the next poll.
mkdir /run/tmp
export TMPDIR=/run/tmp
cd $(printf %q "$PWD")
( bash -c $(printf %q "$1") ) > $dir/out 2>&1 < /dev/null; echo \$? > $dir/status; dmesg | grep segfault >> $dir/out; sync
echo o > /proc/sysrq-trigger; sleep 5
INIT
chmod +x "$dir/init"
# Every system call inside is a switch between two processes here. On one processor that is half as dear as across two.
cpus=()
IFS=, read -r -a ranges <<< "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
for range in "${ranges[@]}"; do
  for ((cpu = ${range%-*}; cpu <= ${range#*-}; cpu++)); do cpus+=("$cpu"); done
done
LD_PRELOAD=$preload taskset -c "${cpus[${UML_PROCESSOR:-$$} % ${#cpus[@]}]}" timeout -k 5 "${UML_TIMEOUT:-300}" linux.uml mem="${UML_MEM:-1G}" root=/dev/root rootfstype=hostfs rootflags=/ rw \
  init="$dir/init" con=null con0=null,fd:1 quiet > "$dir/console" 2>&1 < /dev/null &
pid=$!
wait "$pid" || true
cat "$dir/out" 2>/dev/null || true
if [ ! -e "$dir/status" ]; then
  tail -n 20 "$dir/console" >&2
  exit 99
fi
exit "$(cat "$dir/status")"
