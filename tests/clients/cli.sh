#!/usr/bin/env bash
# Runs redis-cli and compares its output with the transcripts in cli/, which must match exactly. A transcript has comments
# (`# `), input lines (`> `), and below these the output. Consecutive input lines are passed to one redis-cli, so that MULTI
# and EXEC are in one session.
#
#   cli.sh PORT    the port of a server with the module, whose data is deleted
set -euo pipefail

port=${1:?the port of a server with the module}
folder=$(dirname "${BASH_SOURCE[0]}")/cli
scratch=$(mktemp -d "${TMPDIR:-/tmp}/bloomgate-cli.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# type_in OPTION...: passes the collected input to redis-cli with these options.
typed=''
type_in() {
  if [ -n "$typed" ]; then
    printf '%s' "$typed" | redis-cli -p "$port" "$@" 2>&1
    typed=''
  fi
}

# replay TRANSCRIPT OPTION...: prints the transcript with the current output of redis-cli with these options.
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

# Replaces sizes in bytes, which are not compared.
without_sizes() {
  sed -E -e '/Size$/{n' -e 's/[0-9]+$/N/' -e '}' -e 's/(Size => \(integer\) |"Size":)[0-9]+/\1N/'
}

# compare TRANSCRIPT OPTION...: whether redis-cli with these options prints the transcript.
compare() {
  local transcript=$folder/$1
  shift
  redis-cli -p "$port" FLUSHALL >/dev/null
  replay "$transcript" "$@" | without_sizes >"$scratch/now"
  if ! diff -u "$transcript" "$scratch/now"; then
    printf 'the output of redis-cli %s differs from %s (+ is the current output)\n' "$*" "$transcript" >&2
    return 1
  fi
  printf 'redis-cli %s: %s lines of input, output as in %s\n' \
    "$*" "$(grep -c '^> ' "$transcript")" "$(basename "$transcript")"
}

compare resp2.txt --no-raw
compare resp3.txt -3 --no-raw
compare raw.txt --raw
compare json.txt -3 --json
