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

mkdir "$root/reader" "$root/home"
awk -v dir="$root" '
  /^```sh$/ { inside = 1; n++; next }
  /^```$/ { inside = 0 }
  inside { print > sprintf("%s/block%02d.sh", dir, n) }' "$text"

n_failed=0
for block in "$root"/block*.sh; do
  name=$(tail -n 1 "$block" | sed 's/ *#.*//')
  want=$(sed -n 's/.*# exit code \([0-9]\).*/\1/p' "$block")
  (cd "$root/reader" && env -i PATH="$root/usr/bin:/usr/bin:/bin" HOME="$root/home" \
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
  if [ -s "$root/reader/$file" ]; then echo "ok $file"; else echo "not ok $file is missing"; n_failed=$((n_failed + 1)); fi
done

# ---- exit codes, whatever the machine is doing -----------------------------------

# expect CODE NAME WORDS...: strata lab WORDS ends with CODE.
expect() {
  local want=$1 name=$2 rc
  shift 2
  (cd "$root/reader" && env -i PATH="$root/usr/bin:/usr/bin:/bin" HOME="$root/home" strata lab "$@") \
    >"$root/out" 2>&1 </dev/null
  rc=$?
  if [ $rc -eq "$want" ]; then echo "ok exit code $want: $name"; return; fi
  echo "not ok exit code $want: $name"
  echo "# exit code $rc"
  sed 's/^/# /' "$root/out"
  n_failed=$((n_failed + 1))
}

cd "$root/reader" || exit 1
# A rule that four rounds satisfy on any machine, and one that no run of seconds does.
echo '{"min_gain": 0.5, "narrow": 0.5, "min_rounds": 4, "max_rounds": 4, "max_disturbed": 1}' >easy.json
echo '{"min_rounds": 10000, "max_rounds": 10000}' >hard.json
echo '{"min_gian": 0.5}' >misspelt.json
echo 'int x = ;' >broken.c
mkdir chain && cp narrow.c chain/gdn_scan.c
small="--T 3 --set Hk=1,Hv=2 --threads 1"
# shellcheck disable=SC2086
{
  expect 0 "a verdict" ab --op gdn_scan --cand narrow.c $small --rule easy.json --report easy
  expect 0 "its report verified" verify easy
  expect 1 "wrong bytes" ab --op gdn_scan --cand swapped.c $small --report wrong
  expect 3 "no verdict" ab --op gdn_scan --cand narrow.c $small --rule hard.json --deadline 4 --report hard
  expect 0 "a report without verdict verified" verify hard
  expect 2 "a folder that has something in it" ab --op gdn_scan --cand narrow.c $small --report easy
  expect 2 "a shape that the op refuses" ab --op gdn_scan --cand narrow.c --T 3 --set Hk=2,Hv=3 --report none
  expect 2 "no such parameter" ab --op gdn_scan --cand narrow.c --set Hx=2 --report none
  expect 2 "no such op" ab --op gdn_skan --cand narrow.c --report none
  expect 2 "no such file" ab --op gdn_scan --cand ./nothing.c --report none
  expect 2 "the same source" ab --op gdn_scan --cand idea.c --base idea.c --report none
  expect 2 "a rule with an unknown key" ab --op gdn_scan --cand narrow.c --rule misspelt.json --report none
  expect 2 "no kernel" ab --op gdn_scan --cand broken.c --report none
  echo edited >>easy/cand/gdn_scan.c
  expect 1 "an edited report" verify easy
  expect 0 "a chain" pipeline --cand-dir chain $small --f32 1 --rule easy.json --report chained
  expect 0 "a chain's report verified" verify chained
}
if [ ! -e "$root/reader/none" ]; then echo "ok nothing is left of what was refused"; else
  echo "not ok nothing is left of what was refused"; n_failed=$((n_failed + 1))
fi
[ $n_failed -eq 0 ]
