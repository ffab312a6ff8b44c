#!/usr/bin/env bash
# Types commands into redis-cli and compares what it prints, to the letter, with the transcripts in cli/. Such a file is
# a session: comments (`# `), lines that are typed (`> `), and below what they print. Lines that are typed one after
# the other go into one redis-cli, so that MULTI and EXEC meet.
#
#   cli.sh PORT    of a server with the module, whose data is lost
set -euo pipefail

port=${1:?the port of a server with the module}
folder=$(dirname "${BASH_SOURCE[0]}")/cli
scratch=$(mktemp -d "${TMPDIR:-/tmp}/bloomgate-cli.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# type_in WORD...: types what was collected into redis-cli, started with the words.
typed=''
type_in() {
  if [ -n "$typed" ]; then
    printf '%s' "$typed" | redis-cli -p "$port" "$@" 2>&1
    typed=''
  fi
}

# replay TRANSCRIPT WORD...: prints the transcript anew, with what redis-cli, started with the words, prints now.
replay() {
  local transcript=$1 line
  shift
  while IFS= read -r line; do
    case $line in
    '> '*)
      typed+=${line#> }$'\n'
      printf '%s\n' "$line"
      ;;
    '# '*)
      type_in "$@"
      printf '%s\n' "$line"
      ;;
    *) type_in "$@" ;;
    esac
  done <"$transcript"
  type_in "$@"
}

# Sizes in bytes are none of a transcript's business.
without_sizes() {
  sed -E -e '/Size$/{n' -e 's/[0-9]+$/N/' -e '}' -e 's/(Size => \(integer\) |"Size":)[0-9]+/\1N/'
}

# compare TRANSCRIPT WORD...: whether redis-cli, started with the words, still prints what the transcript says.
compare() {
  local transcript=$folder/$1
  shift
  redis-cli -p "$port" FLUSHALL >/dev/null
  replay "$transcript" "$@" | without_sizes >"$scratch/now"
  if ! diff -u "$transcript" "$scratch/now"; then
    printf 'redis-cli %s prints something else than %s says (+ is what it prints now)\n' "$*" "$transcript" >&2
    return 1
  fi
  printf 'redis-cli %s: %s lines typed, every answer as in %s\n' \
    "$*" "$(grep -c '^> ' "$transcript")" "$(basename "$transcript")"
}

compare resp2.txt --no-raw
compare resp3.txt -3 --no-raw
compare raw.txt --raw
compare json.txt -3 --json
