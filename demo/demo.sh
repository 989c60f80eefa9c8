#!/usr/bin/env bash
# The first look at strata: sets up, builds, and lets the shipped model write and
# remember. This is `make demo`.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
model=models/strata-tiny
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD STRATA_ISA

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
step() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '  $ %s\n\n' "$*"; }
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

echo "This demo builds strata and runs the small language model that comes with it on
this machine's CPU: it continues a story, then it finds a fact hidden in a text."

step "1. Set up and build (about half a minute the first time)"
tools/setup.sh build || exit 1
if ! make -j"$(nproc)" BUILD="$build" >"$log" 2>&1; then
  cat "$log" >&2
  echo "demo: the build failed, see above" >&2
  exit 1
fi
echo "$build/strata is ready."

step "2. Continue a story"
story="Once upon a time there was a king who had a golden bird."
show "strata run -m $model -p \"$story\" -n 60 --stats"
printf '%s' "$story"
"$build/strata" run -m "$model" -p "$story" -n 60 --stats 2>"$log" || { cat "$log" >&2; exit 1; }
echo
sed 's/^/  /' "$log"

step "3. Remember"
echo "demo/recall.txt is $(wc -w <demo/recall.txt) words of a novel. In the middle someone has put"
echo "\"Gretel hid the golden key behind the mill.\" The text ends with:"
echo
tail -n 1 demo/recall.txt | sed 's/^/  /'
echo
echo
show "strata run -m $model -f demo/recall.txt -n 4"
answer=$("$build/strata" run -m "$model" -f demo/recall.txt -n 4) || exit 1
printf '  %s\n\n' "$answer"
case $answer in
  *"behind the mill"*) echo "The model found it." ;;
  *) echo "demo: the answer should be \"behind the mill\"" >&2; exit 1 ;;
esac
echo "Try your own: $build/strata chat, or $build/strata help."
