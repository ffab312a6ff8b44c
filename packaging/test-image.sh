# shellcheck shell=bash
# Sourced by scripts/package --image and --test-image: builds the image of packaging/Containerfile with podman, and uses it as its
# readers would. --image builds on the public images. --test-image needs no registry: it makes bases with mmdebstrap that are laid out
# as the public ones are.

: "${packages:?scripts/package sources this file}" "${root:?}"

# podman's images and containers of this script. They do not mix with those of the user.
store=$packages/containers
mkdir -p "$store.tmp"
working=$(mktemp -d "${TMPDIR:-/tmp}/bloomgate.XXXXXX")
end_image_test() {
  in_podman rm --all --force --time 0 >/dev/null 2>&1 || true
  in_podman volume rm --all --force >/dev/null 2>&1 || true
  rm -rf "$working"
}
trap end_image_test EXIT

# podman's own limits are above those of many machines, and raising a limit needs a privilege that root may lack. Where both
# versions of control groups are mounted, runc runs, and Debian's crun does not.
{
  say '[containers]'
  say 'default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]'
  say '[engine]'
  [ ! -d /sys/fs/cgroup/unified ] || say 'runtime = "runc"'
} >"$working/containers.conf"

# The folder of temporary files also has the caches that builds mount. The script runs the health check itself: a machine need not have
# the systemd that would run it.
in_podman() {
  DISABLE_HC_SYSTEMD=true TMPDIR=$store.tmp CONTAINERS_CONF=$working/containers.conf BUILDAH_ISOLATION=chroot podman --root "$store" --runroot "$store.run" "$@"
}

# import_debian NAME SUITE PACKAGE...: makes an image of a Debian with packages, once.
import_debian() {
  local name=$1 suite=$2 tree=$packages/image-$1.tar
  shift 2
  [ -s "$tree" ] || {
    say "  unpacking $* of $suite"
    mmdebstrap --quiet --variant=apt --include="$(paste -sd , - < <(printf '%s\n' "$@"))" \
      --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$tree.part.tar" >"$packages/mmdebstrap.log" 2>&1 ||
      skip "mmdebstrap could not build $name: $(tail -n 1 "$packages/mmdebstrap.log")"
    mv "$tree.part.tar" "$tree"
  }
  in_podman image exists "localhost/debian-$name" || in_podman import --quiet "$tree" "localhost/debian-$name" >/dev/null
}

# make_builder: makes the image `builder`, which has what rust:bookworm has. It gets Rust and the downloaded crates of this machine
# as volumes, because neither can be downloaded inside the build everywhere.
make_builder() {
  import_debian builder bookworm gcc libc6-dev libclang-dev make
  in_podman build --quiet --tag localhost/builder - >/dev/null <<'FILE'
FROM localhost/debian-builder
ENV PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/usr/local/crates CARGO_NET_OFFLINE=true
FILE
}

# make_server NAME SUITE PROGRAM: makes an image that is laid out as the official ones of Valkey and of Redis 8: its entry point inserts
# the server's name, drops the privileges of root, and loads every library in a folder, in which a damaged file stands in for
# RedisBloom.
make_server() {
  import_debian "$1" "$2" "$3"
  in_podman build --quiet --tag "localhost/$1" --build-arg SERVER="$3" --file - "$working" >/dev/null <<FILE
FROM localhost/debian-$1
RUN mkdir -p /data /usr/local/lib/redis/modules && chown 999:999 /data \\
    && install -m 755 /dev/null /usr/local/lib/redis/modules/redisbloom.so \\
    && printf '%s\\n' '#!/bin/sh' \\
      'case \$1 in -*) set -- $3 "\$@" ;; esac' \\
      'for library in /usr/local/lib/redis/modules/*.so; do [ ! -e "\$library" ] || set -- "\$@" --loadmodule "\$library"; done' \\
      '[ "\$(id -u)" != 0 ] || exec setpriv --reuid 999 --regid 999 --clear-groups -- "\$@"' \\
      'exec "\$@"' >/usr/local/bin/docker-entrypoint.sh \\
    && chmod 755 /usr/local/bin/docker-entrypoint.sh
VOLUME /data
WORKDIR /data
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["$3"]
FILE
}

# image_size NAME: prints the bytes of an image.
image_size() {
  in_podman image inspect --format '{{.Size}}' "$1"
}

