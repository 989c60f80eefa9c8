#!/usr/bin/env bash
# The laws of the tree, checked: which layer may include which, unique file
# names, file lengths, calls that are banned outside their one home.
#
# Prints "ok LAW" or "not ok LAW" with a "# FILE:LINE: what is wrong" for each
# finding. Comments and strings are not looked at, except the name in #include.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C

findings=$(mktemp) || exit 1
trap 'rm -f "$findings"' EXIT
n_failed=0
report() {
  if [ -s "$findings" ]; then
    echo "not ok $1"
    sort -t: -k1,1 -k2,2n "$findings" | sed 's/^/# /'
    n_failed=$((n_failed + 1))
  else
    echo "ok $1"
  fi
}

mapfile -t sources < <(find src lab cli kernels include -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' | sort)
[ ${#sources[@]} -gt 0 ] || { echo "not ok there are no sources"; exit 1; }

# ---- layers ----------------------------------------------------------------------
# A rule is "layer: the layers it may include besides itself". Two layers are not
# folders of src: "contract" is kernels/OP/ and ops.inc, "common" is kernels/common.
awk '
  BEGIN {
    rule["core"] = "strata"
    rule["os"] = "core strata"
    rule["contract"] = "common kernel.h"
    rule["common"] = "kernel.h"
    rule["kreg"] = "core os contract kernel.h strata"
    rule["kload"] = "core os kreg kernel.h strata"
    rule["device"] = "core os kreg contract kernel.h strata"
    rule["runtime"] = "core os kreg contract device kernel.h strata"
    rule["model"] = "core os kreg contract common device runtime kernel.h strata"
    rule["lab"] = "core os kreg kload contract device kernel.h strata"
    rule["cli"] = "os strata"
    rule["strata"] = ""
    for (layer in rule) {
      n = split(rule[layer], names, " ")
      may[layer, layer] = 1
      for (i = 1; i <= n; i++) may[layer, names[i]] = 1
    }
    rule["kernel.h"] = ""
  }
  function layer_of_file(path, part) {
    split(path, part, "/")
    if (part[1] == "src") return part[2]
    if (part[1] == "kernels") return part[2] == "common" ? "common" : "contract"
    return part[1] == "include" ? "strata" : part[1]
  }
  function layer_of_include(name, part, n) {
    if (name == "strata/kernel.h") return "kernel.h"
    if (name ~ /^strata\//) return "strata"
    if (name == "ops.inc" || name == "cuda.inc") return "contract"
    n = split(name, part, "/")
    if (n == 1) return name ~ /^cli_/ ? "cli" : "unknown"
    if (part[1] == "common" || part[1] == "tests") return part[1]
    return part[1] in rule ? part[1] : "contract"
  }
  /^[ \t]*#[ \t]*include[ \t]*["<]/ {
    from = layer_of_file(FILENAME)
    name = $0
    sub(/^[^"<]*["<]/, "", name)
    sub(/[">].*/, "", name)
    if ($0 ~ /</ && name !~ /^strata\//) next # the C library and others
    if (!(from in rule)) { print FILENAME ":" FNR ": no rule for the layer " from " (tools/check_layers.sh)"; next }
    to = layer_of_include(name)
    ok = (from, to) in may
    # A kernel sees only the contract of its own op.
    if (from == "contract" && to == "contract") {
      split(FILENAME, part, "/")
      ok = index(name, part[2] "/") == 1
    }
    # A step is a scan of one token; one contract has four ops.
    if (FILENAME ~ /kernels\/gdn_step\// && name ~ /^gdn_scan\//) ok = 1
    # The one launch of a decoded token is three ops.
    if (FILENAME ~ /kernels\/gdn_decode\// && name ~ /^gdn_(pre|step|post)\//) ok = 1
    if (FILENAME ~ /kernels\/qsa_(flash|decode|merge)\// && name ~ /^qsa_(attn|decode)\//) ok = 1
    if (from == "cli" && name == "core/st_error.h") ok = 1
    # One file of the laboratory looks into models as they run; a captured call is read
    # as the engine wrote it.
    if (FILENAME ~ /^lab\/lab_profile[.][ch]$/ && (to == "runtime" || to == "model")) ok = 1
    if (from == "lab" && name == "runtime/st_trace.h") ok = 1
    # The commands of the laboratory see it.
    if (FILENAME ~ /^cli\/(cli|cmd)_lab[a-z_]*[.][ch]$/ && (to == "lab" || to == "kreg")) ok = 1
    if (!ok) print FILENAME ":" FNR ": includes " name ", which layer " from " may not"
  }' "${sources[@]}" >"$findings"
report "layers"

# ---- names and lengths -------------------------------------------------------------
# An error message "st_file.c:41" needs no path.
find src lab cli kernels include tests tools \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.sh' \) -print |
  awk '{ name = $0; sub(/.*\//, "", name)
         if (name in first) print $0 ":1: has the name of " first[name]
         else first[name] = $0 }' >"$findings"
report "unique file names"

wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 1500 { print $2 ":" $1 ": longer than 1500 lines" }' >"$findings"
report "file lengths"
wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 800 && $1 <= 1500 { print "# note: " $2 " has " $1 " lines; 800 are plenty" }'

# ---- banned calls ------------------------------------------------------------------
awk '
  BEGIN {
    n = split("strcpy strcat sprintf vsprintf strtok atoi alloca system popen rand srand", names, " ")
    for (i = 1; i <= n; i++) home[names[i]] = "^$"
    home["getenv"] = "^src/os/"
    home["exit"] = home["_Exit"] = home["abort"] = "^cli/main[.]c$"
    home["_exit"] = "^src/os/st_child[.]c$" # the end of a forked child
  }
  # The code of a line: comments and the insides of strings taken out.
  function code_of(text, code, end) {
    code = ""
    gsub(/\\./, "", text) # escapes, so that a string ends at its quote
    while (text != "") {
      if (in_comment) {
        end = index(text, "*/")
        if (!end) return code
        in_comment = 0
        text = substr(text, end + 2)
      } else if (!match(text, /"[^"]*"|\/\*|\/\//)) {
        return code text
      } else {
        code = code substr(text, 1, RSTART - 1) " "
        if (substr(text, RSTART, 2) == "//") return code
        if (substr(text, RSTART, 1) != "\"") in_comment = 1
        text = substr(text, RSTART + RLENGTH)
      }
    }
    return code
  }
  FNR == 1 { in_comment = 0 }
  {
    text = code_of($0)
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/)) {
      before = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
      name = substr(text, RSTART, RLENGTH)
      sub(/[ \t]*\($/, "", name)
      text = substr(text, RSTART + RLENGTH)
      if (before != "." && before != ">" && name in home && FILENAME !~ home[name])
        print FILENAME ":" FNR ": calls " name
    }
  }' "${sources[@]}" >"$findings"
report "banned calls"

[ $n_failed -eq 0 ]
