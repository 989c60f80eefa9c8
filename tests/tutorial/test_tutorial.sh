#!/usr/bin/env bash
# The tutorial, as a reader does it: an empty folder, the installed program, no source
# tree. Runs each sh block of docs/tune-a-kernel.md in order. A block passes with exit
# code 0, or with the one that a comment "# exit code N" in it names; where times are
# compared, 3 (no verdict) passes too: how noisy the machine is, is not the program's
# fault.
#
# usage: test_tutorial.sh BUILD-FOLDER
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "$1")
text=$PWD/docs/tune-a-kernel.md
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD DESTDIR PREFIX
# The build is copied first: the program is compiled anew for another prefix.
mkdir "$root/build"
cp -a "$build"/{src,kernels,cli,lab,prefix} "$build"/strata "$build"/libstrata.* "$root/build" || exit 1
make --no-print-directory -s BUILD="$root/build" PREFIX="$root/usr" install >"$root/install.log" 2>&1 ||
  { echo "not ok install"; sed 's/^/# /' "$root/install.log"; exit 1; }

mkdir "$root/work" "$root/home"
awk -v dir="$root" '
  /^```sh$/ { inside = 1; n++; next }
  /^```$/ { inside = 0 }
  inside { print > sprintf("%s/block%02d.sh", dir, n) }' "$text"

n_failed=0
for block in "$root"/block*.sh; do
  name=$(tail -n 1 "$block" | sed 's/ *#.*//')
  want=$(sed -n 's/.*# exit code \([0-9]\).*/\1/p' "$block")
  (cd "$root/work" && env -i PATH="$root/usr/bin:/usr/bin:/bin" HOME="$root/home" \
    bash -e "$block") >"$root/out" 2>&1 </dev/null
  rc=$?
  if [ $rc -eq "${want:-0}" ] || { [ $rc -eq 3 ] && [ -z "$want" ] && grep -qE 'lab (ab|aa)' "$block"; }; then
    echo "ok $name"
  else
    echo "not ok $name"
    echo "# exit code $rc, ${want:-0} expected"
    sed 's/^/# /' "$root/out"
    n_failed=$((n_failed + 1))
  fi
done

# What the text says one will find.
for file in noise/report.md narrow/report.html narrow/base/gdn_scan.c swapped/report.json win/report.html; do
  if [ -s "$root/work/$file" ]; then echo "ok $file"; else echo "not ok $file is missing"; n_failed=$((n_failed + 1)); fi
done
[ $n_failed -eq 0 ]
