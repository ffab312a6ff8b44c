# shellcheck shell=bash
# Sourced by the other scripts: paths, messages, and the environment that the build needs. Sourcing it starts nothing and
# changes nothing on the machine; scripts/setup installs things.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Where cargo builds.
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

# fail LINE...: prints the reason on stderr and exits with status 1.
fail() {
  {
    printf '\n%s: %s\n' "$(basename "$0")" "$1"
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@"
  } >&2
  exit 1
}

# skip LINE...: prints what is missing and exits with status 77, which means neither success nor failure.
skip() {
  say "SKIPPED: $1"
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@"
  exit 77
}

have() {
  command -v "$1" >/dev/null 2>&1
}

# free_port FIRST: prints a free port of 127.0.0.1, FIRST or the next one on which nothing listens.
free_port() {
  local port=$1
  while (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  say "$port"
}

# With setpriv (Linux) a background process exits with the script, even if the script is killed with SIGKILL.
# shellcheck disable=SC2034  # the scripts that start processes use it
if have setpriv; then with_parent=(setpriv --pdeathsig TERM); else with_parent=(); fi

# within_a_minute WHAT LOG COMMAND...: waits until the command succeeds.
within_a_minute() {
  local what=$1 log=$2 waited=0
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$waited" -lt 600 ] || fail "$what within a minute; the end of its log:" "$(tail -n 8 "$log")"
    sleep 0.1
    waited=$((waited + 1))
  done
}

# at_least FOUND WANTED: whether version FOUND is WANTED or newer. Compares number by number: 1.95.0 with 1.90.
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

# Prints the project's version.
version() {
  sed -n '/^\[workspace.package\]/,/^\[.*\]$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1
}

# Prints the minimum version of Rust, from Cargo.toml.
rust_wanted() {
  sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml"
}

rust_is_recent() {
  have cargo || return 1
  at_least "$(cargo --version 2>/dev/null | cut -d ' ' -f 2)" "$(rust_wanted)"
}

# Prints the minimum version of node for the TypeScript package, from its package.json.
node_wanted() {
  sed -n 's/.*"node": ">=\([0-9.]*\)".*/\1/p' "$root/clients/typescript/package.json"
}

# Prints the minimum version of Go for the module in clients/go, from its go.mod.
go_wanted() {
  sed -n 's/^go //p' "$root/clients/go/go.mod"
}

go_is_recent() {
  local version
  have go || return 1
  version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null)
  at_least "${version#go}" "$(go_wanted)"
}

