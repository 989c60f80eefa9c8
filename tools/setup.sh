#!/bin/sh
# Installs what strata needs to be built and tested on Debian and its relatives.
#
#   tools/setup.sh [--check] build|test|full|cross
#
#   build  compiler and libraries       test  and what `make check` needs
#   full   and what `make check-full` needs
#   cross  a compiler for aarch64, and qemu to run what it builds, besides those of test
#
# What is there already is left alone, however it was installed. Missing packages
# are installed with apt-get as root or through a sudo that asks no password;
# otherwise the one line to run is printed. --check only looks.
set -u

check_only=false
[ "${1:-}" = --check ] && { check_only=true; shift; }
case ${1:-} in
  build | test | full | cross) wanted=$1 ;;
  *) echo "usage: tools/setup.sh [--check] build|test|full|cross" >&2; exit 2 ;;
esac

missing=
has_command() { command -v "$1" >/dev/null 2>&1; }
has_library() { pkg-config --exists "$1" 2>/dev/null; }
# want PACKAGE TEST...: the package is missing if the test fails.
want() {
  package=$1
  shift
  "$@" || missing="$missing $package"
}

# CC may bring a wrapper or flags along: its first word is the command.
compiler=${CC:-cc}
want gcc has_command "${compiler%% *}"
# Without recommended packages the compiler comes without the C library's headers.
want libc6-dev test -e /usr/include/stdlib.h
want make has_command make
want pkg-config has_command pkg-config
want libjansson-dev has_library jansson
want libpcre2-dev has_library libpcre2-8
want libutf8proc-dev has_library libutf8proc
want libxxhash-dev has_library libxxhash
want libmd-dev has_library libmd
if [ "$wanted" != build ]; then
  want libcmocka-dev has_library cmocka
  want jq has_command jq
fi
# libFuzzer is a part of clang's run-time library, a package of its own.
if [ "$wanted" = full ]; then
  want clang has_command clang
  want valgrind has_command valgrind
  want libclang-rt-dev sh -c 'test -n "$(find /usr/lib/llvm-* -name "libclang_rt.fuzzer-*.a" 2>/dev/null)"'
fi
if [ "$wanted" = cross ]; then
  want gcc-aarch64-linux-gnu has_command aarch64-linux-gnu-gcc
  want libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/include/stdlib.h
  want qemu-user has_command qemu-aarch64
fi
missing=${missing# }
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends $missing"
if $check_only || ! has_command apt-get; then
  echo "strata: missing packages: $missing" >&2
  has_command apt-get && echo "Run: tools/setup.sh $wanted" >&2
  exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
  sudo=
elif has_command sudo && sudo -n true 2>/dev/null; then
  sudo="sudo -n"
else
  echo "strata: packages are missing and only root may install them. Run this line, then try again:" >&2
  echo "  sudo apt-get update && sudo $install" >&2
  exit 1
fi

echo "Installing the packages $missing"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# The words are meant to be split; questions of packages get their defaults.
# shellcheck disable=SC2086
if ! { $sudo apt-get update && $sudo env DEBIAN_FRONTEND=noninteractive $install; } >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  echo "strata: apt-get failed, see above. The line was: $install" >&2
  exit 1
fi
