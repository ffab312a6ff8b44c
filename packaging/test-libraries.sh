# shellcheck shell=bash
# Sourced by scripts/package --test-libraries after it has built the libraries: loads each in servers that need the oldest and the
# newest C libraries that Debian has, on musl and on both processors, and runs a part of the server tests there. On the other processor
# it also runs the tests of the filter, and uses the .deb packages.

: "${packages:?scripts/package sources this file}" "${zig:?}" "${root:?}" "${cross:?}" "${files:?}"

# shellcheck source-path=SCRIPTDIR source=test-debian.sh
source packaging/test-debian.sh

trees=$packages/trees
left_out=()

# leave_out LINE: notes a part that this machine cannot run.
leave_out() {
  say "  not run: $1"
  left_out+=("$1")
}

# debian_tree PROCESSOR SUITE PACKAGE...: unpacks packages of a Debian with everything that they depend on, and sets `tree`.
debian_tree() {
  local processor=$1 suite=$2 architecture=amd64
  shift 2
  [ "$processor" = x86_64 ] || architecture=arm64
  tree=$trees/$suite-$architecture
  [ ! -e "$tree.built" ] || return 0
  rm -rf "$tree"
  mkdir -p "$trees"
  say "  unpacking $* of $suite for $architecture into ${tree#"$root"/}"
  # A mirror of sid may be older than the signature on its list allows.
  mmdebstrap --quiet --variant=extract --architectures="$architecture" --include="$(paste -sd , - < <(printf '%s\n' "$@"))" \
    --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$tree" >"$tree.log" 2>&1 || return
  touch "$tree.built"
}

