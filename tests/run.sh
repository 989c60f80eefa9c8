#!/usr/bin/env bash
# Runs the tests and counts their cases. The last line is the only one of the
# form "N passed, N failed[, N skipped]"; the exit code is 0 if none failed.
#
#   tests/run.sh check | check-full | check-gpu | fuzz
#
# Environment, each optional:
#   BUILD          where to build (build)
#   FUZZ_SECONDS   time for each fuzzer (20)
#   MATH_STRIDE    check-full sees every Nth float (1)
#   CHECK_SECONDS  time for everything; what does not fit is skipped and said so
#
# A test program prints a line for each case, as cmocka does in its TAP format:
# "ok NAME", "not ok NAME", "skip NAME: reason". All it wrote is kept in
# BUILD/logs; only what failed is shown.
set -u
cd "$(dirname "$0")/.." || exit 1

build=${BUILD:-build}
logs=$build/logs
fuzz_seconds=${FUZZ_SECONDS:-20}
math_stride=${MATH_STRIDE:-1}
budget=${CHECK_SECONDS:-0}
jobs=$(nproc 2>/dev/null || echo 2)
n_passed=0 n_failed=0 n_skipped=0
mkdir -p "$logs" || exit 1

# The build is called with its own number of jobs, not as a part of the caller's.
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD STRATA_ISA
export LC_ALL=C.UTF-8 CMOCKA_MESSAGE_OUTPUT=TAP
# Tests ask for absurd amounts of memory and expect a polite no.
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

# ---- counting ------------------------------------------------------------------

title() { printf '\n%s\n' "$*"; }
line() { printf '  %-34s %s\n' "$1" "$2"; }
pass() { n_passed=$((n_passed + 1)); line "$1" "${2:-passed}"; }
fail() { n_failed=$((n_failed + 1)); line "$1" "FAILED: $2"; }
skip() { n_skipped=$((n_skipped + 1)); line "$1" "skipped: $2"; }

seconds_left() { if [ "$budget" -eq 0 ]; then echo 1000000; else echo $((budget - SECONDS)); fi; }

# Runs a command for at most LIMIT seconds or what is left of the budget, its
# output to LOG. Leaves rc, took and ended as texts, and whether the budget cut it
# short. No time left: returns 1.
run() {
  local limit=$1 log=$2 left start elapsed
  shift 2
  left=$(seconds_left)
  [ "$left" -ge 5 ] || return 1
  cut=false
  [ "$limit" -le "$left" ] || limit=$left
  start=$(date +%s%N)
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null
  rc=$?
  elapsed=$((($(date +%s%N) - start) / 100000000))
  took="$((elapsed / 10)).$((elapsed % 10)) s"
  ended="exit code $rc"
  [ $rc -le 128 ] || [ $rc -gt 192 ] || ended="killed by signal $((rc - 128))"
  if [ $rc -ne 0 ] && [ $elapsed -ge $((limit * 10)) ]; then
    ended="stopped after $limit seconds"
    [ "$limit" -ne "$left" ] || cut=true
  fi
  return 0
}

show_end() { tail -n "$2" "$1" | sed 's/^/    /'; }

# Each failing case with what its program wrote since the case before.
show_failures() {
  awk '
    /^not ok / && !/# SKIP/ { printf "%s    %s\n", text, $0; text = ""; after = 1; next }
    /^(not )?ok |^skip |^1\.\./ { text = ""; after = 0; next }
    after && /^# / { print "    " $0; next }
    { after = 0; text = text "    " $0 "\n"; if (length(text) > 4000) text = substr(text, 2001) }' "$1"
}

log_of() { echo "$logs/$(echo "$*" | tr -c 'A-Za-z0-9\n' _).log"; }

# What began and is not reported yet, in order: label, log and process of each.
waiting=()

# Keeps how a run went beside its log: it goes on in a process of its own.
run_and_keep() {
  local log=$2 state=ran
  rc=0 took='' ended='' cut=false
  run "$@" || state=none
  printf '%s\n' "$state" "$rc" "$took" "$ended" "$cut" >"$log.end"
}

