#!/usr/bin/env bash
# Writes real English text for demos and benchmarks: the King James Bible from Debian's bible-kjv, one verse a line,
# without verse numbers. usage: make_corpus.sh FOLDER -> FOLDER/train.txt (95%), FOLDER/valid.txt (the last 5%)
set -euo pipefail
folder=${1:?usage: make_corpus.sh FOLDER}
[[ ! -s $folder/train.txt || ! -s $folder/valid.txt ]] || exit 0
command -v bible >/dev/null || {
  echo "make_corpus: the program 'bible' is missing; install Debian's bible-kjv (./dev setup)" >&2
  exit 2
}
mkdir -p "$folder"
whole=$folder/kjv.tmp.$$
trap 'rm -f "$whole" "$whole".*' EXIT
bible -f gen1:1-rev22:21 </dev/null | sed -E 's/^[0-9A-Za-z]+:[0-9]+ //' >"$whole"
verses=$(wc -l <"$whole")
((verses == 31102)) || {
  echo "make_corpus: found $verses verses, expected 31102" >&2
  exit 1
}
head -n 29547 "$whole" >"$whole.train"
tail -n +29548 "$whole" >"$whole.valid"
mv "$whole.train" "$folder/train.txt"
mv "$whole.valid" "$folder/valid.txt"
