#!/usr/bin/env bash
# Times dense attention by OpenBLAS beside sparse attention in one run.
#
#   tools/bench_dense/bench_dense.sh [THREADS [ROUNDS]]      (2 threads, 9 rounds)
#
# Needs apt-get and dpkg: Debian's libopenblas0-pthread is fetched into BUILD/dense
# and unpacked there, not installed. OPENBLAS names another libopenblas.so instead.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
threads=${1:-2} rounds=${2:-9}
there=$build/dense
mkdir -p "$there"

if [ -z "${OPENBLAS:-}" ]; then
  OPENBLAS=$there/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0
  if [ ! -e "$OPENBLAS" ]; then
    (cd "$there" && apt-get download -q libopenblas0-pthread >/dev/null && dpkg -x libopenblas0-pthread_*.deb .)
  fi
fi
make -s "$build/libstrata.a"
# -ffast-math so that the dense side's expf becomes a vector function.
cc -std=c17 -O3 -march=native -ffast-math -D_GNU_SOURCE -Iinclude -Isrc -Ikernels \
  -c -o "$there/bench_dense.o" tools/bench_dense/bench_dense.c
# shellcheck disable=SC2046
cc -o "$there/bench_dense" "$there/bench_dense.o" "$build/libstrata.a" \
  $(pkg-config --libs jansson libpcre2-8 libutf8proc libxxhash libmd) -lpthread -lm -ldl
"$there/bench_dense" "$OPENBLAS" "$threads" "$rounds"
