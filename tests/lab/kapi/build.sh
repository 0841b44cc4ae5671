#!/bin/sh
# build.sh [OUTPUT [PACKAGE]]: build kapi (or ./newetcd, or Helm), stamped with the Kubernetes version its libraries belong to (served at
# /version; Helm takes it for that of a cluster it cannot ask) and Helm with its own.
# Takes minutes with an empty build cache of Go, seconds afterwards. Wants Go 1.25 or newer.
set -eu
out=${1:-kapi}
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "$0")"
v=$(go list -m -f '{{.Version}}' k8s.io/apiserver) # v0.34.2
minor=${v#v0.}
major=1
x=k8s.io/component-base/version
helm=helm.sh/helm/v3
flags="-s -w -X $x.gitVersion=v$major.$minor -X $x.gitMajor=$major -X $x.gitMinor=${minor%%.*}"
flags="$flags -X $helm/internal/version.version=$(go list -m -f '{{.Version}}' $helm)"
for package in chartutil lint/rules; do
  flags="$flags -X $helm/pkg/$package.k8sVersionMajor=$major -X $helm/pkg/$package.k8sVersionMinor=${minor%%.*}"
done
# Beside tests it must not change their times.
exec nice -n 19 go build -p 2 -buildvcs=false -ldflags "$flags" -o "$out" "${2:-.}"
