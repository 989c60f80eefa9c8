#!/usr/bin/env bash
# Tests the program as its users meet it: results, exit codes, error lines, and
# what is left behind when something goes wrong.
#
#   tests/cli/test_cli.sh BUILD/strata
#
# Prints "ok NAME", "not ok NAME: reason" or "skip NAME: reason" for each case
# and a closing count; fails if a case fails. A case is a function case_NAME
# that calls fail or skip with a reason, or neither.
set -u

if [ $# -ne 1 ] || [ ! -x "$1" ]; then
  echo "usage: tests/cli/test_cli.sh BUILD/strata" >&2
  exit 2
fi
strata=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
model=$(cd "$(dirname "$0")/../../models/strata-tiny" && pwd)
reports=$(cd "$(dirname "$0")/../fuzz/corpus/report" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# ---- helpers -------------------------------------------------------------------

reason=
verdict=

fail() { verdict=${verdict:-fail}; reason=${reason:-$*}; }
skip() { verdict=skip; reason=$*; }

# Runs the program; leaves its exit code in rc, its output in the files out, err.
run() { "$strata" "$@" >out 2>err </dev/null; rc=$?; }

expect_rc() { [ "$rc" -eq "$1" ] || fail "exit code $rc, not $1: $(head -c 200 err)"; }
expect_out() { [ "$(cat out)" = "$1" ] || fail "wrote '$(head -c 200 out)', not '$1'"; }
expect_in() { grep -qF -- "$2" "$1" || fail "'$2' is not in $1: $(head -c 200 "$1")"; }
expect_quiet() { [ ! -s err ] || fail "stderr has: $(head -c 200 err)"; }

# An error is one line that begins with "strata: ", and no result.
expect_error() {
  expect_rc "$1"
  [ "$(wc -l <err)" -eq 1 ] || fail "stderr has $(wc -l <err) lines: $(head -c 300 err)"
  grep -q '^strata: ' err || fail "stderr does not begin with 'strata: '"
  [ ! -s out ] || fail "an error, and yet stdout has: $(head -c 100 out)"
  [ $# -lt 2 ] || expect_in err "$2"
}

# The JSON document in out satisfies a jq filter.
expect_json() {
  jq -e "$1" out >/dev/null 2>jq_err || fail "JSON lacks $1: $(head -c 200 out) $(cat jq_err)"
}
need() { command -v "$1" >/dev/null 2>&1 || { skip "there is no $1"; return 1; }; }
# A bare root may have no pseudo-terminals.
need_terminals() { [ -c /dev/ptmx ] && [ -d /dev/pts ] || { skip "there are no pseudo-terminals"; return 1; }; }

# Waits up to 20 seconds until a command succeeds.
wait_until() {
  for _ in $(seq 400); do
    if "$@"; then return 0; fi
    sleep 0.05
  done
  fail "nothing happened within 20 seconds: $*"
  return 1
}
has_bytes() { [ -s "$1" ]; }
has_temporary() { ls "$1"/*.?????? >/dev/null 2>&1; }

# 20000 ids into the file many: more than any machine runs one by one before a
# signal comes. The text is taken again and again.
make_many_ids() {
  first_ids 1- >once
  for _ in $(seq 40); do cat once; done | tr '\n' ' ' | cut -d' ' -f1-20000 >many
}

first_ids() { "$strata" tokenize -m "$model" <"$model/heldout.txt" | cut -d' ' -f"$1"; }

# ---- help and hints ------------------------------------------------------------

case_help() {
  run help
  expect_rc 0
  for command in run chat tokenize logits ppl info; do expect_in out "  $command "; done
  expect_quiet
}

case_help_of_each_command() {
  for command in run chat tokenize logits ppl info; do
    run $command --help
    expect_rc 0
    expect_in out "usage: strata $command"
    expect_in out "--model DIR"
    cp out by_option
    run help $command
    cmp -s out by_option || fail "'help $command' and '$command --help' differ"
    [ -z "$(awk 'length > 80' out)" ] || fail "help of $command is wider than 80 columns"
  done
}

case_version() {
  run --version
  expect_rc 0
  grep -qE '^strata [0-9]+\.[0-9]+\.[0-9]+$' out || fail "wrote $(cat out)"
}

case_no_command() { run; expect_error 2 "strata help"; }
case_unknown_command() { run zzzzzz; expect_error 2 "zzzzzz"; }
case_unknown_command_hint() { run tokenise; expect_error 2 "did you mean tokenize?"; }
case_unknown_option() { run run --zzzzzzzz; expect_error 2 "--zzzzzzzz"; }
case_unknown_option_hint() { run run --tmep 1; expect_error 2 "did you mean --temp?"; }
case_single_dash_hint() { run run -temp 1; expect_error 2 "did you mean --temp?"; }
case_unknown_help_topic() { run help lgits; expect_error 2 "did you mean logits?"; }

case_control_characters_are_escaped() {
  run "$(printf 'a\033[31mb')"
  expect_error 2 'a\x1b[31mb'
}

# ---- values --------------------------------------------------------------------

case_bad_numbers() {
  for value in "" x 1x " 1" +1 0x10 1.5 99999999999999999999 -1; do
    run run -m "$model" -p a -n "$value"
    expect_error 2 "--tokens: $value: a whole number from 0 to"
  done
  for value in "" x nan inf 0x1p3 1e999 -0.1 100.5; do
    run run -m "$model" -p a --temp "$value"
    expect_error 2 "--temp: $value: a number from 0 to 100"
  done
  for value in -1 1.0 18446744073709551616; do
    run run -m "$model" -p a --seed "$value"
    expect_error 2 "--seed: $value: a whole number from 0 to 18446744073709551615"
  done
}

case_bad_choice() { run run -p a --chat --think maybe; expect_error 2 "one of on|off"; }
case_missing_value() { run run -m; expect_error 2 "no value"; }
case_value_for_a_flag() { run run --json=yes; expect_error 2 "no value expected"; }
case_threads_out_of_range() { run info -m "$model" --threads 257; expect_error 2 "from 0 to 256"; }
case_top_p_zero() { run run -m "$model" -p a --temp 1 --top-p 0; expect_error 2; }

case_wrong_combinations() {
  run run -p a -f b; expect_error 2 "one of"
  run run -m "$model" hello; expect_error 2 "hello"
  run run -p a --system b; expect_error 2 "--chat"
  run run -p a --chat --literal; expect_error 2 "--literal"
  run run -p a --chat --load-state s; expect_error 2 "--load-state"
  run logits -m "$model"; expect_error 2 "--ids"
  run logits -m "$model" --ids 1 -p a; expect_error 2 "--ids"
  run logits -m "$model" --ids 1 --literal; expect_error 2 "--literal"
  run tokenize --decode --literal 1; expect_error 2 "--literal"
  run tokenize a b; expect_error 2 "unexpected argument: b"
  run ppl -m "$model"; expect_error 2 "--file"
  run info -m "$model" extra; expect_error 2 "extra"
  run chat -m "$model" extra; expect_error 2 "extra"
}

# ---- models --------------------------------------------------------------------

case_missing_model() { run info -m no/such; expect_error 1 "no/such"; }
case_missing_tokenizer() { run tokenize -m no/such hello; expect_error 1 "no/such"; }

copy_model() { mkdir -p "$1" && cp "$model"/* "$1"; }

case_truncated_weights() {
  copy_model damaged
  set -- damaged/*.safetensors
  last=$1
  head -c 1000 "$last" >shortened && mv shortened "$last"
  run info -m damaged
  expect_error 1 "$(basename "$last")"
  rm -rf damaged
}

case_damaged_config() {
  copy_model damaged
  echo '{' >damaged/config.json
  run run -m damaged -p a
  expect_error 1 "config.json"
  rm -rf damaged
}

case_unsupported_model() {
  copy_model other
  sed 's/qwen4_exp_text/another_model/; s/Qwen4ExpForCausalLM/AnotherModel/' \
    "$model/config.json" >other/config.json
  run info -m other
  expect_error 2 "config.json"
  rm -rf other
}

case_damaged_tokenizer() {
  copy_model damaged
  head -c 1000 "$model/tokenizer.json" >damaged/tokenizer.json
  run tokenize -m damaged hello
  expect_error 1 "tokenizer.json"
  rm -rf damaged
}

case_default_model_has_a_note() {
  [ -d "$(dirname "$strata")/../models/strata-tiny" ] || { skip "not in a source tree"; return; }
  run tokenize hello
  expect_rc 0
  expect_in err "strata: note: no -m given"
  [ "$(wc -l <err)" -eq 1 ] || fail "more than one line on stderr"
}

case_no_default_model_elsewhere() {
  mkdir -p elsewhere/bin && cp "$strata" elsewhere/bin/strata
  elsewhere/bin/strata tokenize hello >out 2>err </dev/null
  rc=$?
  rm -rf elsewhere
  [ $rc -ne 0 ] || { skip "a model is installed"; return; }
  expect_error 2 "--model: not given"
}

# ---- tokenize ------------------------------------------------------------------

case_tokenize() {
  run tokenize -m "$model" hello
  expect_rc 0
  expect_quiet
  grep -qE '^[0-9]+( [0-9]+)*$' out || fail "wrote $(cat out)"
}

case_tokenize_round_trip() {
  printf 'Tabs\tand\nlines, \xc3\xa9\xe2\x82\xac <|im_end|> end' >text
  "$strata" tokenize -m "$model" <text >ids || fail "encoding failed"
  "$strata" tokenize -m "$model" --decode <ids >back || fail "decoding failed"
  cmp -s text back || fail "the text came back changed"
  # shellcheck disable=SC2046
  run tokenize -m "$model" --decode $(cat ids)
  cmp -s text out || fail "ids as arguments give another text"
}

case_tokenize_literal() {
  run tokenize -m "$model" '<|im_end|>'
  [ "$(wc -w <out)" -eq 1 ] || fail "an added token is not one id: $(cat out)"
  run tokenize -m "$model" --literal '<|im_end|>'
  [ "$(wc -w <out)" -gt 1 ] || fail "--literal gives one id: $(cat out)"
}

case_tokenize_empty() { run tokenize -m "$model" ""; expect_rc 0; expect_out ""; }
case_tokenize_text_with_a_dash() { run tokenize -m "$model" -- --decode; expect_rc 0; }

case_tokenize_bad_utf8() {
  printf 'ab\xff' | "$strata" tokenize -m "$model" >out 2>err
  rc=$?
  expect_error 1
}

case_decode_bad_ids() {
  run tokenize -m "$model" --decode 1 x; expect_error 2 "ids: x:"
  run tokenize -m "$model" --decode 2147483647; expect_error 2
}

case_tokenize_json() {
  need jq || return
  run tokenize -m "$model" --json 'a<|im_end|>'
  expect_rc 0
  expect_json 'type == "array" and length == 2 and (.[1].text == "<|im_end|>")'
  ids=$(jq -r 'map(.id) | join(" ")' out)
  run tokenize -m "$model" --json --decode "$ids"
  expect_json '.text == "a<|im_end|>"'
}

# ---- run -----------------------------------------------------------------------

prompt='Once upon a time there was a king who had a golden bird.'

case_run() {
  run run -m "$model" -p "$prompt" -n 8
  expect_rc 0
  expect_quiet
  [ -s out ] || fail "wrote nothing"
}

case_run_prompt_sources_agree() {
  printf '%s' "$prompt" >text
  run run -m "$model" -p "$prompt" -n 8
  cp out expected
  run run -m "$model" -f text -n 8
  cmp -s out expected || fail "-f differs from -p"
  "$strata" run -m "$model" -n 8 <text >out 2>err
  cmp -s out expected || fail "standard input differs from -p"
  "$strata" run -m "$model" -n8 - <text >out 2>err
  cmp -s out expected || fail "- differs from -p"
  run run -m "$model" -p "$prompt" -n 8 --window 3 --threads 1
  cmp -s out expected || fail "--window 3 --threads 1 changes the text"
}

case_run_empty_prompt() {
  run run -m "$model" -p ""; expect_error 2 "prompt"
  run run -m "$model"; expect_error 2 "prompt"
}

case_run_missing_file() { run run -m "$model" -f no_such; expect_error 1 "no_such"; }
case_run_directory_as_file() { run run -m "$model" -f /; expect_error 1 "/"; }
case_run_no_tokens() { run run -m "$model" -p a -n 0; expect_rc 0; expect_out ""; }

case_run_sampling_repeats() {
  run run -m "$model" -p "$prompt" -n 12 --temp 1 --top-k 40 --top-p 0.95 --min-p 0.01 --seed 7
  expect_rc 0
  cp out first
  run run -m "$model" -p "$prompt" -n 12 --temp 1 --top-k 40 --top-p 0.95 --min-p 0.01 --seed 7
  cmp -s out first || fail "equal seeds give different texts"
  run run -m "$model" -p "$prompt" -n 12 --temp 1 --top-k 40 --top-p 0.95 --min-p 0.01 --seed 8
  ! cmp -s out first || fail "other seeds give the same text"
}

case_run_chat() {
  run run -m "$model" --chat --system 'Be kind.' -p 'Tell me a story.' -n 8
  expect_rc 0
  [ -s out ] || fail "wrote nothing"
}

case_run_stats() {
  run run -m "$model" -p "$prompt" -n 4 --stats=full
  expect_rc 0
  for word in prompt decode floor 'memory:' 'machine:' calls; do expect_in err "$word"; done
}

case_run_json() {
  need jq || return
  run run -m "$model" -p "$prompt" -n 4 --json --stats
  expect_rc 0
  expect_json '(.text | type) == "string" and (.ids | length) <= 4 and (.stop | type) == "string"'
  expect_json '.stats.prompt.tokens > 0 and (.stats.prompt.ops | length) > 0'
  expect_json '.stats.peak_bytes > 0 and .stats.planned_bytes > 0'
  jq -j .text out >text
  run run -m "$model" -p "$prompt" -n 4
  [ "$(cat text)" = "$(cat out)" ] || fail "JSON and plain text differ"
}

case_run_state_continues() {
  run run -m "$model" -p "$prompt" -n 20
  cp out whole
  run run -m "$model" -p "$prompt" -n 8 --save-state state
  expect_rc 0
  head -c "$(($(wc -c <out) - 1))" out >first
  run run -m "$model" -n 12 --load-state state
  expect_rc 0
  cat first out | cmp -s - whole || fail "8 + 12 tokens differ from 20: $(cat first out)"
}

case_run_damaged_state() {
  run run -m "$model" -p a -n 1 --save-state state
  head -c 100 state >shortened
  run run -m "$model" --load-state shortened; expect_error 1 "shortened"
  run run -m "$model" --load-state no_such; expect_error 1 "no_such"
}

case_run_state_to_a_device() {
  run run -m "$model" -p a --save-state /dev/null
  expect_error 2 "--save-state"
  [ -c /dev/null ] || fail "/dev/null was replaced"
}

# ---- chat ----------------------------------------------------------------------

case_chat_piped() {
  printf 'Hello.\nTell me more.\n' | "$strata" chat -m "$model" -n 6 >out 2>err
  rc=$?
  expect_rc 0
  [ "$(wc -l <out)" -ge 2 ] || fail "fewer than two answers: $(cat out)"
}

case_chat_answers_like_run() {
  run run -m "$model" --chat -p 'Hello.' -n 6
  cp out expected
  printf 'Hello.\n' | "$strata" chat -m "$model" -n 6 >out 2>err
  cmp -s out expected || fail "chat says '$(cat out)', run says '$(cat expected)'"
}

case_chat_commands() {
  printf 'Hello.\n/reset\nHello.\n/exit\nnot read\n' | "$strata" chat -m "$model" -n 6 >out 2>err
  rc=$?
  expect_rc 0
  n=$(wc -l <out)
  head -n $((n / 2)) out >first
  tail -n $((n / 2)) out | cmp -s - first || fail "the answer after /reset differs: $(cat out)"
  printf '/foo\n' | "$strata" chat -m "$model" >out 2>err
  expect_in err "/foo: unknown"
}

case_chat_empty_input() { run chat -m "$model"; expect_rc 0; expect_out ""; }

# ---- logits --------------------------------------------------------------------

case_logits() {
  run logits -m "$model" --ids 1,2,3
  expect_rc 0
  expect_quiet
  grep -qE '^sha256 logits [0-9a-f]{64}$' out || fail "no hash of logits: $(cat out)"
  grep -qE '^sha256 state [0-9a-f]{64}$' out || fail "no hash of the state: $(cat out)"
}

case_logits_inputs_agree() {
  run logits -m "$model" -p "$prompt"
  cp out expected
  ids=$("$strata" tokenize -m "$model" "$prompt")
  run logits -m "$model" --ids "$ids"
  cmp -s out expected || fail "--ids differs from -p"
  echo "$ids" | tr ' ' ',' >ids
  run logits -m "$model" --ids @ids
  cmp -s out expected || fail "--ids @FILE differs from -p"
}

case_logits_out_matches_its_hash() {
  need sha256sum || return
  run logits -m "$model" --ids 1,2,3 --out logits
  expect_rc 0
  expect_in out "sha256 logits $(sha256sum <logits | cut -d' ' -f1)"
  rm -f logits
}

case_logits_windows_agree() {
  ids=$(first_ids 1-300)
  run logits -m "$model" --ids "$ids" --window 300
  expect_rc 0
  cp out expected
  for window in 128,128,44 37 299,1; do
    run logits -m "$model" --ids "$ids" --window $window
    cmp -s out expected || fail "--window $window changes the bytes"
  done
}

case_logits_state_across_processes() {
  run logits -m "$model" --ids "$(first_ids 1-300)" --out whole
  expect_rc 0
  grep 'sha256 state' out >expected
  run logits -m "$model" --ids "$(first_ids 1-259)" --save-state state --out first
  expect_rc 0
  run logits -m "$model" --ids "$(first_ids 260-300)" --load-state state --out rest
  expect_rc 0
  grep 'sha256 state' out | cmp -s - expected || fail "the final states differ"
  cat first rest | cmp -s - whole || fail "the logits differ"
  rm -f whole first rest
}

case_logits_top() {
  run logits -m "$model" --ids 1,2 --top 3
  expect_rc 0
  [ "$(grep -cE '^top [01]( [0-9]+:-?[0-9.e+-]+){3}$' out)" -eq 2 ] || fail "wrote $(cat out)"
}

case_logits_json() {
  need jq || return
  run logits -m "$model" --ids 1,2 --top 3 --json
  expect_rc 0
  expect_json '.tokens == 2 and (.sha256_logits | length) == 64 and (.sha256_state | length) == 64'
  expect_json '(.top | length) == 2 and (.top[1].ids | length) == 3 and .top[1].position == 1'
}

case_logits_bad_ids() {
  run logits -m "$model" --ids 1,x; expect_error 2 "--ids: x:"
  run logits -m "$model" --ids ""; expect_error 2 "0 tokens"
  run logits -m "$model" --ids -1; expect_error 2 "--ids: -1:"
  run logits -m "$model" --ids 1,999999999; expect_error 2 "999999999"
  run logits -m "$model" --ids 1 --window 0; expect_error 2 "--window: 0:"
  run logits -m "$model" --ids 1 --window ,; expect_error 2 "--window"
  run logits -m "$model" --ids @no_such; expect_error 1 "no_such"
}

case_logits_out_unwritable() {
  run logits -m "$model" --ids 1 --out no_such/logits; expect_error 1 "no_such/logits"
  mkdir -p directory
  run logits -m "$model" --ids 1 --out directory; expect_error 2 "--out: directory"
  run logits -m "$model" --ids 1 --out /dev/null; expect_error 2 "--out: /dev/null"
  [ -c /dev/null ] || fail "/dev/null was replaced"
  rmdir directory || fail "something was left in the directory"
}

case_logits_out_too_large() {
  mkdir -p full
  ids=$(first_ids 1-300)
  (
    trap '' XFSZ
    ulimit -f 200
    exec "$strata" logits -m "$model" --ids "$ids" --out full/logits
  ) >out 2>err </dev/null
  rc=$?
  expect_error 1 "full/logits"
  rmdir full || fail "left behind: $(ls full)"
}

case_logits_out_keeps_the_old_file() {
  echo old >kept
  run logits -m "$model" --ids 1,999999999 --out kept
  expect_error 2
  [ "$(cat kept)" = old ] || fail "the old file was changed by a failed run"
}

# ---- ppl and info --------------------------------------------------------------

case_ppl() {
  head -c 3000 "$model/heldout.txt" >text
  run ppl -m "$model" -f text --ctx 256
  expect_rc 0
  expect_quiet
  for word in tokens 'mean nll' perplexity '+-'; do expect_in out "$word"; done
}

case_ppl_json() {
  need jq || return
  head -c 3000 "$model/heldout.txt" >text
  run ppl -m "$model" -f text --ctx 256 --json
  expect_rc 0
  expect_json '.tokens == .tokens_counted + .chunks or .tokens == .tokens_counted + .chunks + 1'
  expect_json '.mean_nll > 0 and .mean_nll_error > 0 and .perplexity > 1 and .perplexity_error > 0'
  expect_json '((.mean_nll | exp) - .perplexity | fabs) < 1e-4 * .perplexity'
}

# Rounding keys and values costs little: a bound of 0.2 % on the perplexity.
case_ppl_kv() {
  need jq || return
  local kv f32
  for kv in f32 f16 q8; do
    run ppl -m "$model" -f "$model/heldout.txt" --kv $kv --json
    expect_rc 0
    [ $kv != f32 ] || f32=$(jq .perplexity out)
    expect_json "((.perplexity - $f32) | fabs) <= 0.002 * $f32"
    [ $kv = f32 ] || expect_json ".perplexity != $f32"
  done
  run ppl -m "$model" -f "$model/heldout.txt" --kv q4; expect_error 2 "--kv: q4"
}

case_kv_of_a_state() {
  run run -m "$model" -p "There was" -n 3 --kv q8 --save-state state
  expect_rc 0
  run run -m "$model" -n 1 --load-state state; expect_error 1 "a cache of q8: f32 expected"
  run run -m "$model" -n 1 --load-state state --kv q8; expect_rc 0
}

case_info_kv() {
  need jq || return
  local kv bytes=999999999999 now
  for kv in f32 f16 q8; do
    run info -m "$model" --ctx 1024 --kv $kv --json
    now=$(jq '.memory.components[] | select(.component == "kv cache").bytes' out)
    [ "${now:-0}" -lt "$bytes" ] && [ "${now:-0}" -gt 0 ] || fail "kv cache of $kv: $now bytes after $bytes"
    bytes=$now
  done
}

case_ppl_from_stdin() {
  head -c 1000 "$model/heldout.txt" >text
  run ppl -m "$model" -f text
  cp out expected
  "$strata" ppl -m "$model" -f - <text >out 2>err
  cmp -s out expected || fail "standard input differs from the file"
}

case_ppl_too_short() { : >empty; run ppl -m "$model" -f empty; expect_error 2 "0 tokens"; }
case_ppl_ctx_too_large() {
  run ppl -m "$model" -f "$model/heldout.txt" --ctx 1000000000
  expect_error 2 "--ctx: 1000000000"
}

case_info() {
  run info -m "$model"
  expect_rc 0
  expect_quiet
  for word in architecture parameters weights 'computes with' 'memory for' total; do
    expect_in out "$word"
  done
}

case_info_ctx() {
  run info -m "$model" --ctx 100
  small=$(awk '$1 == "total" { print $2 }' out)
  run info -m "$model" --ctx 20000
  large=$(awk '$1 == "total" { print $2 }' out)
  [ "${large:-0}" -gt "${small:-0}" ] || fail "20000 tokens take $large bytes, 100 take $small"
  run info -m "$model" --ctx 1000000000; expect_error 2 "--ctx: 1000000000"
}

case_info_json() {
  need jq || return
  run info -m "$model" --json
  expect_rc 0
  expect_json '.model.vocab_size > 0 and (.model.eos_ids | length) > 0'
  expect_json '(.memory.components | map(.bytes) | add) == .memory.total_bytes'
  expect_json '(.engine.isa | type) == "string" and .engine.threads > 0'
}

# ---- pipes, signals and terminals ----------------------------------------------

case_lab_list() {
  run lab list gdn_scan
  expect_rc 0
  expect_quiet
  expect_in out chosen
  [ "$(grep -c '^gdn_scan ' out)" -ge 3 ] || fail "fewer than three variants: $(cat out)"
  run lab list nosuch; expect_error 2 "lab list: nosuch"
}
case_lab_check() {
  run lab check hc_mix moe_route
  expect_rc 0
  expect_quiet
  [ "$(grep -c '^PASS ' out)" -ge 2 ] || fail "fewer than two tests: $(cat out)"
  tail -n 1 out | grep -q '^ALL PASS \([0-9]*\)/\1$' || fail "the last line is '$(tail -n 1 out)'"
  run lab check nosuch; expect_error 2 "lab check: nosuch"
}
# With a device the kernels run; without one the folder is looked at all the same.
case_lab_check_kernels() {
  mkdir none kernels
  run lab check gdn_post --kernels kernels; expect_error 2 "--kernels: kernels: nothing without --backend cuda expected"
  run lab check gdn_post --backend cuda --kernels nosuch; expect_error 2 "--kernels: nosuch: No such file"
  run lab check gdn_post --backend cuda --kernels none; expect_error 2 "--kernels: none: an empty folder"
  "$strata" lab source gdn_post cuda >kernels/gdn_post_cuda.cu
  touch kernels/idea.cu
  run lab check gdn_post --backend cuda --kernels kernels; expect_error 2 "--kernels: kernels/idea.cu: the name of a GPU kernel's source"
  rm kernels/idea.cu
  local args
  for args in "check gdn_post" "roof gdn_post --T 1"; do
    # shellcheck disable=SC2086
    run lab $args --backend cuda --kernels kernels
    if [ $rc -eq 0 ]; then expect_in out "REPLACED gdn_post/gdn_post_cuda.cu by kernels/gdn_post_cuda.cu"
    else expect_error 2 "CUDA"; fi
  done
}

case_lab_verify() {
  mkdir -p edited
  cp "$reports/edited" edited/report.json
  run lab verify edited
  expect_rc 1
  expect_in out "EDITED: base/gdn_pre.c is missing"
  expect_in out "EDITED: verdict is faster: its parts give no verdict"
  expect_in out "EDITED: report.html is missing"
  ! grep -q VERIFIED out || fail "verified: $(cat out)"
  run lab verify .; expect_error 2 "no readable report.json"
  run lab verify; expect_error 2 "the directory of a report expected"
}
case_lab_commands() {
  run lab; expect_error 2 "strata lab --help"
  run lab nosuch; expect_error 2 "unknown command: lab nosuch"
  run lab rof; expect_error 2 "did you mean lab roof?"
  run lab roof --ronds 3; expect_error 2 "did you mean --rounds?"
  run lab --rounds 3; expect_error 2 "unknown command: lab --rounds"
  run lab --help
  expect_rc 0
  for command in list check roof profile verify replay; do expect_in out "  $command "; done
  cp out by_option
  run help lab
  cmp -s out by_option || fail "'help lab' and 'lab --help' differ"
  for command in list check roof profile verify replay; do
    run lab $command --help
    expect_rc 0
    expect_in out "usage: strata lab $command"
    cp out by_option
    run help lab $command
    cmp -s out by_option || fail "'help lab $command' and 'lab $command --help' differ"
    [ -z "$(awk 'length > 80' out)" ] || fail "help of lab $command is wider than 80 columns"
  done
}

# Ceilings are measured once; the second run finds them.
case_lab_roof() {
  need jq || return
  run lab roof --ceilings --threads 1 --cache cache --json
  expect_rc 0
  expect_json '.machine.all_threads | .flops_per_second > 0 and .memory.DRAM.read_bytes_per_second > 0'
  expect_json '.machine.kept and .machine.threads == 1 and (.ops | length) == 0'
  cp out first
  run lab roof rope_table hc_mix --T 1,3 --threads 1 --rounds 1 --cache cache --json
  expect_rc 0
  expect_quiet
  expect_json '[.ops[] | "\(.op) \(.T)"] | sort == ["hc_mix 1", "hc_mix 3", "rope_table 1", "rope_table 3"]'
  expect_json 'all(.ops[]; .median_seconds >= .best_seconds and .best_seconds > 0 and .floor_seconds > 0)'
  jq -n --slurpfile a first --slurpfile b out -e '$a[0].machine == $b[0].machine' >/dev/null ||
    fail "the ceilings were not kept"
  run lab roof gdn_post --T 2 --set Hv=1,f32=1 --warm --variant scalar --threads 1 --rounds 1 --cache cache
  expect_rc 0
  expect_in out "gdn_post   scalar         2 warm"
}
case_lab_roof_refuses() {
  run lab roof nosuch; expect_error 2 "lab roof: nosuch"
  run lab roof hc_mix --T 0; expect_error 2 "--T: 0"
  run lab roof hc_mix --T ""; expect_error 2 "--T: 0 numbers"
  run lab roof hc_mix --variant nosuch; expect_error 2 "--variant: nosuch"
  run lab roof hc_mix hc_norm --variant scalar; expect_error 2 "--variant: 2 ops"
  run lab roof hc_mix --rounds 0; expect_error 2 "--rounds: 0"
  run lab roof nosuch --backend cuda; expect_error 2 "lab roof: nosuch"
  run lab roof linear --backend cuda; expect_error 2 "an op with GPU kernels"
  run lab roof gdn --backend cuda --warm; expect_error 2 "--backend cuda: no --scan, --warm"
  run lab roof gdn --backend cuda --variant cuda; expect_error 2 "ops: one op expected"
  run lab roof gdn_scan --backend cuda --variant nosuch; expect_error 2 "--variant: nosuch"
  run lab roof gdn_scan --backend cuda --set zz=1; expect_error 2 "gdn_scan: zz"
  run lab roof gdn --backend cuda --T 0; expect_error 2 "--T: 0"
  run lab roof gdn --kernels .; expect_error 2 "--kernels: .: nothing without --backend cuda expected"
  run lab roof gdn --backend cuda --kernels nosuch; expect_error 2 "--kernels: nosuch: No such file"
  STRATA_ISA=nosuch run lab roof hc_mix; expect_error 2 "STRATA_ISA: nosuch"
  for set in Hx=1 H= H H=x =1 H=1,; do run lab roof hc_mix --set "$set"; expect_error 2; done
  # What is wrong with a size shows only once the ceilings are there.
  run lab roof hc_mix --threads 1 --set H=0 --cache cache
  expect_rc 2
  expect_in err "hc_mix: n_tokens, n_streams, hidden"
}

case_lab_profile() {
  need jq || return
  run lab profile -m "$model" -p "$prompt" -n 3 --threads 1 --cache cache --json
  expect_rc 0
  expect_quiet
  expect_json '.machine.threads == 1 and .decode.tokens == 3 and .decode.passes == 3'
  expect_json '[.prefill, .decode] | all(.[]; (.kernels | map(.seconds) | add) as $sum |
    $sum > 0.999 * .kernel_seconds and $sum < 1.001 * .kernel_seconds and
    .kernel_seconds <= .pass_seconds and .pass_seconds <= .seconds)'
  expect_json 'all(.decode.kernels[]; .calls > 0 and .floor_seconds >= 0 and .io_bytes > 0)'
  run lab profile -m "$model" --tokens 7 -n 0 --threads 1 --cache cache
  expect_rc 0
  expect_in out "prefill: 7 tokens in 1 passes"
  expect_in out "all kernels"
  if grep -q '^decode' out; then fail "a decode of no tokens is shown"; fi
}
case_lab_profile_refuses() {
  run lab profile -m "$model" --tokens 7 -p a; expect_error 2 "prompt: given 2 times"
  run lab profile -m "$model" a; expect_error 2 "unexpected argument: a"
  run lab profile -m "$model" --tokens 0; expect_error 2 "--tokens: 0"
  run lab profile -m "$model" -p "" --cache cache; expect_error 2 "prompt: 0 tokens"
  run lab profile -m "$model" --tokens 2000000000; expect_error 1 "prompt: 2000000000 tokens"
  run lab profile -m nosuch; expect_error 1 "nosuch"
}

# ---- captures --------------------------------------------------------------------

case_capture_and_replay() {
  run run -m "$model" -p "$prompt" -n 6
  cp out plain
  run run -m "$model" -p "$prompt" -n 6 --capture hc_mix:0 traces --capture-calls 1
  expect_rc 0
  expect_in err "traces of hc_mix:0 in traces: 2"
  cmp -s out plain || fail "capturing changed the text"
  [ "$(ls traces)" = "$(printf 'hc_mix-0-0.trace\nhc_mix-0-1.trace')" ] || fail "traces has: $(ls traces)"
  run run -m "$model" -p "$prompt" -n 6 --capture moe_up:0 traces --capture-calls 1 --threads 2
  run run -m "$model" -p "$prompt" -n 6 --capture moe_up:0 again --capture-calls 1 --threads 1
  cmp -s traces/moe_up-0-0.trace again/moe_up-0-0.trace || fail "two captures of one call differ"
  run lab replay traces/*.trace
  expect_rc 0
  expect_quiet
  for word in "oracle   x" "captured x" "captured h h_shared"; do expect_in out "$word"; done
  tail -n 1 out | grep -q '^ALL PASS \([0-9]*\)/\1$' || fail "the last line is '$(tail -n 1 out)'"
}
case_capture_refuses() {
  run run -m "$model" -p a --capture hc_mix; expect_error 2 "--capture: one value"
  run run -m "$model" -p a --capture; expect_error 2 "--capture: no value"
  run run -m "$model" -p a --capture nosuch d; expect_error 2 "capture: nosuch"
  run run -m "$model" -p a --capture hc_mix:99 d; expect_error 2 "capture: layer 99"
  run run -m "$model" -p a --capture hc_mix:x d; expect_error 2 "--capture: x"
  run run -m "$model" -p a --capture hc_mix: d; expect_error 2 "OP or OP:LAYER"
  run run -m "$model" -p a --capture-calls 2; expect_error 2 "without --capture"
  run run -m "$model" -p a --capture hc_mix d --capture-calls 0; expect_error 2 "--capture-calls: 0"
  [ ! -e d ] || fail "a refused capture made a folder"
  run run -m "$model" -p a -n 1 --capture hc_mix:0 twice
  run run -m "$model" -p a -n 1 --capture hc_mix:0 twice; expect_error 2 "hc_mix-0-0.trace: it is there already"
  # The text is there; that nothing was captured is said after it.
  run run -m "$model" -p a -n 1 --capture qsa_attn none
  expect_rc 2
  expect_in err "qsa_attn: not called in this run"
}
case_replay_refuses() {
  run run -m "$model" -p a -n 1 --capture hc_mix:0 r --capture-calls 1
  run run -m "$model" -p a -n 1 --capture hc_norm:0 r --capture-calls 1
  trace=r/hc_mix-0-0.trace
  run lab replay; expect_error 2 "no trace"
  run lab replay nosuch.trace; expect_error 2 "nosuch.trace"
  run lab replay "$model/config.json"; expect_error 2 "a trace expected"
  head -c 700 $trace >cut.trace
  run lab replay cut.trace; expect_error 2 "cut.trace: 700 bytes"
  { head -c 1000 $trace; printf '\377\376\375'; tail -c +1004 $trace; } >edited.trace
  run lab replay edited.trace; expect_error 2 "an unchanged file expected"
  run lab replay $trace --kernel nosuch; expect_error 2 "nosuch: a variant of hc_mix"
  run lab replay $trace r/hc_norm-0-0.trace --kernel scalar; expect_error 2 "a call of hc_norm"
  run lab replay $trace --time; expect_error 2 "without --kernel"
  run lab replay $trace --base scalar; expect_error 2 "without --time"
}
# A candidate that is as good, one that is not, one that crashes, one that hangs.
case_replay_of_a_file() {
  need cc && need jq || return
  run run -m "$model" -p "$prompt" -n 1 --capture hc_mix:0 f --capture-calls 1
  source=$model/../../kernels/hc_mix/hc_mix.c trace=f/hc_mix-0-0.trace
  run lab replay $trace --kernel "$source"
  expect_rc 0
  expect_in out "ALL PASS 2/2"
  sed 's/int64_t begin, end;/int64_t begin, end; if (part == 0) a->x[3] = 1e9f;/
       s/begin += n;/begin += n; a->x[3] = 1e9f;/' "$source" >wrong.c
  run lab replay $trace --kernel ./wrong.c
  expect_rc 1
  expect_in out "FAILED 2/2"
  expect_in out "x differs, first at 3, 1 of"
  run lab replay $trace --kernel ./wrong.c --json
  expect_rc 1
  expect_json '.failed == 2 and .traces[0].kernels[0].captured.buffers[0].first == 3'
  sed 's/int64_t begin, end;/int64_t begin, end; *(volatile int *)8 = 1;/' "$source" >crash.c
  run lab replay $trace --kernel ./crash.c
  expect_rc 1
  expect_in out "crashed: SIGSEGV"
  sed 's/int64_t begin, end;/int64_t begin, end; for (volatile int i = 0;;) i = 0;/' "$source" >hang.c
  run lab replay $trace --kernel ./hang.c --deadline 0.5
  expect_rc 1
  expect_in out "hung: killed after 0.5 seconds"
  run lab replay $trace --time --kernel "$source" --base "$source"; expect_error 2 "differs from the base"
  # More rounds than fit into the time.
  echo '{"min_rounds": 10000, "max_rounds": 10000}' >rule.json
  run lab replay $trace --time --kernel scalar --base "$source" --deadline 5 --rule rule.json
  expect_rc 3
  expect_in err "no verdict: "
  run lab replay $trace --time --kernel scalar --base "$source" --deadline 10 --json
  expect_json '.traces[0].timing | .rounds >= 1 and .base_seconds > 0 and .kernel.ratio > 0 and .null.ratio > 0'
}

case_broken_pipe() {
  "$strata" run -m "$model" -p "$prompt" -n 100000 --ignore-eos 2>err | head -c 4 >/dev/null
  rc=${PIPESTATUS[0]}
  expect_rc 1
  expect_quiet
  "$strata" logits -m "$model" --ids "$(first_ids 1-200)" --top 100 2>err | head -c 4 >/dev/null
  rc=${PIPESTATUS[0]}
  expect_rc 1
  expect_quiet
}

case_full_disk() {
  [ -c /dev/full ] || { skip "there is no /dev/full"; return; }
  : >out
  "$strata" tokenize -m "$model" hello >/dev/full 2>err
  rc=$?
  expect_error 1 "standard output"
}

case_interrupt_run() {
  "$strata" run -m "$model" -p "$prompt" -n 100000 --ignore-eos >out 2>err </dev/null &
  pid=$!
  wait_until has_bytes out
  kill -INT $pid
  wait $pid
  rc=$?
  expect_rc 130
  expect_quiet
  [ "$(tail -c 1 out | wc -l)" -eq 1 ] || fail "the text does not end with a newline"
}

case_interrupt_json() {
  need jq || return
  "$strata" run -m "$model" -p "$prompt" -n 100000 --ignore-eos --json >out 2>err </dev/null &
  pid=$!
  sleep 1
  kill -INT $pid
  wait $pid
  rc=$?
  expect_rc 130
  [ ! -s out ] || expect_json '.stop == "interrupted"'
}

case_interrupt_while_reading() {
  mkfifo fifo
  "$strata" run -m "$model" - <fifo >out 2>err &
  pid=$!
  exec 3>fifo
  sleep 0.5
  kill -INT $pid
  wait $pid
  rc=$?
  exec 3>&-
  rm -f fifo
  expect_rc 130
  expect_quiet
}

case_interrupt_leaves_no_file() {
  mkdir -p left
  make_many_ids
  "$strata" logits -m "$model" --ids @many --window 1 --out left/logits >out 2>err </dev/null &
  pid=$!
  wait_until has_temporary left
  kill -INT $pid
  wait $pid
  rc=$?
  expect_rc 130
  expect_quiet
  [ ! -s out ] || fail "an interrupted run printed $(head -c 100 out)"
  rmdir left || fail "left behind: $(ls left)"
}

# Runs the program with stderr on a terminal for at least two seconds.
on_terminal() {
  make_many_ids
  env ${1:+"$1"} timeout -s INT 3 script -qec \
    "'$strata' logits -m '$model' --ids @many --window 1" /dev/null >terminal 2>/dev/null </dev/null
}

case_progress_on_a_terminal() {
  need script && need timeout && need_terminals || return
  on_terminal
  expect_in terminal "running"
  grep -qF "$(printf '\033[32m')" terminal || fail "the bar is not coloured"
}

case_no_color() {
  need script && need timeout && need_terminals || return
  on_terminal NO_COLOR=1
  expect_in terminal "running"
  ! grep -qF "$(printf '\033')" terminal || fail "NO_COLOR is set and there is an escape"
}

# ---- run all -------------------------------------------------------------------

n_passed=0 n_failed=0 n_skipped=0
for function in $(declare -F | awk '$3 ~ /^case_/ { print $3 }'); do
  name=${function#case_} reason='' verdict=''
  $function
  case $verdict in
    fail) echo "not ok $name: $reason"; n_failed=$((n_failed + 1)) ;;
    skip) echo "skip $name: $reason"; n_skipped=$((n_skipped + 1)) ;;
    *) echo "ok $name"; n_passed=$((n_passed + 1)) ;;
  esac
done
echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ $n_failed -eq 0 ]
