#!/usr/bin/env bash
# What only a GPU can tell, for docs/perf: correctness, hazards, times and counters of
# the GPU kernels, each part into a file of its own.
#
#   tools/measure_gpu.sh FOLDER [PART...]
#
# Parts, in the order that they have if none is named:
#   check      the parity suite, 100 times each case (make check-gpu)
#   memory     compute-sanitizer memcheck, each case once
#   races      compute-sanitizer racecheck, each case once
#   gdn        times of the gated delta net, rows of f32 and of f16, and of qsa_decode
#              (make bench-cuda first)
#   qsa        times of the sparse attention beside their floors
#   pipeline   36 layers of pre, scan and post as shipped against another scan, as audits,
#              rows of f32 and of f16
#   counters   ncu's stall reasons of the scan and of the sparse attention
#
# Environment: BUILD, where the programs lie (build). Nothing is built, so the machine
# with the GPU needs neither compiler nor headers; a part whose tool is missing says so.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -ge 1 ] || { sed -n '5p' "$0" | sed 's/^# */usage: /' >&2; exit 2; }
build=${BUILD:-build}
folder=$1
shift
mkdir -p "$folder" || exit 1

has() { command -v "$1" >/dev/null || { echo "$1 is not there"; return 1; }; }

part_check() { "$build/tests/cuda/test_device"; }
part_memory() { has compute-sanitizer && compute-sanitizer --tool memcheck "$build/tests/cuda/test_device" "" once; }
part_races() { has compute-sanitizer && compute-sanitizer --tool racecheck "$build/tests/cuda/test_device" "" once; }
part_gdn() { "$build/tools/bench_cuda/bench_cuda" && "$build/tools/bench_cuda/bench_cuda" --f16; }
part_qsa() { "$build/strata" lab roof qsa --backend cuda --rounds 15; }
# --f32 0: with gdn_post's other output, too, each size would be timed twice.
part_pipeline() {
  local op rows base=$folder/base cand=$folder/cand
  mkdir -p "$base" "$cand"
  for op in gdn_pre gdn_scan gdn_post; do
    "$build/strata" lab source $op cuda >"$base/$op.cu" && cp "$base/$op.cu" "$cand/$op.cu" || return
  done
  "$build/strata" lab source gdn_scan cuda_p2 >"$cand/gdn_scan.cu" || return
  for rows in 0 1; do # f32, f16
    "$build/strata" lab pipeline --backend cuda --f32 0 --set rows=$rows --base-dir "$base" --cand-dir "$cand" \
      --report "$folder/rows_$rows" || return
  done
}
# Of the scan, a launch after a few that warm up; of the others, the first ones.
part_counters() {
  has ncu || return 1
  local sections="--clock-control none --section SpeedOfLight --section WarpStateStats --section SchedulerStats --section LaunchStats --section Occupancy"
  # shellcheck disable=SC2086
  ncu $sections --launch-skip 4 --launch-count 1 -k 'regex:gdn_scan_cuda$' "$build/tools/bench_cuda/bench_cuda" gdn_scan 2048
  # shellcheck disable=SC2086
  ncu $sections --launch-count 12 -k 'regex:qsa_' "$build/strata" lab roof qsa --backend cuda --rounds 1
}

[ $# -gt 0 ] || set -- check memory races gdn qsa pipeline counters
n_failed=0
for part in "$@"; do
  if ! declare -F "part_$part" >/dev/null; then echo "$part: no such part" >&2; exit 2; fi
  start=$SECONDS
  "part_$part" >"$folder/$part.txt" 2>&1
  rc=$?
  printf '%-9s exit code %d, %4d s, %s\n' "$part" $rc $((SECONDS - start)) "$folder/$part.txt"
  [ $rc -eq 0 ] || { n_failed=$((n_failed + 1)); tail -n 5 "$folder/$part.txt" | sed 's/^/    /'; }
done
[ $n_failed -eq 0 ]
