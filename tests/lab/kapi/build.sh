#!/bin/sh
# build.sh [OUTPUT [PACKAGE]]: build kapi (or ./newetcd, ./chart), stamped with the Kubernetes version its libraries belong to (served at /version).
# Takes minutes with an empty build cache of Go, seconds afterwards. Wants Go 1.25 or newer.
set -eu
out=${1:-kapi}
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "$0")"
v=$(go list -m -f '{{.Version}}' k8s.io/apiserver) # v0.34.2
minor=${v#v0.}
x=k8s.io/component-base/version
# Beside tests it must not change their times.
exec nice -n 19 go build -p 2 -buildvcs=false -ldflags "-s -w -X $x.gitVersion=v1.$minor -X $x.gitMajor=1 -X $x.gitMinor=${minor%%.*}" -o "$out" "${2:-.}"
