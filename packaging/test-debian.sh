# shellcheck shell=bash
# Sourced by packaging/test.sh and packaging/test-libraries.sh: installs the .deb packages in a fresh Debian, uses them there and removes
# them. packaging/debian/test-inside is the part that runs inside.

: "${packages:?scripts/package sources this file}" "${root:?}"

# start_postgres FOLDER: starts a PostgreSQL of this machine with its socket in FOLDER/packages/postgres, for the follower in the
# Debian. Does nothing if this machine has none.
start_postgres() {
  local folder=$1
  postgres_folder >/dev/null && id postgres >/dev/null 2>&1 || return 0
  socket=$folder/packages/postgres
  chmod 711 "$folder"
  mkdir "$socket"
  say secret >"$socket/password"
  chown -R postgres "$socket"
  as_postgres() (
    cd "$socket" || exit
    program=$(postgres_folder)/$1
    shift
    PGPASSWORD=secret exec setpriv --reuid postgres --regid postgres --clear-groups "$program" "$@"
  )
  {
    as_postgres initdb -D data -U shop -A scram-sha-256 --pwfile password --no-sync &&
      as_postgres pg_ctl -D data -l log -w -o "-h '' -k $socket -c wal_level=logical" start &&
      as_postgres psql -h "$socket" -U shop -d postgres -c 'CREATE TABLE users (id bigint PRIMARY KEY)' \
        -c 'INSERT INTO users VALUES (7)' -c 'CREATE PUBLICATION bloomgate FOR TABLE users'
  } >"$packages/postgres.log" 2>&1 ||
    fail "PostgreSQL does not start; the end of its log:" "$(tail -n 8 "$packages/postgres.log")"
}

# leave_debian FOLDER: stops the PostgreSQL and removes the Debian.
leave_debian() {
  [ ! -e "$1/packages/postgres" ] || as_postgres pg_ctl -D data -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$1"
}

# use_in_debian SUITE ARCHITECTURE PACKAGE...: runs the test in a Debian or Ubuntu. The kernel runs the programs of another architecture
# in qemu if that is registered with it.
use_in_debian() {
  local suite=$1 architecture=$2 components=main folder tree
  shift 2
  ! grep -qs '^ID=ubuntu' /etc/os-release || components=main,universe
  tree=$packages/debian-$suite-$architecture.tar
  if [ ! -s "$tree" ]; then
    say "building it once with mmdebstrap: ${tree#"$root"/}"
    mmdebstrap --quiet --variant=apt --architectures="$architecture" --components="$components" --include=redis-server "$suite" \
      "${tree%.tar}.part.tar" >"$packages/mmdebstrap.log" 2>&1 ||
      skip "mmdebstrap could not build it: $(tail -n 1 "$packages/mmdebstrap.log")"
    mv "${tree%.tar}.part.tar" "$tree"
  fi
  folder=$(mktemp -d "${TMPDIR:-/tmp}/bloomgate.XXXXXX")
  # shellcheck disable=SC2064  # the folder of this call
  trap "leave_debian '$folder'" EXIT
  tar -C "$folder" -xf "$tree" --exclude='./dev/*'
  mkdir "$folder/packages"
  cp "$@" packaging/debian/test-inside "$folder/packages"
  start_postgres "$folder"
  # The Debian gets its own network, processes and mounts: port 6379 is free for its redis-server, which ends with it.
  cat >"$folder/packages/enter" <<'END'
#!/bin/sh
set -e
ip link set lo up
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
exec timeout 600 env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C chroot "$1" /packages/test-inside
END
  unshare --mount --net --pid --fork --kill-child sh "$folder/packages/enter" "$folder" </dev/null ||
    fail "the packages do not work in Debian (see above)"
  leave_debian "$folder"
  trap - EXIT
}
