#!/usr/bin/env bash
# Installs into a folder of its own and uses what was installed: the program
# without -m, and the library from a small C program, shared and static.
#
#   tests/install/test_install.sh BUILD
#
# The build is copied first: the program must be compiled for the new prefix.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:?usage: tests/install/test_install.sh BUILD}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
log=$work/log
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD DESTDIR PREFIX
n_failed=0

# expect NAME COMMAND...
expect() {
  local name=$1
  shift
  if "$@" >"$log" 2>&1 </dev/null; then echo "ok $name"; return; fi
  echo "not ok $name"
  sed 's/^/# /' "$log"
  n_failed=$((n_failed + 1))
}

mkdir -p "$work/build"
cp -a "$build"/{src,kernels,cli,prefix} "$build"/strata "$build"/libstrata.* "$work/build" || exit 1
make_in() { make --no-print-directory BUILD="$work/build" PREFIX="$prefix" "$@"; }

all_there() {
  local file
  for file in bin/strata lib/libstrata.a lib/libstrata.so lib/pkgconfig/strata.pc \
    include/strata/strata.h include/strata/kernel.h share/man/man1/strata.1 \
    share/strata/models/strata-tiny/config.json share/doc/strata/LICENSE; do
    [ -s "$prefix/$file" ] || { echo "missing: $file"; return 1; }
  done
  [ "$(readlink "$prefix/lib/libstrata.so")" = libstrata.so.0 ] || { ls -l "$prefix/lib"; return 1; }
}

only_strata_symbols() {
  local others
  others=$(nm -D --defined-only "$prefix/lib/libstrata.so" | awk '$3 !~ /^strata_/')
  [ -z "$others" ] || { echo "exported: $others"; return 1; }
  nm -D --defined-only "$prefix/lib/libstrata.so" | grep -q ' strata_engine_new$'
}

same_version() {
  local there
  there=$(sed -n 's/^#define STRATA_VERSION "\(.*\)"$/\1/p' include/strata/strata.h)
  echo "header $there, strata.pc $(pkg-config --modversion strata), program $("$prefix/bin/strata" --version)"
  [ "$there" = "$(pkg-config --modversion strata)" ] && [ "strata $there" = "$("$prefix/bin/strata" --version)" ]
}

# The header comes first and alone, so that it must be complete.
cat >"$work/use.c" <<'C'
#include <strata/strata.h>
#include <stdio.h>

int main(int argc, char **argv) {
  strata_error err = {0};
  strata_engine *engine = NULL;
  strata_model *model = NULL;
  strata_session *session = NULL;
  const int32_t ids[] = {1, 2, 3};
  if (argc != 2 || strata_engine_new(NULL, &engine, &err) ||
      strata_model_open(engine, argv[1], &model, &err) ||
      strata_session_new(model, NULL, &session, &err) ||
      strata_session_feed(session, ids, 3, NULL, &err))
    fprintf(stderr, "%s\n", err.message);
  else
    printf("position %d\n", (int)strata_session_position(session));
  strata_session_free(&session);
  strata_model_close(&model);
  strata_engine_free(&engine);
  return err.status != STRATA_OK;
}
C
cc=${CC:-cc}
# The flags are meant to be split into words.
# shellcheck disable=SC2046
compile_shared() { $cc -std=c17 -Wall -Wextra -Werror "$work/use.c" -o "$work/shared" $(pkg-config --cflags --libs strata); }
# Static for strata alone: the C library and the rest stay shared.
# shellcheck disable=SC2046
compile_static() {
  $cc -std=c17 "$work/use.c" -o "$work/static" $(pkg-config --cflags strata) \
    $(pkg-config --libs --static strata | sed 's/-lstrata/-l:libstrata.a/')
}
position_is_3() { [ "$("$@" "$prefix/share/strata/models/strata-tiny")" = "position 3" ]; }
uses_shared() { readelf -d "$1" | grep -q 'NEEDED.*libstrata.so.0'; }
uses_no_shared() { ! uses_shared "$1"; }
writes_text() { (cd / && "$prefix/bin/strata" run -p "Once upon a time" -n 4) | grep -q .; }
nothing_left() { local left; left=$(find "$prefix" ! -type d); [ -z "$left" ] || { echo "left: $left"; return 1; }; }

expect install make_in install
expect everything_is_there all_there
expect versions_agree same_version
expect exports_only_strata_symbols only_strata_symbols
expect compiles_against_the_shared_library compile_shared
expect needs_the_shared_library uses_shared "$work/shared"
expect runs_with_the_shared_library position_is_3 env LD_LIBRARY_PATH="$prefix/lib" "$work/shared"
expect compiles_against_the_static_library compile_static
expect needs_no_shared_library uses_no_shared "$work/static"
expect runs_with_the_static_library position_is_3 "$work/static"
expect program_finds_its_model writes_text
expect uninstall make_in uninstall
expect nothing_is_left nothing_left
[ $n_failed -eq 0 ]
