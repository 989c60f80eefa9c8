#!/usr/bin/env bash
# Unpacks Debian's arm64 packages of the libraries that strata and its tests are
# linked with below DIR, for the cross compiler. Nothing is installed: apt works on
# lists of its own there, so the system's packages and architectures stay as they
# are, and no root is needed.
#
#   tests/cross/arm64_libraries.sh DIR
#
# What is in DIR already is not fetched again. If it fails, the last line says why.
set -u
# The libraries that make links (PACKAGES in the Makefile), and cmocka, which has no
# static library.
packages="libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libmd-dev libcmocka-dev libcmocka0"

root=${1:?usage: tests/cross/arm64_libraries.sh DIR}
die() { echo "$1"; exit 1; }

[ ! -e "$root/complete" ] || exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die "there is no apt-get"
rm -rf "$root"
mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial" || die "$root: cannot be made"
root=$(cd "$root" && pwd)
cd "$root/apt" || exit 1

apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
    -o Dir::State::lists="$root/apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$root/apt/cache" "$@"
}
apt update || die "the list of arm64 packages cannot be had"
# shellcheck disable=SC2086
apt download $packages || die "not all of the arm64 packages can be had: $packages"
for package in *.deb; do
  dpkg-deb -x "$package" "$root" || die "$package: cannot be unpacked"
done
cd "$root" && rm -rf apt && touch complete