# postgres_folder: prints the folder with PostgreSQL's programs, or fails. Debian installs each version into its own folder, and
# Homebrew outside the PATH. The newest version comes last.
postgres_folder() {
  local program newest=''
  for program in "$(command -v initdb)" /opt/homebrew/opt/postgresql*/bin/initdb /usr/local/opt/postgresql*/bin/initdb \
    /usr/lib/postgresql/*/bin/initdb; do
    [ ! -x "$program" ] || newest=${program%/initdb}
  done
  [ -n "$newest" ] && say "$newest"
}

# mariadb_server: prints the path of MariaDB's server, or fails. Debian installs it into /usr/sbin, which is not on everyone's PATH.
mariadb_server() {
  PATH=$PATH:/usr/sbin command -v mariadbd
}

# run_cases TITLE WORDS...: runs the cases of clients/specification; the words are options and, after --, the adapter's command.
run_cases() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    skip "the cases of clients/specification: their runner needs python3 3.10 or newer" "scripts/setup --test installs it"
  python3 -B "$root/clients/specification/runner" --title "$@"
}

have_nightly() {
  have rustup && rustup run nightly cargo --version >/dev/null 2>&1
}

# Miri also interprets the standard library, so it needs its source.
have_miri() {
  have_nightly && rustup run nightly cargo miri --version >/dev/null 2>&1 &&
    [ -d "$(rustup run nightly rustc --print sysroot)/lib/rustlib/src" ]
}

# Makes what scripts/setup installed outside the PATH of the calling shell available.
use_installed() {
  if ! rust_is_recent; then
    if [ -x "$HOME/.cargo/bin/cargo" ]; then
      PATH=$HOME/.cargo/bin:$PATH
    fi
    # If the default toolchain is too old, use stable for this run and leave the default unchanged.
    if have rustup && ! rust_is_recent; then
      export RUSTUP_TOOLCHAIN=stable
    fi
  fi
  # scripts/setup installs cargo-fuzz here.
  PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
  if have brew && [ -z "${LIBCLANG_PATH:-}" ] && [ -d "$(brew --prefix)/opt/llvm/lib" ]; then
    LIBCLANG_PATH=$(brew --prefix)/opt/llvm/lib
    export LIBCLANG_PATH
  fi
  # A test checks that this server refuses the module.
  if [ -z "${BLOOMGATE_OLD_SERVER:-}" ] && [ -x "$servers/redis-6.2.5/redis-server" ]; then
    export BLOOMGATE_OLD_SERVER=$servers/redis-6.2.5/redis-server
  fi
}

# Prints the servers of BLOOMGATE_SERVERS, or else of the PATH, one per line. A program with several names is printed once.
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

# installed_servers: prints the servers that scripts/setup --test installed.
installed_servers() {
  local program
  for program in "$servers"/redis-[78]*/* "$servers"/valkey-*/*; do [ ! -x "$program" ] || say "$program"; done
}

# use_every_server: unless BLOOMGATE_SERVERS is set, sets it to the servers of the PATH and those that scripts/setup --test installed.
use_every_server() {
  [ -n "${BLOOMGATE_SERVERS:-}" ] || BLOOMGATE_SERVERS=$({ list_servers && installed_servers; } | paste -sd : -)
  export BLOOMGATE_SERVERS
}

# use_other_servers: sets BLOOMGATE_SERVERS to the servers that scripts/setup --test installed, if there are any.
use_other_servers() {
  local others
  others=$(installed_servers | paste -sd : -)
  [ -z "$others" ] || export BLOOMGATE_SERVERS=$others
}

# may_mount: whether this user may mount a file system.
may_mount() {
  local folder status=0
  folder=$(mktemp -d)
  mount -t tmpfs -o size=1m none "$folder" 2>/dev/null && umount "$folder" || status=1
  rmdir "$folder"
  return $status
}

# any_server_defragments: whether one of the servers was built with active defragmentation. A server without it rejects the
# first line; the second, invalid line stops the others from starting.
any_server_defragments() {
  local program
  while read -r program; do
    # The server itself fails, so its output is matched apart from the pipe, whose status would be the server's.
    case $(printf 'activedefrag yes\nport none\n' | "$program" - 2>&1 || true) in *'port none'*) return 0 ;; esac
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

# may_have_huge_pages: whether processes get huge pages where they ask for them, and can collapse pages into one (Linux 6.1).
may_have_huge_pages() {
  grep -qs '\[madvise\]' /sys/kernel/mm/transparent_hugepage/enabled && at_least "$(uname -r)" 6.1
}

# find_unavailable: sets `unavailable` to the `--skip` options for those ignored tests that this machine cannot run because a
# library, a server, an operating system or a permission is missing, and prints what is missing.
find_unavailable() {
  unavailable=()
  [ -n "${BLOOMGATE_PEERS:-}" ] ||
    leave_out "tests beside RedisBloom itself: BLOOMGATE_PEERS names no folder with its libraries" peers:: redisbloom_itself
  [ -n "${BLOOMGATE_OLD_SERVER:-}" ] || leave_out "a server older than 7.0: BLOOMGATE_OLD_SERVER names none" older_than_7
  [ -n "${BLOOMGATE_GOLDEN:-}" ] || leave_out "golden data of a new release: BLOOMGATE_GOLDEN is not set" data_of_this_version_is_written
  [ -n "${BLOOMGATE_OTHER_SERVER:-}" ] || leave_out "a replica on another processor: it is a part of scripts/package --test-libraries" \
    on_another_processor
  may_mount || leave_out "full disks: this user may not mount a file system" disk::
  any_server_defragments || leave_out "active defragmentation: no server has it" defragmentation:: values_that_the_server_defragments
  any_server_migrates_slots || leave_out "CLUSTER MIGRATESLOTS: no server is Valkey 9" slot_migration_copies_every_filter \
    no_add_is_lost_while_slots_migrate
  may_have_huge_pages || leave_out "huge pages: they need Linux 6.1, and the setting madvise" huge_pages::huge_pages_
  [ -e /usr/lib/galera/libgalera_smm.so ] || leave_out "Galera: its library is missing" a_node_of_galera
  [ "$(uname -s)" = Linux ] || leave_out "tests that read /proc or preload a library: this is not Linux" clock:: \
    one_thread_frees without_a_limit_it_is holds_a_record_once q_restores_the_terminal
}

# leave_out REASON NAME...: leaves out the tests whose names contain one of the NAMEs.
leave_out() {
  local name
  say "SKIPPED: $1"
  for name in "${@:2}"; do unavailable+=(--skip "$name"); done
}

# start_servers_with FOLDER COMMAND: for each server of BLOOMGATE_SERVERS, or else of the PATH, writes a wrapper into FOLDER
# that runs `COMMAND PROGRAM ARGUMENTS...`, and sets BLOOMGATE_SERVERS to the wrappers.
start_servers_with() {
  local folder=$1 command=$2 programs=() program wrapper
  while read -r program; do programs+=("$program"); done < <(list_servers)
  [ ${#programs[@]} -gt 0 ] || fail "no redis-server or valkey-server on the PATH, and BLOOMGATE_SERVERS is not set"
  BLOOMGATE_SERVERS=
  for program in "${programs[@]}"; do
    # The wrapper has the program's name, because servers inspect the name they are called by.
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

# watch_servers FOLDER COMMAND: runs the servers under a memory checker. The checker replaces malloc, and jemalloc if that is a
# shared library, as on Debian. It cannot see the bounds of blocks of a statically linked jemalloc, so servers with one are
# left out. If no server remains, the script is skipped.
watch_servers() {
  local program kept=''
  while read -r program; do
    if ! ldd "$program" 2>/dev/null | grep -q jemalloc && grep -aq je_malloc_conf "$program"; then
      say "left out: $program is statically linked with jemalloc (a build with MALLOC=libc can be checked)"
    else
      kept+=${kept:+:}$program
    fi
  done < <(list_servers)
  [ -n "$kept" ] || skip "no server here can be checked"
  BLOOMGATE_SERVERS=$kept
  start_servers_with "$@"
  export BLOOMGATE_WATCHED=1
}

cd "$root" || exit
