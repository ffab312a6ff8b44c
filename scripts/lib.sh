# shellcheck shell=bash
# Read by the other scripts with `source`: where things are, how the scripts speak, and the environment that the build
# needs. It starts nothing and changes nothing on the machine; what installs is scripts/setup.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Where cargo builds. A folder of the caller's choice is respected.
target=${CARGO_TARGET_DIR:-$root/target}
case $target in
/*) ;;
*) target=$root/$target ;;
esac

# shellcheck disable=SC2034  # the scripts that read this file use it
case $(uname -s) in
Darwin) module=$target/release/libbloomgate.dylib ;;
*) module=$target/release/libbloomgate.so ;;
esac

# Where scripts/setup --test puts servers.
servers=$target/servers

# Colours on a terminal only.
if [ -t 1 ]; then
  bold=$'\e[1m' plain=$'\e[0m'
else
  bold='' plain=''
fi

headline() {
  printf '\n%s== %s%s\n' "$bold" "$*" "$plain"
}

say() {
  printf '%s\n' "$*"
}

# fail LINE...: says why on the error output and ends the script.
fail() {
  {
    printf '\n%s: %s\n' "$(basename "$0")" "$1"
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@"
  } >&2
  exit 1
}

# skip LINE...: says what is missing here and ends the script with a status that is neither success nor a failed check.
skip() {
  say "SKIPPED: $1"
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@"
  exit 77
}

have() {
  command -v "$1" >/dev/null 2>&1
}

# at_least FOUND WANTED: compares versions number by number, 1.95.0 with 1.90.
at_least() {
  local found wanted part f w
  IFS=. read -r -a found <<<"$1"
  IFS=. read -r -a wanted <<<"$2"
  for part in 0 1 2; do
    f=${found[part]:-0} w=${wanted[part]:-0}
    f=${f%%[!0-9]*} w=${w%%[!0-9]*}
    [ "${f:-0}" -gt "${w:-0}" ] && return 0
    [ "${f:-0}" -lt "${w:-0}" ] && return 1
  done
  return 0
}

# The version of Rust that Cargo.toml asks for.
rust_wanted() {
  sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml"
}

rust_is_recent() {
  have cargo || return 1
  at_least "$(cargo --version 2>/dev/null | cut -d ' ' -f 2)" "$(rust_wanted)"
}

have_nightly() {
  have rustup && rustup run nightly cargo --version >/dev/null 2>&1
}

# Miri interprets the standard library, too, and needs its source.
have_miri() {
  have_nightly && rustup run nightly cargo miri --version >/dev/null 2>&1 &&
    [ -d "$(rustup run nightly rustc --print sysroot)/lib/rustlib/src" ]
}

# What setup may have installed outside the PATH of the calling shell.
use_installed() {
  if ! rust_is_recent; then
    if [ -x "$HOME/.cargo/bin/cargo" ]; then
      PATH=$HOME/.cargo/bin:$PATH
    fi
    # A default toolchain that is too old stays the default; here the stable one is taken.
    if have rustup && ! rust_is_recent; then
      export RUSTUP_TOOLCHAIN=stable
    fi
  fi
  # Where setup has cargo-fuzz put.
  PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
  if have brew && [ -z "${LIBCLANG_PATH:-}" ] && [ -d "$(brew --prefix)/opt/llvm/lib" ]; then
    LIBCLANG_PATH=$(brew --prefix)/opt/llvm/lib
    export LIBCLANG_PATH
  fi
  # A test shows that this one refuses the module.
  if [ -z "${BLOOMGATE_OLD_SERVER:-}" ] && [ -x "$servers/redis-6.2.5/redis-server" ]; then
    export BLOOMGATE_OLD_SERVER=$servers/redis-6.2.5/redis-server
  fi
}

# The servers of BLOOMGATE_SERVERS, or of the PATH, a line each; one program that is found by several names counts once.
list_servers() {
  local folder name found seen='' real
  if [ -n "${BLOOMGATE_SERVERS:-}" ]; then
    tr ':' '\n' <<<"$BLOOMGATE_SERVERS" | sed '/^$/d'
    return
  fi
  while read -r folder; do
    for name in redis-server valkey-server; do
      found=$folder/$name
      [ -x "$found" ] || continue
      real=$(readlink -f "$found")
      case $seen in
      *":$real:"*) continue ;;
      esac
      seen=$seen:$real:
      say "$found"
    done
  done < <(tr ':' '\n' <<<"$PATH")
}

# use_every_server: besides those of the PATH the ones that scripts/setup --test brought, where BLOOMGATE_SERVERS names none.
use_every_server() {
  local program found=''
  [ -z "${BLOOMGATE_SERVERS:-}" ] || return 0
  while read -r program; do
    [ ! -x "$program" ] || found+=${found:+:}$program
  done < <(list_servers && printf '%s\n' "$servers"/redis-[78]*/* "$servers"/valkey-*/*)
  export BLOOMGATE_SERVERS=$found
}

# may_mount: whether this user may mount a file system.
may_mount() {
  local folder status=0
  folder=$(mktemp -d)
  mount -t tmpfs -o size=1m none "$folder" 2>/dev/null && umount "$folder" || status=1
  rmdir "$folder"
  return $status
}

# any_server_defragments: whether one of the servers was built with active defragmentation. One that was not refuses the first
# line; the second keeps the others from starting.
any_server_defragments() {
  local program
  while read -r program; do
    if printf 'activedefrag yes\nport none\n' | "$program" - 2>&1 | grep -q "port none"; then return 0; fi
  done < <(list_servers)
  return 1
}

# any_server_migrates_slots: whether one of the servers is Valkey 9.
any_server_migrates_slots() {
  local program
  while read -r program; do
    if "$program" --version | grep -q '^Valkey server v=9'; then return 0; fi
  done < <(list_servers)
  return 1
}

# find_lacking: sets `lacking` to the words that keep the test runner from those ignored tests that need something that is not
# here: a library, a server, a system, a permission. The others can run.
find_lacking() {
  lacking=()
  [ -n "${BLOOMGATE_PEERS:-}" ] || lacking+=(--skip peers:: --skip redisbloom_itself)
  [ -n "${BLOOMGATE_OLD_SERVER:-}" ] || lacking+=(--skip older_than_7)
  may_mount || lacking+=(--skip disk::)
  any_server_defragments || lacking+=(--skip defragmentation:: --skip a_filter_that_is_moved)
  any_server_migrates_slots || lacking+=(--skip every_filter_arrives_as_it_was --skip adds_go_on_while_slots)
  [ "$(uname -s)" = Linux ] ||
    lacking+=(--skip one_thread_frees --skip without_a_limit_it_is --skip holds_a_record_once --skip a_terminal_is_put_back)
}

# start_servers_with FOLDER COMMAND: puts a program into FOLDER for each server of BLOOMGATE_SERVERS, or of the PATH, that
# starts it with `COMMAND PROGRAM WORDS...`, and names these in BLOOMGATE_SERVERS.
start_servers_with() {
  local folder=$1 command=$2 programs=() program wrapper
  while read -r program; do programs+=("$program"); done < <(list_servers)
  [ ${#programs[@]} -gt 0 ] || fail "no redis-server and no valkey-server on the PATH, and BLOOMGATE_SERVERS names none"
  BLOOMGATE_SERVERS=
  for program in "${programs[@]}"; do
    # By the name of the program: servers look at that.
    wrapper=$folder/$((${#BLOOMGATE_SERVERS} + 1))/$(basename "$program")
    mkdir -p "$(dirname "$wrapper")"
    cat >"$wrapper" <<END
#!/bin/sh
exec $command '$program' "\$@"
END
    chmod +x "$wrapper"
    BLOOMGATE_SERVERS+=${BLOOMGATE_SERVERS:+:}$wrapper
  done
  export BLOOMGATE_SERVERS
}

# watch_servers FOLDER COMMAND: starts them with a tool that watches their memory. The tool replaces malloc, also where jemalloc
# is a shared library, as on Debian. In a server with jemalloc inside it would not see where blocks end: such a server is left
# out. If no other is left, the script is skipped.
watch_servers() {
  local program left=''
  while read -r program; do
    if ! ldd "$program" 2>/dev/null | grep -q jemalloc && grep -aq je_malloc_conf "$program"; then
      say "left out: $program has jemalloc inside (built with MALLOC=libc it can be watched)"
    else
      left+=${left:+:}$program
    fi
  done < <(list_servers)
  [ -n "$left" ] || skip "no server that can be watched is here"
  BLOOMGATE_SERVERS=$left
  start_servers_with "$@"
  export BLOOMGATE_WATCHED=1
}

cd "$root" || exit
