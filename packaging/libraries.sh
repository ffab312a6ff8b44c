# shellcheck shell=bash
# Sourced by scripts/package: builds the module with zig, whose linker sets the oldest C library that a file may need. It comes
# from the wheels of packaging/zig.txt and is installed into target/zig.

: "${packages:?scripts/package sources this file}" "${target:?}" "${root:?}"

zig=$target/zig
cross=$target/cross

# The oldest supported glibc, from Red Hat Enterprise Linux 7.
glibc=2.17

# The targets of rustc for which the module is built.
# shellcheck disable=SC2034  # scripts/package uses it
library_targets=({x86_64,aarch64}-unknown-linux-{gnu,musl})

# virtual_environment HOME REQUIREMENTS OPTION...: makes one with pip, unless it is there for these requirements and this Python.
virtual_environment() {
  local home=$1 requirements=$2
  shift 2
  ! cat "$requirements" <(python3 --version) | cmp -s - "$home/installed" || return 0
  say "installing $requirements into ${home#"$root"/}"
  rm -rf "$home"
  python3 -m venv "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" "$@" ||
    fail "pip could not install them (see above)"
  cat "$requirements" <(python3 --version) >"$home/installed"
}

# install_zig TARGET...: installs zig, and the standard library of Rust for each target.
install_zig() {
  local missing=() triple
  virtual_environment "$zig/venv" packaging/zig.txt --only-binary :all: --require-hashes
  for triple in "$@"; do
    [ -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ] || missing+=("$triple")
  done
  [ ${#missing[@]} -eq 0 ] || rustup target add "${missing[@]}" || fail "rustup could not install the standard library (see above)"
}

# zig_cargo TARGET COMMAND ARGUMENTS...: runs a cargo command with zig as the compiler of C and as the linker.
zig_cargo() (
  triple=$1 command=$2
  shift 2
  export PATH=$zig/venv/bin:$PATH ZIG_GLOBAL_CACHE_DIR=$zig/cache ZIG_LOCAL_CACHE_DIR=$zig/cache CARGO_ZIGBUILD_CACHE_DIR=$zig/cache
  case $triple in
  *-gnu) triple+=.$glibc ;;
  # Without this, rustc links musl statically and cannot build a shared library.
  *-musl) export RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=-crt-static" ;;
  esac
  mkdir -p "$cross"
  # zig prints the paths of its headers relative to the working folder if they are below it. Build scripts run in other folders.
  cd "$cross" || exit
  cargo-zigbuild "$command" --manifest-path "$root/Cargo.toml" --locked --target "$triple" --target-dir "$cross" "$@"
)

# library TARGET: prints the path of the module that make_library writes for this target of rustc.
library() {
  say "$packages/libbloomgate-$(version)-${1/-unknown/}.so"
}

# needed_glibc FILE: prints the newest version of glibc that the file needs, or nothing.
needed_glibc() {
  readelf --version-info --wide "$1" | sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1
}

# check_needs TARGET FILE: fails if the file needs more than the C library in the version for its target.
check_needs() {
  local needed allowed newest
  needed=$(readelf --dynamic --wide "$2" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | paste -sd ' ' -)
  newest=$(needed_glibc "$2")
  case $1 in
  *-musl)
    [ "$needed $newest" = "libc.so " ] || fail "$2 needs more than musl: $needed ${newest:+glibc $newest}"
    ;;
  *)
    allowed='^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|ld-linux-.*)$'
    ! tr ' ' '\n' <<<"$needed" | grep -Ev "$allowed" || fail "$2 needs other libraries than glibc (see above)"
    at_least "$glibc" "${newest:-0}" || fail "$2 needs glibc $newest, and may need $glibc at most"
    ;;
  esac
  say "  ${2##*/} needs $(if [ -n "$newest" ]; then say "glibc $newest"; else say musl; fi): $needed"
}

# make_library TARGET: builds the module.
make_library() {
  local file
  file=$(library "$1")
  zig_cargo "$1" build --release -p bloomgate --lib
  # Redis refuses a module that is not executable.
  install -m 755 "$cross/$1/release/libbloomgate.so" "$file"
  check_needs "$1" "$file"
}

# make_libraries: builds the module for all targets.
make_libraries() {
  local triple
  install_zig "${library_targets[@]}"
  for triple in "${library_targets[@]}"; do make_library "$triple"; done
}