# begin LABEL LIMIT COMMAND...: starts it as soon as fewer than at_once others run.
begin() {
  local label=$1 limit=$2 log
  shift 2
  log=$(log_of "$part $label")
  rm -f "$log.end"
  while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
  report_finished
  run_and_keep "$limit" "$log" "$@" &
  waiting+=("$label" "$log" $!)
}

report_first() {
  wait "${waiting[2]}"
  report "${waiting[0]}" "${waiting[1]}"
  waiting=("${waiting[@]:3}")
}
report_finished() {
  while [ ${#waiting[@]} -gt 0 ] && [ -e "${waiting[1]}.end" ]; do report_first; done
}
report_all() { while [ ${#waiting[@]} -gt 0 ]; do report_first; done; }

# cases LABEL LIMIT COMMAND...: counts the cases that the command reports.
cases() {
  local label=$1 limit=$2 log
  shift 2
  log=$(log_of "$part $label")
  run_and_keep "$limit" "$log" "$@"
  report "$label" "$log"
}

# report LABEL LOG: says what came of it.
report() {
  local label=$1 log=$2 state counts passed failed skipped planned
  { read -r state; read -r rc; read -r took; read -r ended; read -r cut; } <"$log.end"
  rm -f "$log.end"
  [ "$state" = ran ] || { skip "$label" "no time left"; return; }
  counts=$(awk '
    /^1\.\.[0-9]+/ { sub(/^1\.\./, ""); planned += $0; next }
    /^(not )?ok .*# SKIP|^skip / { skipped++; before = ""; next }
    /^ok / { passed++ }
    /^not ok / { failed++ }
    END { print passed + 0, failed + 0, skipped + 0, planned + 0 }' "$log")
  read -r passed failed skipped planned <<<"$counts"
  n_passed=$((n_passed + passed)) n_failed=$((n_failed + failed)) n_skipped=$((n_skipped + skipped))
  if [ "$failed" -gt 0 ]; then
    line "$label" "$passed passed, $failed FAILED, $took; all output: $log"
    show_failures "$log"
  elif $cut; then
    skip "$label" "the time for everything was used up, after $passed cases"
  elif [ "$rc" -ne 0 ]; then
    fail "$label" "$ended after $passed cases; all output: $log"
    show_end "$log" 30
  elif [ $((passed + skipped)) -eq 0 ]; then
    fail "$label" "it ran no case"
  elif [ $((passed + skipped)) -lt "$planned" ]; then
    fail "$label" "it ran $((passed + skipped)) of $planned cases; all output: $log"
  else
    line "$label" "$passed passed, $took"
  fi
  # A program says why it skips in the line itself or in the line before.
  awk '/^skip / { sub(/^skip /, ""); print "    skipped: " $0 }
    /^(not )?ok .*# SKIP/ { sub(/.*# SKIP */, ""); print "    skipped: " $0 ": " before }
    { before = /^(not )?ok |^#|^1\.\./ ? "no reason given" : $0 }' "$log"
}

# one LABEL LIMIT COMMAND...: the command is one case; it passes with exit code 0.
one() {
  local label=$1 limit=$2 log
  shift 2
  log=$(log_of "$part $label")
  run "$limit" "$log" "$@" || { skip "$label" "no time left"; return 1; }
  if [ "$rc" -eq 0 ]; then pass "$label" "passed, $took"; return 0; fi
  if $cut; then skip "$label" "the time for everything was used up"; return 1; fi
  fail "$label" "$ended; all output: $log"
  show_end "$log" 40
  return 1
}

# ---- builds --------------------------------------------------------------------

# build_as MODE TARGET...: builds once; the programs are then under dir.
build_as() {
  local mode=$1
  shift
  dir=$build/$mode
  [ "$mode" != release ] || dir=$build
  title "build ($mode)"
  part=build
  one "$mode" 1200 make -j"$jobs" BUILD="$dir" MODE="$mode" "$@"
}

# All but the kernels sanitized, which are the release build's: what reads foreign
# bytes, in a quarter of the time. check-full sanitizes the kernels too, for the tests.
build_host() {
  dir=$build/host
  title "build (sanitize, kernels as released)"
  part=build
  one host 1200 make -j"$jobs" BUILD="$dir" MODE=sanitize KERNELS="$build" "$@"
}

# The sanitizers' maps of memory may meet addresses that the kernel chose at
# random; where it is allowed, the choice is switched off.
plain_addresses=
! setarch "$(uname -m)" -R true 2>/dev/null || plain_addresses="setarch $(uname -m) -R"

# programs GROUP LIMIT [NAME=VALUE...]: the test programs of tests/GROUP in dir,
# but those that without names.
programs() {
  local group=$1 limit=$2 source name wrap=
  shift 2
  [ "$dir" = "$build" ] || wrap="$plain_addresses ${emulator:-}"
  part="$dir $group $*"
  for source in tests/"$group"/test_*.c; do
    [ -e "$source" ] || { skip "$group" "there is no tests/$group/test_*.c"; return; }
    name=$(basename "$source" .c)
    case " ${without:-} " in *" $name "*) continue ;; esac
    # shellcheck disable=SC2086
    ${starter:-cases} "$group/$name" "$limit" env "$@" $wrap "$dir/tests/$group/$name"
  done
}

# side_by_side LIMIT GROUP...: the programs of groups that keep one CPU busy each and
# compare no times, as many at a time as there are CPUs.
side_by_side() {
  local limit=$1 group starter=begin at_once=$jobs
  shift
  for group in "$@"; do programs "$group" "$limit"; done
  report_all
}

# ---- parts of check --------------------------------------------------------------

part_layers() {
  title "layers, names, banned calls"
  part=layers
  cases tools/check_layers.sh 60 tools/check_layers.sh
}

part_programs() {
  title "tests"
  # Three chips take three times as long: check-full has the others.
  export NVRTC_CHIP=90
  side_by_side 300 parity cuda lab unit
  unset NVRTC_CHIP
  programs golden 120
  programs engine 300
}

part_math() {
  title "the shared functions, every 997th float"
  part=math
  local start=$SECONDS
  cases math/test_math 300 "$build/tests/math/test_math" --stride 997
  math_seconds=$((SECONDS - start + 1))
}

part_cli() {
  title "the program"
  part=cli
  cases tests/cli/test_cli.sh 300 tests/cli/test_cli.sh "$dir/strata"
}

part_install() {
  title "installing"
  part=install
  cases tests/install/test_install.sh 300 tests/install/test_install.sh "$build"
}

part_replay() {
  title "fuzz corpus (ASan, UBSan)"
  part=replay
  local name
  for name in $(fuzz_names); do
    # shellcheck disable=SC2086
    cases "fuzz/$name" 120 $plain_addresses "$dir/tests/fuzz/replay_$name" tests/fuzz/corpus/"$name"/*
  done
}

fuzz_names() {
  local source
  for source in tests/fuzz/fuzz_*.c; do basename "$source" .c | sed 's/^fuzz_//'; done
}

# A user's first commands, each in a sanitized program.
part_smoke() {
  title "the program (ASan, UBSan)"
  part=smoke
  local strata="$plain_addresses $dir/strata" model=models/strata-tiny
  # shellcheck disable=SC2086
  {
    one "run" 60 $strata run -m $model -p "Once upon a time" -n 8 --stats
    one "run --chat" 60 $strata run -m $model --chat -p "Hello" -n 8 --temp 0.7 --seed 1
    one "tokenize" 60 $strata tokenize -m $model "Grüße, 世界"
    one "logits" 60 $strata logits -m $model --ids 1,2,3,4,5 --window 2,1 --top 3
    one "info" 60 $strata info -m $model
  }
}

check() {
  build_as release all tests || return
  part_layers
  part_math
  part_programs
  part_cli
  part_install
  build_host "$build/host/strata" unit replays || return
  part_replay
  part_smoke
  title "tests (ASan, UBSan)"
  side_by_side 300 unit
}

# ---- parts of check-full ---------------------------------------------------------

part_instructions() {
  title "instructions (callgrind)"
  part=instructions
  cases instructions 300 tests/instructions/test_instructions.sh "$build"
}

part_chips() {
  title "GPU kernels for every chip"
  part=chips
  cases cuda/test_nvrtc 600 "$build/tests/cuda/test_nvrtc"
}

part_tutorial() {
  title "the tutorial"
  part=tutorial
  cases tests/tutorial/test_tutorial.sh 300 tests/tutorial/test_tutorial.sh "$build"
}

part_long() {
  title "long caches"
  part=long
  one "lab check qsa-long" 900 "$build/strata" lab check qsa-long
}

cpu_levels() { ${CC:-cc} -E -P -x c '-DST_CPU_LEVEL(name, has)=name' src/os/st_cpu_levels.inc; }

# part_levels WHAT GROUP...: the programs of the groups in dir, at each level.
part_levels() {
  local what=$1 level why group
  shift
  for level in $(cpu_levels); do
    title "tests at level $level$what"
    if ! why=$(STRATA_ISA=$level "$build/strata" info -m models/strata-tiny 2>&1 >/dev/null); then
      skip "$level" "$why"
      continue
    fi
    for group in "$@"; do programs "$group" 600 STRATA_ISA="$level"; done
  done
}

# The program and tests for another kind of machine. What is about this machine's
# kernel (memory, new processes) is left out, and so is what takes minutes there: that
# the model's bytes are the same says as much as its recordings would.
part_cross() {
  title "aarch64 (cross compiler, qemu)"
  part=cross
  local libraries log=$logs/cross.log emulator
  libraries=$(realpath "$build")/aarch64-libraries
  if [ "$(uname -m)" = aarch64 ]; then skip "aarch64" "this machine is one"; return; fi
  if ! { tools/setup.sh cross && tests/cross/arm64_libraries.sh "$libraries"; } >"$log" 2>&1; then
    skip "aarch64" "$(tail -n 1 "$log")"
    return
  fi
  dir=$build/aarch64
  one "build (aarch64)" 1200 env PKG_CONFIG_SYSROOT_DIR="$libraries" \
    PKG_CONFIG_LIBDIR="$libraries/usr/lib/aarch64-linux-gnu/pkgconfig" \
    make -j"$jobs" BUILD="$dir" CC=aarch64-linux-gnu-gcc "$dir/strata" tests || return
  emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$libraries/usr/lib/aarch64-linux-gnu"
  programs parity 900
  # What is long, starts programs of its own, or compiles for this machine.
  without="test_windows test_errors test_shapes test_cache test_capture"
  programs engine 600
  without="test_kload test_ceilings"
  programs unit 600
  without=
  part=cross
  # shellcheck disable=SC2086
  {
    cases math/test_math 600 $emulator "$dir/tests/math/test_math" --stride 9973
    cases "cross/test_same_bytes" 600 tests/cross/test_same_bytes.sh "$build" "$dir" $emulator
  }
}

part_thread() {
  build_as thread tests || return
  title "tests (TSan)"
  # shellcheck disable=SC2086
  if ! $plain_addresses "$dir/tests/unit/test_chat" >"$logs/thread.log" 2>&1 &&
    grep -q 'FATAL: ThreadSanitizer' "$logs/thread.log"; then
    skip "thread sanitizer" "$(grep -m1 'FATAL: ThreadSanitizer' "$logs/thread.log")"
    return
  fi
  # Some fifteen times as slow as without, test_windows would take half an hour; its
  # threads are those of the other programs.
  without=test_windows
  programs engine 900
  without=
  programs golden 600
}

part_fuzz() {
  dir=$build/fuzz
  title "fuzzers, $fuzz_seconds seconds each"
  if ! command -v clang >/dev/null; then skip "fuzzers" "there is no clang"; return; fi
  part=build
  one "build (clang)" 1200 make -j"$jobs" BUILD="$dir" MODE=fuzz CC=clang KERNELS="$build" fuzzers || return
  local name found=$build/fuzz/found
  part=fuzz
  for name in $(fuzz_names); do
    mkdir -p "$found/$name" "$build/fuzz/corpus/$name"
    # What is new goes to the first folder; the tracked one is only read.
    # shellcheck disable=SC2086
    one "fuzz_$name" $((fuzz_seconds + 120)) $plain_addresses "$dir/tests/fuzz/fuzz_$name" \
      -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$found/$name/" "$build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
  done
}

# All floats take half an hour on two CPUs. With a budget, as many as fit; how
# long they take is known from the short run in check.
part_math_full() {
  local stride=$math_stride left need
  left=$(($(seconds_left) - 60))
  need=$((${math_seconds:-2} * 997 / stride))
  if [ "$left" -lt "$need" ]; then
    [ "$left" -ge 60 ] || { title "the shared functions"; skip "all floats" "no time left"; return; }
    stride=$((need * stride / left + 1))
    title "the shared functions, every ${stride}th float"
    skip "all floats" "they need about $((need / 60)) minutes, $((left / 60)) are left"
  else
    title "the shared functions, stride $stride"
  fi
  part=math_full
  cases math/test_math 14400 "$build/tests/math/test_math" --stride "$stride"
}

check_full() {
  check
  dir=$build
  part_instructions
  part_chips
  part_tutorial
  part_long
  # test_windows goes through all levels by itself; test_cache takes a quarter of an
  # hour at scalar.
  title "GPU kernels, emulated, many sizes"
  part=sizes
  cases cuda/test_sizes 600 env LONG_TESTS=1 "$build/tests/cuda/test_sizes"
  title "windows at all levels"
  part=windows
  cases engine/test_windows 600 env LONG_TESTS=1 "$build/tests/engine/test_windows"
  without="test_windows test_cache"
  part_levels "" golden engine
  without=
  title "verdicts on real runs"
  programs timing 450
  part_fuzz
  if build_as sanitize "$build/sanitize/strata" tests; then
    title "tests (ASan, UBSan)"
    # Parity runs the kernels of all levels by itself, and what the engine tests
    # are about does not depend on the level.
    programs parity 900
    without=test_cache
    programs engine 1800
    without=
    programs lab 900
    part_levels " (ASan, UBSan)" golden
    title "the program (ASan, UBSan)"
    part=cli_sanitize
    # The cases that limit memory cannot hold the sanitizer's own.
    cases tests/cli/test_cli.sh 900 tests/cli/test_cli.sh "$dir/strata"
  fi
  part_cross
  part_thread
  part_math_full
}

# The kernels on the GPU; where there is none, one line says why.
check_gpu() {
  build_as release "$build/tests/cuda/test_device" "$build/tests/cuda/test_nvrtc" || return
  title "GPU"
  part=gpu
  cases cuda/test_nvrtc 600 "$dir/tests/cuda/test_nvrtc"
  cases cuda/test_device 600 "$dir/tests/cuda/test_device"
}

# ---- main ------------------------------------------------------------------------

case ${1:-} in
  check) check ;;
  check-full) check_full ;;
  fuzz) build_as release "$build/libstrata.a" && part_fuzz ;;
  check-gpu) check_gpu ;;
  *) echo "usage: tests/run.sh check|check-full|check-gpu|fuzz" >&2; exit 2 ;;
esac

# A run without a test is no success, except where there is nothing to test yet.
[ $n_passed -gt 0 ] || [ $n_failed -gt 0 ] || [ "$1" = check-gpu ] || n_failed=1
skips=
[ $n_skipped -eq 0 ] || skips=", $n_skipped skipped"
printf '\n%d passed, %d failed%s\n' $n_passed $n_failed "$skips"
[ $n_failed -eq 0 ]
