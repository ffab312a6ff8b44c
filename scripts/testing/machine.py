"""Shared by the steps of scripts/test: the folders, servers and tools of this machine, and how a step fails or is skipped."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
TARGET = (ROOT / os.environ.get("CARGO_TARGET_DIR", "target")).resolve()
SERVERS = TARGET / "servers"
IS_LINUX = platform.system() == "Linux"
LIBRARY = "libbloomgate.dylib" if platform.system() == "Darwin" else "libbloomgate.so"
TOOL = TARGET / "debug/bloomgate"


def fail(*lines: str) -> NoReturn:
    print("\nscripts/test:", "\n  ".join(lines), file=sys.stderr)
    raise SystemExit(1)


def skip(*lines: str) -> NoReturn:
    """Ends the step with status 77, which means neither success nor failure."""
    print("SKIPPED:", "\n  ".join(lines))
    raise SystemExit(77)


def headline(title: str) -> None:
    print(f"\n\033[1m== {title} ==\033[0m" if sys.stdout.isatty() else f"\n== {title} ==")


def status_of(*command: object, cwd: Any = None, **environment: object) -> int:
    """Runs a command, with more variables in its environment, and returns its exit status."""
    variables = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    return subprocess.run([str(word) for word in command], cwd=cwd or ROOT, env=variables, check=False).returncode


def run(*command: object, cwd: Any = None, **environment: object) -> None:
    """Runs a command, and ends the step with its status if it fails."""
    if status := status_of(*command, cwd=cwd, **environment):
        if status != 77:
            print(f"`{' '.join(map(str, command))[:200]}` failed (see above)", file=sys.stderr)
        raise SystemExit(status)


def output(*command: object, cwd: Path | None = None) -> str:
    """Returns what a command prints, or an empty string if it cannot run."""
    try:
        return subprocess.run([str(word) for word in command], cwd=cwd or ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def version(text: str) -> tuple[int, ...]:
    """Returns the numbers of the first version in a text; an empty one is older than any other."""
    found = re.search(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def wanted(file: str, pattern: str) -> str:
    """Returns what the only group of a pattern matches in a file of the project."""
    found = re.search(pattern, (ROOT / file).read_text(), re.M)
    assert found, f"{file} has no {pattern}"
    return found[1]


def has(*programs: str) -> bool:
    return all(map(shutil.which, programs))


def require(what: str, *programs: str) -> None:
    """Skips the step if a program is missing."""
    missing = [name for name in programs if not has(name)]
    if missing:
        skip(f"{what}: {' and '.join(missing)} missing", "scripts/setup --test or --deep installs what the tests need")


def require_python() -> None:
    if sys.version_info < (3, 10) or status_of(sys.executable, "-c", "import ensurepip, venv"):
        skip("Python 3.10 or newer, or its module venv, is missing", "scripts/setup --test installs it")


def require_node() -> str:
    """Returns node's version, if the TypeScript package runs on it."""
    require("the TypeScript package", "node", "npm")
    found, least = output("node", "--version"), wanted("clients/typescript/package.json", r'"node": ">=([\d.]*)"')
    return found if version(found) >= version(least) else skip(f"node is version {found}; the TypeScript package needs {least} or newer")


def require_java() -> None:
    require("the Java library", "javac", "mvn")
    if version(found := output("javac", "-version")) < (17,):
        skip(f"{found} is too old; the Java library needs 17 or newer")


def require_go() -> None:
    # Another toolchain would be fetched without asking.
    os.environ["GOTOOLCHAIN"] = "local"
    if version(output("go", "env", "GOVERSION")) < version(least := wanted("clients/go/go.mod", r"^go (.*)")):
        skip(f"Go {least} or newer is missing", "https://go.dev/dl has it")


def require_php() -> str:
    """Returns PHP's version, if the PHP package and its tests run on it."""
    require("the PHP package", "php", "phpunit")
    if version(found := output("php", "-r", "echo PHP_VERSION;")) < (8, 2):
        skip(f"PHP is version {found}; the PHP package needs 8.2 or newer")
    libraries = "extension_loaded('redis') && extension_loaded('pcntl') && extension_loaded('posix') && class_exists('Predis\\Client')"
    libraries += " && interface_exists('Psr\\SimpleCache\\CacheInterface') && class_exists('Illuminate\\Cache\\Repository')"
    if status_of("php", "-r", f"require 'tests/autoload.php'; exit((int) !({libraries}));", cwd=ROOT / "clients/php"):
        skip("the PHP package: pcntl, posix, phpredis, Predis, PSR-16 or Laravel's cache is missing", "scripts/setup --test installs them on Debian")
    return found


