#!/usr/bin/env bash
# Builds ggml beside strata and times its gated delta net with ours in one run.
#
#   tools/bench_ggml/bench_ggml.sh [THREADS [ROUNDS]]      (2 threads, 15 rounds)
#
# Needs pip, cmake, g++ and make. The source distribution of llama-cpp-python is
# fetched by pip into BUILD/ggml and built there for this CPU; nothing of it is
# committed. GGML_DIR names an unpacked ggml instead.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
threads=${1:-2} rounds=${2:-15}
there=$build/ggml
mkdir -p "$there"

if [ -z "${GGML_DIR:-}" ]; then
  ls "$there"/llama_cpp_python-*.tar.gz >/dev/null 2>&1 ||
    pip download -q --no-deps --no-binary llama-cpp-python llama-cpp-python -d "$there"
  ls -d "$there"/llama_cpp_python-*/ >/dev/null 2>&1 || tar xzf "$there"/llama_cpp_python-*.tar.gz -C "$there"
  GGML_DIR=$(echo "$there"/llama_cpp_python-*/vendor/llama.cpp/ggml)
fi
# The source distribution leaves out a template that only installing needs.
[ -e "$GGML_DIR/ggml.pc.in" ] || : >"$GGML_DIR/ggml.pc.in"
cmake -S "$GGML_DIR" -B "$there/b" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
  -DGGML_NATIVE=ON -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF >"$there/cmake.log" 2>&1 ||
  { tail -n 20 "$there/cmake.log" >&2; exit 1; }
cmake --build "$there/b" -j"$(nproc)" --target ggml >"$there/build.log" 2>&1 ||
  { tail -n 20 "$there/build.log" >&2; exit 1; }
make -s "$build/libstrata.a"
cc -std=c17 -O2 -D_GNU_SOURCE -Iinclude -Isrc -Ikernels -I"$GGML_DIR/include" \
  -c -o "$there/bench_ggml.o" tools/bench_ggml/bench_ggml.c
# shellcheck disable=SC2046
g++ -o "$there/bench_ggml" "$there/bench_ggml.o" "$build/libstrata.a" \
  $(find "$there/b" -name 'libggml*.a' | sort | sed 's/.*libggml\.a/1&/; s/.*libggml-cpu\.a/2&/; s/.*libggml-base\.a/3&/' | sort | sed 's/^[123]//') \
  -fopenmp $(pkg-config --libs jansson libpcre2-8 libutf8proc libxxhash libmd) -lpthread -lm -ldl
"$there/bench_ggml" "$threads" "$rounds"
