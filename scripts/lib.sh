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

# mariadb_in FOLDER PORT OPTION...: creates the data of a MariaDB in a folder, and becomes its server. Its user root has no password.
mariadb_in() {
  local home=$1 port=$2 settings=(--no-defaults --datadir="$1/data")
  shift 2
  # MariaDB refuses to run as root unless it is told to.
  [ "$(id -u)" -ne 0 ] || settings+=(--user=root)
  # A server that starts deletes the temporary tables in this folder, which would be everyone's.
  export TMPDIR=$home
  mariadb-install-db "${settings[@]}" --skip-test-db --auth-root-authentication-method=normal || exit
  exec ${with_parent[@]+"${with_parent[@]}"} mariadbd "${settings[@]}" --socket="$home/socket" --bind-address=127.0.0.1 --port="$port" \
    --log-bin=binlog --binlog-format=ROW "$@"
}

# at_least FOUND WANTED: whether version FOUND is WANTED or newer.
at_least() {
  [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# wanted FILE PATTERN: prints the group of the pattern where it first matches in a file of the project.
wanted() {
  sed -n "s/$2/\\1/p" "$root/$1" | head -n 1
}

# The project's version, and the minimum version of Rust.
version() { wanted Cargo.toml '^version = "\(.*\)"'; }
rust_wanted() { wanted Cargo.toml '^rust-version = "\(.*\)"'; }

rust_is_recent() {
  have cargo && at_least "$(cargo --version 2>/dev/null | cut -d ' ' -f 2)" "$(rust_wanted)"
}

# Adds PostgreSQL's programs, each version of which Debian installs into its own folder and Homebrew outside the PATH, and /usr/sbin, where
# MariaDB's server is.
use_databases() {
  local folder
  for folder in /opt/homebrew/opt/postgresql* /usr/local/opt/postgresql* /usr/lib/postgresql/*; do
    ! [ -x "$folder/bin/initdb" ] || case :$PATH: in *":$folder/bin:"*) ;; *) PATH=$folder/bin:$PATH ;; esac
  done
  have mariadbd || PATH=$PATH:/usr/sbin
}

# Makes what scripts/setup installed outside the PATH of the calling shell available.
use_installed() {
  if ! rust_is_recent; then
    [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH=$HOME/.cargo/bin:$PATH
    # If the default toolchain is too old, use stable for this run and leave the default unchanged.
    if have rustup && ! rust_is_recent; then
      export RUSTUP_TOOLCHAIN=stable
    fi
  fi
  use_databases
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

cd "$root" || exit
