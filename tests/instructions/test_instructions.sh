#!/usr/bin/env bash
# Counts instructions of hot kernels with callgrind. A count has no noise, so it
# can be a test where a time cannot.
#
#   tests/instructions/test_instructions.sh BUILD
set -u
build=$1
program=$build/tests/instructions/scan_repeat

# Valgrind shows a CPU with AVX2 and without AVX-512, whatever the machine has.
if ! command -v valgrind >/dev/null; then echo "skip instructions: there is no valgrind"; exit 0; fi
if ! grep -qw avx2 /proc/cpuinfo; then echo "skip instructions: this CPU has no AVX2"; exit 0; fi

count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
    sed -n 's/^==[0-9]*== Collected : \([0-9]*\)$/\1/p'
}

# bound VARIANT MOST: instructions a token and value head, T = 64.
bound() {
  local one five each
  one=$(count "$1" 1) five=$(count "$1" 5)
  if [ -z "$one" ] || [ -z "$five" ]; then echo "not ok gdn_scan.$1: nothing was counted"; return; fi
  each=$(((five - one) / (4 * 64 * 3)))
  if [ "$each" -gt 0 ] && [ "$each" -le "$2" ]; then
    echo "ok gdn_scan.$1: $each instructions a token and head, at most $2"
  else
    echo "not ok gdn_scan.$1: $each instructions a token and head, at most $2 expected"
  fi
}

echo "1..1"
bound avx2 13800