def require_nightly(*components: str) -> str:
    """Returns the target of nightly Rust on this machine."""
    found = output("rustup", "run", "nightly", "rustc", "-vV")
    for component in components:
        if component == "rust-src":
            found = found if (Path(output("rustup", "run", "nightly", "rustc", "--print", "sysroot")) / "lib/rustlib/src").is_dir() else ""
        elif status_of("rustup", "run", "nightly", "cargo", component, "--version"):
            found = ""
    if not found:
        skip("nightly Rust " + " ".join(["is missing"] if not components else ["with", *components, "is missing"]), "scripts/setup --fuzz installs it")
    return re.search(r"^host: (.*)", found, re.M)[1]  # type: ignore[index]


def module() -> Path:
    """Returns the module, and exports its absolute path: BLOOMGATE_MODULE, or the release build."""
    path = Path(os.environ.get("BLOOMGATE_MODULE", TARGET / "release" / LIBRARY)).resolve()
    if not path.is_file():
        fail(f"there is no module at {path}", "cargo build --release makes it")
    os.environ["BLOOMGATE_MODULE"] = str(path)
    return path


def path_servers() -> list[str]:
    """Returns the servers on the PATH. A program with several names counts once."""
    found: dict[Path, str] = {}
    for folder in os.environ["PATH"].split(":"):
        for name in ("redis-server", "valkey-server"):
            if os.access(program := Path(folder) / name, os.X_OK):
                found.setdefault(program.resolve(), str(program))
    return list(found.values())


def installed_servers() -> list[str]:
    """Returns the servers that scripts/setup --test installed, the newest of a family last, without the one that is too old."""
    found = [path for path in SERVERS.glob("*/*-server") if os.access(path, os.X_OK) and path.parent.name != "redis-6.2.5"]
    return [str(path) for path in sorted(found, key=lambda path: (path.name, version(path.parent.name)))]


def servers() -> list[str]:
    """Returns the servers of BLOOMGATE_SERVERS, or else those on the PATH."""
    named = [name for name in os.environ.get("BLOOMGATE_SERVERS", "").split(":") if name]
    for name in named:
        if not os.access(name, os.X_OK):
            fail(f"there is no server at {name}")
    return named or path_servers() or skip("no redis-server or valkey-server on the PATH, and BLOOMGATE_SERVERS is not set")


def use_server(title: str, server: str) -> None:
    """Prints the server on which the following tests run, and exports its path."""
    os.environ["BLOOMGATE_SERVER"] = server
    headline(f"{title}, {' '.join(output(server, '--version').split()[:3])}, {server}")


def is_installed(home: Path, state: str) -> bool:
    """Whether `home` records this state."""
    return (home / "installed").is_file() and (home / "installed").read_text() == state


def virtual_environment(home: Path, requirements: Path, *words: object) -> Path:
    """Returns the Python of a virtual environment in `home` with these requirements, made by pip with `words`."""
    require_python()
    python, state = home / "venv/bin/python", requirements.read_text() + sys.version + " ".join(map(str, words))
    if not is_installed(home, state):
        print(f"installing {requirements.relative_to(ROOT)} into {home}")
        shutil.rmtree(home, ignore_errors=True)
        run(sys.executable, "-m", "venv", home / "venv")
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *(words or ("--requirement", requirements)))
        (home / "installed").write_text(state)
    return python


def install_with_npm(home: Path, source: Path) -> Path:
    """Installs what the package-lock.json in `source` names into `home`, without running its scripts."""
    require("packages of node", "node", "npm")
    marker = home / "node_modules"
    state = (source / "package-lock.json").read_text() + output("node", "--version")
    if not is_installed(marker, state):
        print(f"installing {(source / 'package-lock.json').relative_to(ROOT)} into {home}")
        home.mkdir(parents=True, exist_ok=True)
        if home != source:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(source / name, home)
        run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error", cwd=home)
        (marker / "installed").write_text(state)
    return home


def cases(title: str, kinds: list[str], *adapter: object) -> bool:
    """Runs the cases of clients/specification of these kinds, with a client's adapter or, without one, on the server itself."""
    if sys.version_info < (3, 10):
        skip("the cases of clients/specification: their runner needs Python 3.10 or newer")
    words = [word for kind in kinds for word in ("--on", kind)]
    return not status_of(sys.executable, "-B", ROOT / "clients/specification/runner", "--title", title, *words, *(["--", *adapter] if adapter else []))


ALL_CASES, SERVER_CASES = ["scripted", "real", "cluster"], ["real", "cluster"]
