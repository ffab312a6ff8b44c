"""Tests what scripts/package made, as its users would use it. scripts/package runs it with one of these words:

packages   the .deb packages in a fresh Debian, cargo install, the units of systemd, and the files that crates and the image need
release    the sums of a release, its library in every server of this machine, and its .deb packages in two Debians
image      the image on bases that mmdebstrap makes, as the public ones are laid out; with `public`, on the public images
libraries  the libraries in the servers of Debian bookworm to sid, on musl, and on the other processor in qemu"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts/testing"))
from machine import ROOT, TARGET, fail, has, headline, installed_servers, output, path_servers, run, skip, wanted  # noqa: E402

PACKAGES = ROOT / "target/packages"
VERSION = wanted("Cargo.toml", r'^version = "(.*)"')
PROCESSOR = os.uname().machine
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# A mirror of sid may be older than the signature on its list allows.
MMDEBSTRAP = ["mmdebstrap", "--quiet", '--aptopt=Acquire::Check-Valid-Until "false"']


def wait_until(is_done: Callable[[], bool], what: str, seconds: int = 60) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            fail(f"{what} within {seconds} s")
        time.sleep(0.1)


def require_debian(*programs: str) -> None:
    if os.getuid():
        skip("unpacking a Debian into a folder needs root")
    missing = [name for name in ("mmdebstrap", *programs) if not has(name)]
    if missing:
        skip(f"{' and '.join(missing)} missing", "scripts/setup --release installs them")


def debian(name: str, suite: str, variant: str, *packages: str, processor: str = PROCESSOR) -> Path:
    """Returns an archive of a Debian with these packages, made once; or, for the variant `extract`, a folder in which no script ran."""
    path = PACKAGES / (name if variant == "extract" else f"{name}.tar")
    part = path.with_name(f"part-{path.name}")
    if not path.exists():
        print(f"  building it once with mmdebstrap: {path.relative_to(ROOT)}")
        shutil.rmtree(part, ignore_errors=True)
        words = [f"--variant={variant}", f"--architectures={ARCHITECTURES[processor]}", f"--include={','.join(packages)}", suite, part]
        made = subprocess.run([*MMDEBSTRAP, *map(str, words)], capture_output=True, text=True, check=False)
        if made.returncode:
            skip(f"mmdebstrap could not build {name}: {(made.stderr.splitlines() or [''])[-1]}")
        part.rename(path)
    return path


def use_in_debian(suite: str, packages: list[Path]) -> None:
    """Installs, uses and removes packages in a fresh Debian with separate network, processes and mounts, so that port 6379 is free."""
    require_debian("unshare", "ip")
    headline(f"Install them in a fresh Debian ({suite})")
    assert len(packages) == 2, packages
    archive = debian(f"debian-{suite}-{ARCHITECTURES[PROCESSOR]}", suite, "apt", "redis-server")
    with tempfile.TemporaryDirectory(prefix="bloomgate.") as folder:
        run("tar", "-C", folder, "-xf", archive, "--exclude=./dev/*")
        inside = Path(folder) / "packages"
        inside.mkdir()
        for file in (*packages, ROOT / "packaging/debian/test-inside"):
            shutil.copy(file, inside)
        enter = 'ip link set lo up; mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"; cd /'
        enter += '; exec timeout 600 env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C chroot "$0" /packages/test-inside </dev/null'
        run("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec", enter, folder)


def use_in_server(program: str, *words: object) -> None:
    """Starts a server with these arguments, and adds an item to a filter."""
    with tempfile.TemporaryDirectory(prefix="bloomgate.") as folder:
        socket = Path(folder) / "socket"
        with (Path(folder) / "log").open("w") as log:
            server = subprocess.Popen([program, "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", *map(str, words)], stdout=log)
            wait_until(lambda: socket.exists() or server.poll() is not None, f"{program} did not start")
            reply = output("redis-cli", "-s", socket, "BF.ADD", "seen", "one")
            server.kill()
            server.wait()
        if reply != "1":
            fail(f"{program}: BF.ADD answers {reply}", *(Path(folder) / "log").read_text().splitlines()[-3:])
    print(f"  {' '.join(output(program, '--version').split()[:3])}")


def packages() -> None:
    profile = TARGET / "tools"
    crates = re.findall(r"^members = (.*)", (ROOT / "Cargo.toml").read_text(), re.M)[0]
    for crate in re.findall('"(.*?)"', crates):
        name = wanted(f"{crate}/Cargo.toml", '^name = "(.*)"')
        files = output("cargo", "package", "--offline", "--allow-dirty", "--list", "-p", name).split("\n")
        missing = {"LICENSE-MIT", "LICENSE-APACHE", "README.md"} - set(files)
        if missing and "publish = false" not in (ROOT / crate / "Cargo.toml").read_text():
            fail(f"the crate {name} has no {missing}")
    with tempfile.TemporaryDirectory(prefix="bloomgate.") as folder:
        # The files that the Containerfile copies must be enough for cargo.
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", (ROOT / "packaging/Containerfile").read_text(), re.M):
            run("cp", "-R", *line.split(), folder)
        run("sh", "-c", 'cargo metadata --locked --offline --no-deps --format-version 1 --manifest-path "$0" >/dev/null', f"{folder}/Cargo.toml")
        print("  every crate has licences and a README, and packaging/Containerfile copies a workspace")
        if has("systemd-analyze"):
            for unit in (ROOT / "packaging").glob("*.service"):
                # The unit runs a program of the PATH, which need not be installed on this machine.
                text = unit.read_text().replace("ExecStart=bloomgate", f"ExecStart={profile}/bloomgate")
                instance = Path(folder) / unit.name.replace("@", "@shop")
                instance.write_text(text)
                (Path(folder) / unit.name).write_text(text)
                run("systemd-analyze", "verify", "--man=no", instance.name, SYSTEMD_UNIT_PATH=f"{folder}:")
                verdict = output("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", Path(folder) / unit.name)
                if "Overall exposure level" not in verdict or not re.search(r"level for .*: [01]\.\d", verdict):
                    fail(f"{unit.name} lost a part of its sandbox:", verdict)
                print(f"  {unit.name}: systemd accepts it, and its sandbox")
        headline("cargo install")
        install = ["cargo", "install", "--locked", "--quiet", "--profile", "tools", "--target-dir", TARGET, "--path", "crates/tool", "--no-track"]
        run(*install, "--root", folder)
        run(f"{folder}/bin/bloomgate", "--version")
    use_in_debian("bookworm", sorted(PACKAGES.glob("*.deb")))


def release() -> None:
    folder = PACKAGES / "release"
    if not (folder / "SHA256SUMS").exists():
        fail(f"{folder} has no release", "scripts/package --release makes it")
    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=folder)
    headline("Load the library in each server")
    for program in path_servers() + installed_servers():
        use_in_server(program, "--loadmodule", folder / f"libbloomgate-{VERSION}-{PROCESSOR}-linux-gnu.so")
    for suite in ("bookworm", "trixie"):
        use_in_debian(suite, sorted(folder.glob(f"*_{ARCHITECTURES[PROCESSOR]}.deb")))


STORE = PACKAGES / "containers"
"""podman's images and containers of this script. They are separate from the user's."""


def podman(*words: object, text: str | None = None, may_fail: bool = False) -> str:
    # podman's own limits are above those of many machines, and raising a limit needs a privilege that root may lack. If both versions of
    # control groups are mounted, runc runs, but Debian's crun does not.
    engine = '[engine]\nruntime = "runc"\n' if Path("/sys/fs/cgroup/unified").is_dir() else ""
    settings, temporary = STORE.with_suffix(".conf"), STORE.with_suffix(".tmp")
    temporary.mkdir(parents=True, exist_ok=True)
    settings.write_text(f'[containers]\ndefault_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]\n{engine}')
    # This script runs the health check itself: a machine need not have the systemd that would run it.
    variables = {"DISABLE_HC_SYSTEMD": "true", "TMPDIR": temporary, "CONTAINERS_CONF": settings, "BUILDAH_ISOLATION": "chroot"}
    command = ["podman", "--root", STORE, "--runroot", STORE.with_suffix(".run"), *words]
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    ended = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if ended.returncode and not may_fail:
        fail(f"podman {' '.join(map(str, words))[:200]} failed:", *(ended.stdout + ended.stderr).splitlines()[-12:])
    return "failed" if ended.returncode else ended.stdout.strip()


def make_base(name: str, suite: str, *packages: str, then: str = "") -> str:
    """Makes an image of Debian packages, with more lines of a Containerfile, and returns its name."""
    archive = debian(f"image-{name}", suite, "apt", *packages)
    if podman("image", "exists", f"localhost/debian-{name}", may_fail=True):
        podman("import", "--quiet", archive, f"localhost/debian-{name}")
    podman("build", "--quiet", "--tag", f"localhost/{name}", "-", text=f"FROM localhost/debian-{name}\n{then}")
    return f"localhost/{name}"


SERVER_LAYOUT = """\
RUN mkdir -p /data /usr/local/lib/redis/modules && chown 999:999 /data \\
 && install -m 755 /dev/null /usr/local/lib/redis/modules/redisbloom.so \\
 && printf '%s\\n' '#!/bin/sh' 'case $1 in -*) set -- PROGRAM "$@" ;; esac' \\
    'for library in /usr/local/lib/redis/modules/*.so; do [ ! -e "$library" ] || set -- "$@" --loadmodule "$library"; done' \\
    '[ "$(id -u)" != 0 ] || exec setpriv --reuid 999 --regid 999 --clear-groups -- "$@"' 'exec "$@"' >/usr/local/bin/docker-entrypoint.sh \\
 && chmod 755 /usr/local/bin/docker-entrypoint.sh
