#!/bin/bash
# The first process of a node, in a net, mount, pid and uts namespace of its own: node.sh FOLDER NAME. It makes the node's file system
# of the machine's, with what a node writes in FOLDER, and then only waits: containerd and kubelet are started beside it.
set -e
folder=$1 name=$2
mount --make-rprivate /
hostname "$name"
mount -t proc proc /proc
mkdir -p "$folder"/{cgroup,kubelet,containerd,cni,cni-state,log,pins} /var/lib/kubelet /var/lib/cni
mount --rbind /sys/fs/cgroup "$folder/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$folder/cgroup" /sys/fs/cgroup
umount -R -l "$folder/cgroup"
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /run/containerd
mount --bind "$folder/kubelet" /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
mount --bind "$folder/cni-state" /var/lib/cni
mount --bind "$folder/log" /var/log
# Settings of the whole machine that kubelet would write.
pin() {
  echo "$2" >"$folder/pins/$1"
  mount --bind "$folder/pins/$1" "/proc/sys/${1//.//}"
}
pin vm.overcommit_memory 1
pin vm.panic_on_oom 0
pin kernel.panic 10
pin kernel.panic_on_oops 1
pin kernel.keys.root_maxkeys 1000000
pin kernel.keys.root_maxbytes 25000000
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 || true
touch "$folder/ready"
trap 'exit 0' TERM
# It is the parent of whoever lost theirs.
while :; do
  wait -n 2>/dev/null || true
  sleep 1 &
  wait $! || true
done
