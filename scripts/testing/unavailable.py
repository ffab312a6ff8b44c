"""Which ignored tests this machine cannot run, because a library, a server, an operating system or a permission is missing. A new reason
to ignore a test needs a line here and in CONTRIBUTING.md."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from machine import IS_LINUX, output, servers, version


def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False).returncode:
            return False
        return subprocess.run(["umount", folder], check=False).returncode == 0


def defragments(server: str) -> bool:
    """Whether a server was built with active defragmentation. Without it, it rejects the first line; the second is always invalid."""
    answer = subprocess.run([server, "-"], input=b"activedefrag yes\nport none\n", capture_output=True, check=False)
    return b"port none" in answer.stdout + answer.stderr


def may_have_huge_pages() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[madvise]" in setting.read_text() and version(os.uname().release) >= (6, 1)


def unavailable() -> list[str]:
    """Prints the missing requirements. Returns the words with which cargo's test runner skips the tests that need them."""
    environment = os.environ.get
    requirements = [
        (environment("BLOOMGATE_PEERS"), "tests beside RedisBloom itself: BLOOMGATE_PEERS names no folder with its libraries", "peers:: redisbloom_itself"),
        (environment("BLOOMGATE_OLD_SERVER"), "a server older than 7.0: BLOOMGATE_OLD_SERVER names none", "older_than_7"),
        (environment("BLOOMGATE_GOLDEN"), "golden data of a new release: BLOOMGATE_GOLDEN is not set", "data_of_this_version_is_written"),
        (environment("BLOOMGATE_OTHER_SERVER"), "a replica on another processor: BLOOMGATE_OTHER_SERVER names none", "on_another_processor"),
        (may_mount(), "full disks: this user may not mount a file system", "disk::"),
        (any(map(defragments, servers())), "active defragmentation: no server has it", "defragmentation:: values_that_the_server_defragments"),
        (
            any("Valkey server v=9" in output(server, "--version") for server in servers()),
            "CLUSTER MIGRATESLOTS: no server is Valkey 9",
            "slot_migration_copies_every_filter no_add_is_lost_while_slots_migrate",
        ),
        (may_have_huge_pages(), "huge pages: they need Linux 6.1, and the setting madvise", "huge_pages::huge_pages_"),
        (Path("/usr/lib/galera/libgalera_smm.so").exists(), "Galera: its library is missing", "a_node_of_galera"),
        (
            IS_LINUX,
            "tests that read /proc or preload a library: this is not Linux",
            "clock:: one_thread_frees without_a_limit_it_is holds_a_record_once q_restores_the_terminal",
        ),
    ]
    words: list[str] = []
    for is_met, reason, names in requirements:
        if not is_met:
            print(f"SKIPPED: {reason}")
            words += [word for name in names.split() for word in ("--skip", name)]
    return words