VOLUME /data
WORKDIR /data
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["PROGRAM"]
"""
"""The layout of the official images of Valkey and of Redis 8: the entry point inserts the server's name, drops the privileges of root, and
loads every library in a folder, with a damaged file in place of RedisBloom."""


def use_image(image: str, client: str) -> None:
    """Starts a container of an image, then another one with the volume of the first."""

    def start(*words: str) -> None:
        podman("run", "--detach", "--network", "none", "--name", "server", "--volume", "data:/data", image, *words)

    def answer(expected: str, *command: str) -> None:
        found = podman("exec", "server", *command, may_fail=True)
        if found != expected:
            fail(f"{' '.join(command)} printed {found!r} in the container, expected {expected!r}", podman("logs", "--tail", "5", "server", may_fail=True))
        print(f"  {' '.join(command)}: {found}")

    def is_healthy() -> bool:
        return podman("healthcheck", "run", "server", may_fail=True) != "failed"

    headline(f"Use {image}")
    start()
    wait_until(is_healthy, "the health check did not succeed")
    for expected, command in {"1": f"{client} BF.ADD seen one", f"bloomgate {VERSION}": "bloomgate --version", "999": "stat --format %u /proc/1 "}.items():
        answer(expected, *command.split())
    answer("no", "sh", "-c", "test -w /usr/local/lib/bloomgate.so -o -w /usr/local/bin && echo yes || echo no")
    podman("stop", "--time", "30", "server")
    podman("rm", "server")
    start()
    wait_until(is_healthy, "the health check did not succeed")
    answer("1", client, "BF.EXISTS", "seen", "one")
    podman("rm", "--force", "server")
    start("--loadmodule", "/usr/local/lib/bloomgate.so", "--port", "6380")
    wait_until(lambda: podman("exec", "server", client, "-p", "6380", "PING", may_fail=True) == "PONG", "the server did not answer")
    if is_healthy():
        fail("the health check succeeds without a server at its port")
    podman("rm", "--force", "server")
    podman("volume", "rm", "data")


def build_image(name: str, server: str, *options: object) -> None:
    began = time.monotonic()
    words = ["--format", "docker", "--layers", "--tag", name, "--file", "packaging/Containerfile", "--build-arg", f"SERVER={server}"]
    podman("build", *words, *options, ".")
    print(f"  {name}: built in {time.monotonic() - began:.0f} s")


def image(*words: str) -> None:
    if not has("podman"):
        skip("podman is missing", "scripts/setup --release installs it")
    podman("rm", "--all", "--force", may_fail=True)
    podman("volume", "rm", "--all", "--force", may_fail=True)
    if words:
        build_image("localhost/bloomgate", wanted("packaging/Containerfile", "^ARG SERVER=(.*)"))
        use_image("localhost/bloomgate", "valkey-cli")
        file = PACKAGES / f"bloomgate-{VERSION}-image-{ARCHITECTURES[PROCESSOR]}.tar"
        file.unlink(missing_ok=True)
        podman("save", "--quiet", "--format", "docker-archive", "--output", file, "localhost/bloomgate")
        return print(file)
    require_debian()
    headline("Build the image on bases of Debian packages")
    # The builder gets Rust and the downloaded crates of this machine as volumes, because neither can be downloaded everywhere.
    environment = "ENV PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/usr/local/crates CARGO_NET_OFFLINE=true"
    builder = make_base("builder", "bookworm", "gcc", "libc6-dev", "libclang-dev", "make", then=environment)
    run("cargo", "fetch", "--locked", "--quiet")
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry"
    volumes = [f"{output('rustc', '--print', 'sysroot')}:/usr/local/rust:ro", f"{registry}:/usr/local/crates/registry"]
    options = ["--build-arg", f"BUILDER={builder}", "--network", "host", *(word for volume in volumes for word in ("--volume", volume))]
    for family in ("valkey", "redis"):
        base = make_base(family, "trixie", f"{family}-server", then=SERVER_LAYOUT.replace("PROGRAM", f"{family}-server"))
        build_image(f"localhost/bloomgate-{family}", base, *options)
        use_image(f"localhost/bloomgate-{family}", f"{family}-cli")


def wrapper(name: str, program: Path, tree: Path, processor: str) -> str:
    """Returns a script that runs a program with the C library of a Debian, in an emulator if it is for another processor."""
    if processor == PROCESSOR:
        loader = re.search(r"interpreter: (.*)\]", output("readelf", "--program-headers", "--wide", program))
        assert loader, program
        # No package's script has run in the tree, so the link /lib64 may be missing, and others lead out of the tree.
        places = [tree / f"usr/lib/{processor}-linux-gnu" / Path(loader[1]).name, tree / f"lib/{processor}-linux-gnu" / Path(loader[1]).name, tree / loader[1][1:]]
        found = next(place for place in places if place.exists())
        command = f"{found} --library-path {tree}/lib/{processor}-linux-gnu:{tree}/usr/lib/{processor}-linux-gnu"
    else:
        command = f"{shutil.which(f'qemu-{processor}-static') or shutil.which(f'qemu-{processor}')} -L {tree}"
    script = PACKAGES / "trees/servers" / name / program.name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {command} {program} "$@"\n')
    script.chmod(0o755)
    print(f"  {' '.join(output(script, '--version').split()[:3]) or fail(f'{script} does not run here')} of {name}")
    return str(script)


def musl_redis(processor: str, tree: Path) -> str:
    """Builds Debian's source of Redis for musl with zig, and returns its server."""
    folder, zig = PACKAGES / f"redis-{processor}", TARGET / "zig"
    if not (folder / "src/redis-server").exists():
        sources = PACKAGES / "redis"
        (sources / "lists/partial").mkdir(parents=True, exist_ok=True)
        lines = (tree / "etc/apt/sources.list").read_text()
        (sources / "sources.list").write_text("\n".join(re.sub("^deb ", "deb-src ", line) for line in lines.splitlines()) + "\n")
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={sources}/sources.list", "-o", "Dir::Etc::sourceparts=-"]
        apt += ["-o", f"Dir::State::lists={sources}/lists"]
        run(*apt, "update", cwd=sources)
        run(*apt, "source", "--download-only", "redis", cwd=sources)
        folder.mkdir(exist_ok=True)
        run("tar", "-C", folder, "--strip-components", "1", "-xf", next(sources.glob("redis_*.orig.tar.*")))
        for name, words in (("cc", f"cc -target {processor}-linux-musl -dynamic"), ("ar", "ar")):
            (folder / name).write_text(f'#!/bin/sh\nexec {zig}/venv/bin/python-zig {words} "$@"\n')
            (folder / name).chmod(0o755)
        options = ["MALLOC=libc", "BUILD_TLS=no", "USE_SYSTEMD=no", "OPTIMIZATION=-O1", f"uname_M={processor}", f"CC={folder}/cc", f"AR={folder}/ar"]
        make = ["make", "-s", "-j", str(os.cpu_count()), "-C", folder / "src", "redis-server", *options]
        run(*make, ZIG_GLOBAL_CACHE_DIR=zig / "cache", ZIG_LOCAL_CACHE_DIR=zig / "cache")
    return wrapper(f"musl-{processor}", folder / "src/redis-server", tree, processor)