# write_server NAME PROCESSOR PROGRAM: writes a wrapper that runs a program with the C library of `tree`, in an emulator if it is
# for another processor, and sets `server` to it.
write_server() {
  local loader processor=$2 program=$3 command
  server=$trees/servers/$1/$(basename "$program")
  mkdir -p "$(dirname "$server")"
  if [ "$processor" = "$(uname -m)" ]; then
    loader=$(readelf --program-headers --wide "$program" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
    # No package's script has run in the tree, so the link /lib64 may be missing, and others lead out of the tree.
    for loader in "$tree"{,/usr}/lib/"$processor-linux-gnu/${loader##*/}" "$tree$loader"; do [ ! -e "$loader" ] || break; done
    command="$loader --library-path $tree/lib/$processor-linux-gnu:$tree/usr/lib/$processor-linux-gnu"
  else
    command="$emulator -L $tree"
  fi
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$command" "$program" >"$server"
  chmod +x "$server"
}

# try_debian PROCESSOR SUITE PROGRAM...: adds servers of a Debian to `servers`.
try_debian() {
  local processor=$1 suite=$2 program
  shift 2
  if debian_tree "$processor" "$suite" "$@" musl; then
    for program in "$@"; do
      write_server "$suite-$processor" "$processor" "$tree/usr/bin/$program"
      add_server "$server" "Debian $suite"
    done
  else
    leave_out "Debian $suite, which mmdebstrap could not build: $(tail -n 1 "$tree.log")"
  fi
}

# announce WRAPPER LABEL: prints the version of a server.
announce() {
  local version
  version=$("$1" --version) || fail "$1 does not run here (see above)"
  say "  $(cut -d ' ' -f 1-3 <<<"$version") of $2"
}

# add_server WRAPPER LABEL: prints the server's version and adds it to `servers`.
add_server() {
  announce "$1" "$2"
  servers+=${servers:+:}$1
}

# fetch_redis: downloads Debian's source of Redis and sets `source` to its archive.
fetch_redis() {
  local folder=$packages/redis options
  source=$(ls "$folder"/redis_*.orig.tar.* 2>/dev/null) && return 0
  rm -rf "$folder"
  mkdir -p "$folder/lists/partial"
  sed -n 's/^deb /deb-src /p' "$trees"/bookworm-*/etc/apt/sources.list | sort -u >"$folder/sources.list"
  options=(-qq -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$folder/lists")
  (
    cd "$folder" && apt-get "${options[@]}" update && apt-get "${options[@]}" source --download-only redis
  ) >"$packages/redis.log" 2>&1
  rm -rf "$folder/lists"
  source=$(ls "$folder"/redis_*.orig.tar.* 2>/dev/null)
}

# build_redis PROCESSOR: builds a Redis for musl with zig, and sets `program` to it.
build_redis() {
  local folder=$packages/redis-$1 tool
  program=$folder/src/redis-server
  [ ! -e "$folder/built" ] || return 0
  say "  building Redis for musl on $1"
  rm -rf "$folder"
  mkdir -p "$folder/zig"
  tar -C "$folder" --strip-components 1 -xf "$source"
  for tool in cc ar; do
    printf '#!/bin/sh\nexec %s %s %s "$@"\n' "$zig/venv/bin/python-zig" "$tool" \
      "$([ $tool = ar ] || say "-target $1-linux-musl -dynamic")" >"$folder/zig/$tool"
    chmod +x "$folder/zig/$tool"
  done
  ZIG_GLOBAL_CACHE_DIR=$zig/cache ZIG_LOCAL_CACHE_DIR=$zig/cache make -j "$(nproc)" -C "$folder/src" redis-server MALLOC=libc \
    BUILD_TLS=no USE_SYSTEMD=no OPTIMIZATION=-O1 uname_M="$1" CC="$folder/zig/cc" AR="$folder/zig/ar" >"$packages/redis.log" 2>&1 || return
  touch "$folder/built"
}

# server_tests TARGET SERVERS FILTER...: runs tests of the module built for a target.
server_tests() {
  local module servers=$2
  module=$(library "$1")
  shift 2
  BLOOMGATE_MODULE=$module BLOOMGATE_SERVERS=$servers cargo test --locked --workspace --test server -- "$@"
}

# filter_tests PROCESSOR: runs the unit tests and the laws of the filter in the emulator, with the C library of `tree`. Left out are the
# tests of accuracy and of failing allocations, which take too long there and have no code of a processor's own.
filter_tests() {
  local triple=$1-unknown-linux-gnu
  (
    export "CARGO_TARGET_$(tr '[:lower:]-' '[:upper:]_' <<<"$triple")_RUNNER=$emulator -L $tree"
    zig_cargo "$triple" test -p bloomgate-filter --lib --test laws
  )
}

# use_packages PROCESSOR: builds the .deb packages for another processor, and uses them in a Debian whose programs the kernel runs in
# the emulator.
use_packages() {
  local triple=$1-unknown-linux-gnu architecture=arm64
  [ "$1" = aarch64 ] || architecture=amd64
  have cargo-deb || {
    leave_out "the .deb packages: cargo-deb is missing, which scripts/setup --release installs"
    return
  }
  { have arch-test && arch-test "$architecture" >/dev/null; } || {
    leave_out "the .deb packages: the kernel does not run programs for $architecture, or the program arch-test, which finds out, is missing"
    return
  }
  zig_cargo "$triple" build --profile tools -p bloomgate-tool --bin bloomgate
  stage "$(library "$triple")" "$cross/$triple/tools/bloomgate"
  write_server "tool-$1" "$1" "$files/bloomgate"
  write_pages "$server"
  make_debian "$1"
  use_in_debian bookworm "$architecture" "$packages"/*_"$(version)"-1_"$architecture".deb
}

# The data of earlier releases and other programs with recorded digests, persistence, and the commands.
tests=(golden:: registration:: membership:: persistence:: transfer:: counting:: windowed::)
# An emulated server is slow.
emulated_tests=(golden:: registration:: membership::)

# find_debians PROCESSOR: sets `servers` to the servers of each Debian. In an emulator, the oldest is enough.
find_debians() {
  servers=
  try_debian "$1" bookworm redis-server
  [ -n "$servers" ] || skip "no Debian could be unpacked:" "${left_out[@]}"
  [ "$1" = "$(uname -m)" ] || return 0
  try_debian "$1" trixie redis-server valkey-server
  try_debian "$1" sid redis-server valkey-server
}

for program in mmdebstrap apt-get make; do have "$program" || skip "$program is missing" "scripts/setup --release installs it"; done
[ "$(id -u)" -eq 0 ] || skip "unpacking a Debian into a folder needs root"

here=$(uname -m)
there=aarch64
[ "$here" != aarch64 ] || there=x86_64
emulator=$(command -v "qemu-$there-static" || command -v "qemu-$there" || true)

headline "The library for glibc on $here"
find_debians "$here"
server_tests "$here-unknown-linux-gnu" "$servers" "${tests[@]}"
native=${servers%%:*}
if debian_tree "$here" bullseye redis-server; then
  write_server bullseye "$here" "$tree/usr/bin/redis-server"
  announce "$server" "Debian bullseye, which must refuse it"
  BLOOMGATE_OLD_SERVER=$server server_tests "$here-unknown-linux-gnu" "$native" --ignored older_than_7
else
  leave_out "Debian bullseye, which mmdebstrap could not build: $(tail -n 1 "$tree.log")"
fi

headline "The library for musl on $here"
debian_tree "$here" bookworm redis-server musl
if fetch_redis && build_redis "$here"; then
  write_server "musl-$here" "$here" "$program"
  servers=
  add_server "$server" "Debian's source, built for musl"
  server_tests "$here-unknown-linux-musl" "$servers" "${tests[@]}"
else
  leave_out "Redis could not be built for musl: $(tail -n 1 "$packages/redis.log")"
fi

headline "The libraries for $there, in an emulator"
if [ -z "$emulator" ]; then
  leave_out "qemu-$there-static is missing; scripts/setup --release installs it"
else
  find_debians "$there"
  foreign=$servers
  filter_tests "$there"
  server_tests "$there-unknown-linux-gnu" "$foreign" "${emulated_tests[@]}"
  BLOOMGATE_OTHER_SERVER=$foreign BLOOMGATE_OTHER_MODULE=$(library "$there-unknown-linux-gnu") \
    server_tests "$here-unknown-linux-gnu" "$native" --ignored on_another_processor
  use_packages "$there"
  if build_redis "$there"; then
    write_server "musl-$there" "$there" "$program"
    servers=
    add_server "$server" "Debian's source, built for musl"
    server_tests "$there-unknown-linux-musl" "$servers" "${emulated_tests[@]}"
  else
    leave_out "Redis could not be built for musl on $there: $(tail -n 1 "$packages/redis.log")"
  fi
fi

[ ${#left_out[@]} -eq 0 ] || skip "parts were not run on this machine:" "${left_out[@]}"
