#!/usr/bin/env bash
# Whether two builds for different machines compute the same bytes: the results of
# every op's cases, and the shipped model's logits and state.
#
#   tests/cross/test_same_bytes.sh BUILD OTHER_BUILD EMULATOR...
#
# EMULATOR runs the programs of OTHER_BUILD.
set -u
here=$1 there=$2
shift 2
n_failed=0

# Over 260 tokens attention is sparse.
ids=$(seq -s, 100 379)

lines() {
  local build=$1
  shift
  "$@" "$build/tests/cross/case_hashes" &&
    "$@" "$build/strata" logits -m models/strata-tiny --ids "$ids" | sed 's/^sha256 /model\/&/; s/sha256 //'
}

want=$(lines "$here") || { echo "not ok $here"; exit 1; }
got=$(lines "$there" "$@") || { echo "not ok $there"; exit 1; }
[ "$(wc -l <<<"$want")" -eq "$(wc -l <<<"$got")" ] || { echo "not ok the builds have different ops"; exit 1; }
while read -r name hash; do
  if grep -qx "$name $hash" <<<"$got"; then
    echo "ok $name"
  else
    echo "not ok $name: $hash on this machine, $(sed -n "s|^$name ||p" <<<"$got") on the other"
    n_failed=1
  fi
done <<<"$want"
exit $n_failed