# The data of earlier releases and other programs with recorded digests, persistence, and the commands. An emulated server is slow.
TESTS = ["golden::", "registration::", "membership::", "persistence::", "transfer::", "counting::", "windowed::"]
EMULATED_TESTS = TESTS[:3]


def server_tests(target: str, servers: list[str], *words: str, **environment: object) -> None:
    module = PACKAGES / f"libbloomgate-{VERSION}-{target}.so"
    variables = {"BLOOMGATE_MODULE": module, "BLOOMGATE_SERVERS": ":".join(servers), **environment}
    run("cargo", "test", "--locked", "--workspace", "--test", "server", "--", *words, **variables)


def libraries() -> None:
    require_debian("apt-get", "make")
    (PACKAGES / "trees").mkdir(exist_ok=True)
    other = "aarch64" if PROCESSOR == "x86_64" else "x86_64"

    def tree(suite: str, processor: str, *programs: str) -> Path:
        return debian(f"trees/{suite}-{ARCHITECTURES[processor]}", suite, "extract", *programs, "musl", processor=processor)

    def servers(suite: str, processor: str, *programs: str) -> list[str]:
        root = tree(suite, processor, *programs)
        return [wrapper(f"{suite}-{processor}", root / "usr/bin" / program, root, processor) for program in programs]

    headline(f"The libraries on {PROCESSOR}")
    both = ("redis-server", "valkey-server")
    native = servers("bookworm", PROCESSOR, "redis-server")
    server_tests(f"{PROCESSOR}-linux-gnu", [*native, *servers("trixie", PROCESSOR, *both), *servers("sid", PROCESSOR, *both)], *TESTS)
    old = servers("bullseye", PROCESSOR, "redis-server")[0]
    server_tests(f"{PROCESSOR}-linux-gnu", native, "--ignored", "older_than_7", BLOOMGATE_OLD_SERVER=old)
    server_tests(f"{PROCESSOR}-linux-musl", [musl_redis(PROCESSOR, tree("bookworm", PROCESSOR, "redis-server"))], *TESTS)
    headline(f"The libraries on {other}, in an emulator")
    if not (has(f"qemu-{other}-static") or has(f"qemu-{other}")):
        skip(f"the libraries on {other}: qemu-{other}-static is missing", "scripts/setup --release installs it")
    foreign = servers("bookworm", other, "redis-server")
    server_tests(f"{other}-linux-gnu", foreign, *EMULATED_TESTS)
    foreign_module = PACKAGES / f"libbloomgate-{VERSION}-{other}-linux-gnu.so"
    variables = {"BLOOMGATE_OTHER_SERVER": foreign[0], "BLOOMGATE_OTHER_MODULE": foreign_module}
    server_tests(f"{PROCESSOR}-linux-gnu", native, "--ignored", "on_another_processor", **variables)
    server_tests(f"{other}-linux-musl", [musl_redis(other, tree("bookworm", other, "redis-server"))], *EMULATED_TESTS)


{"packages": packages, "release": release, "image": image, "libraries": libraries}[sys.argv[1]](*sys.argv[2:])
