#!/bin/sh
# Makes the images that deploy/Dockerfile builds on, for podman, where Docker Hub is out of reach: Debian from its mirror,
# and the Deno that is given. They are stand-ins, called as the last two arguments say.
# base_images.sh /path/deno DENO DEBIAN
set -eu
program=$1 deno=$2 debian=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase bookworm "$folder/debian" http://deb.debian.org/debian
# As in the published one: also the mirror of security updates, no documentation, nothing of apt's that was downloaded, now
# and when more is installed.
for suite in 'debian bookworm' 'debian bookworm-updates' 'debian-security bookworm-security'; do
  echo "deb http://deb.debian.org/$suite main"
done >"$folder/debian/etc/apt/sources.list"
cat >"$folder/debian/etc/apt/apt.conf.d/nothing-kept" <<END
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb"; };
END
cat >"$folder/debian/etc/dpkg/dpkg.cfg.d/no-documentation" <<END
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
END
cd "$folder/debian"
rm -rf var/cache/apt/archives/*.deb var/cache/apt/*.bin var/lib/apt/lists/* usr/share/man/* usr/share/info/* usr/share/locale/*
find usr/share/doc -type f ! -name copyright -delete
tar -c . | podman import --change 'CMD ["bash"]' - "$debian"
mkdir "$folder/deno"
cp "$program" "$folder/deno/deno"
chmod 755 "$folder/deno/deno"
tar -C "$folder/deno" -c deno | podman import - "$deno"
