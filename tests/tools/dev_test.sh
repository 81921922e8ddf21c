#!/usr/bin/env bash
# What ./dev and tools/make_corpus.sh promise without building anything: help, refusals, use from any folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
failures=0

# expect CODE TEXT COMMAND...: the exit code, and a text in what it prints.
expect() {
  local code=$1 text=$2 found=0
  shift 2
  "$@" >"$scratch/out" 2>&1 || found=$?
  if [[ $found != "$code" ]] || { [[ -n $text ]] && ! grep -qF -- "$text" "$scratch/out"; }; then
    echo "$*: exit $found, expected $code and '$text' in:" && cat "$scratch/out"
    failures=$((failures + 1))
  fi
}

expect 0 "usage: ./dev COMMAND" "$root/dev"
expect 0 "fuzz [SECONDS]" "$root/dev" help
expect 2 "unknown command 'tset'" "$root/dev" tset
expect 2 "unknown preset 'fast'; expected one of: release cuda debug asan tsan" "$root/dev" build fast
expect 2 "--inputs is 'many'; expected a number" "$root/dev" fuzz --inputs many
expect 2 "found '--updte'; expected --update" "$root/dev" passes --updte
expect 2 "unknown check 'spelling'; expected format, includes or tidy" "$root/dev" lint spelling
expect 1 "usage: make_corpus.sh FOLDER" "$root/tools/make_corpus.sh"
if command -v bible >/dev/null; then
  expect 0 "" "$root/tools/make_corpus.sh" corpus
  expect 0 "31102 " wc -l corpus/train.txt corpus/valid.txt
  expect 0 "In the beginning God created the heaven and the earth." head -n 1 corpus/train.txt
  expect 0 "The grace of our Lord Jesus Christ be with you all. Amen." tail -n 1 corpus/valid.txt
fi
exit $((failures > 0))