# build_image NAME SERVER OPTION...: builds the Containerfile on the image of a server.
build_image() {
  local name=$1 server=$2 begun=$SECONDS
  shift 2
  in_podman build --format docker --layers --tag "$name" --file packaging/Containerfile --build-arg SERVER="$server" \
    "$@" . >"$packages/image.log" 2>&1 ||
    fail "the Containerfile does not build; the end of ${packages#"$root"/}/image.log:" "$(tail -n 12 "$packages/image.log")"
  say "  $name: built in $((SECONDS - begun)) s, $(numfmt --to=iec $(($(image_size "$name") - $(image_size "$server")))) larger than $server"
}

# answer WANTED COMMAND...: fails unless a command in the container `server` prints a line.
answer() {
  local wanted=$1 found
  shift
  found=$(in_podman exec server "$@" 2>&1) || true
  [ "$found" = "$wanted" ] || fail "$* printed \"$found\" in the container, expected \"$wanted\"" "$(in_podman logs --tail 5 server 2>&1)"
  say "  $*: $found"
}

# start IMAGE: starts the container `server` with a volume, and waits until its health check succeeds.
start() {
  local image=$1 tries=0
  in_podman run --detach --network none --name server --volume data:/data "$image" >/dev/null
  until in_podman healthcheck run server >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "the health check of $image does not succeed:" "$(in_podman logs --tail 5 server 2>&1)"
    sleep 0.2
  done
}

stop() {
  in_podman stop --time 30 server >/dev/null
  in_podman rm server >/dev/null
}

# use_image NAME CLIENT: starts a container of an image, then another one with the volume of the first.
use_image() {
  local image=$1 client=$2 setting
  start "$image"
  say "  $(in_podman exec server "${client%-cli}-server" --version | cut -d ' ' -f 1-3), the health check succeeds"
  answer 1 "$client" BF.ADD seen one
  answer 0 "$client" BF.ADD seen one
  answer "bloomgate $(version)" bloomgate --version
  answer 999 stat --format %u /proc/1
  answer 999 stat --format %u /data
  # The server may write its data only.
  answer no sh -c 'test -w /usr/local/lib/bloomgate.so -o -w /usr/local/bin && echo yes || echo no'
  stop
  say "a new container with the volume of the first"
  start "$image"
  answer 1 "$client" BF.EXISTS seen one
  stop
  in_podman volume rm data >/dev/null
  say "a server at another port, which the health check must not find"
  in_podman run --detach --network none --name server "$image" --loadmodule /usr/local/lib/bloomgate.so --port 6380 >/dev/null
  until in_podman exec server "$client" -p 6380 PING >/dev/null 2>&1; do sleep 0.2; done
  ! in_podman healthcheck run server >/dev/null 2>&1 || fail "the health check of $image succeeds without a server"
  stop
  for setting in Healthcheck User Volumes; do
    [ "$(in_podman image inspect --format "{{.Config.$setting}}" "$image")" != '' ] || fail "the image $image has no $setting"
  done
}

podman_works() {
  in_podman info >"$packages/podman.log" 2>&1
}

have podman || skip "podman is missing" "scripts/setup --release installs it"
podman_works || skip "podman does not work here: $(tail -n 1 "$packages/podman.log")"
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) skip "no image is built for $(uname -m)" ;;
esac
: "${action:?}"
if [ "$action" = image ]; then
  headline "Build the image"
  build_image localhost/bloomgate "$(sed -n 's/^ARG SERVER=//p' packaging/Containerfile)"
  headline "Use it"
  use_image localhost/bloomgate valkey-cli
  file=$packages/bloomgate-$(version)-image-$architecture.tar
  rm -f "$file"
  in_podman save --quiet --format docker-archive --output "$file" localhost/bloomgate >/dev/null
  say "${file#"$root"/}"
  exit 0
fi

[ "$(id -u)" -eq 0 ] || skip "unpacking a Debian into a folder needs root"
have mmdebstrap || skip "mmdebstrap is missing" "scripts/setup --release installs it"
headline "Make bases of Debian packages"
make_builder
make_server valkey trixie valkey-server
make_server redis trixie redis-server
headline "Build the Containerfile on them"
cargo fetch --locked --quiet
from_here=(--build-arg BUILDER=localhost/builder --volume "$(rustc --print sysroot):/usr/local/rust:ro"
  --volume "${CARGO_HOME:-$HOME/.cargo}/registry:/usr/local/crates/registry" --network host)
build_image localhost/bloomgate localhost/valkey "${from_here[@]}"
build_image localhost/bloomgate-redis localhost/redis "${from_here[@]}"
headline "Use the image with Valkey"
use_image localhost/bloomgate valkey-cli
headline "Use the image with Redis"
use_image localhost/bloomgate-redis redis-cli
