"""Checks of memory accesses: the module in real servers under AddressSanitizer and under valgrind's memcheck, and the filter in miri."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from machine import LIBRARY, ROOT, TARGET, fail, headline, output, require, require_nightly, run, servers, skip, status_of
from unavailable import unavailable

MEASURE_A_PROCESS = [
    "memory::",  # resident memory
    "memory_usage_is_what_was_requested",  # how jemalloc rounds
    "a_rewrite_holds_a_record_once",  # the memory of a child of the server
    "a_header_that_announces_much",  # peak resident memory
    "a_server_that_crashed_fails",  # crashes the server on purpose
    "huge_pages::huge_pages_",  # huge pages of an ordinary process
]
"""Tests that are meaningless under a checker."""

PRELOADS = ["clock::"]
"""They preload a library, as AddressSanitizer does."""

TOO_LARGE = [
    "a_filter_of_600_mb_is_copied",
    "an_item_as_large_as_the_server",  # 512 MB
    "a_million_items_in_one_command",  # minutes, and nothing that a thousand items do not cover
    "a_capacity_above_32_bits",
    "damaged_data_is_refused_or",  # a few bytes create empty filters of gigabytes if there is no limit
]
"""Tests that request gigabytes, of which valgrind touches every byte."""


def wrapped_servers(folder: Path, command: str, programs: list[str]) -> str:
    """Returns wrappers in `folder`, as BLOOMGATE_SERVERS lists them, that run each server by a command of the shell."""
    wrappers = []
    for number, program in enumerate(programs):
        # The wrapper has the program's name, because servers inspect the name they are called by.
        wrapper = folder / str(number) / Path(program).name
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(f"#!/bin/sh\nexec {command} '{program}' \"$@\"\n")
        wrapper.chmod(0o755)
        wrappers.append(str(wrapper))
    return ":".join(wrappers)


def is_checkable(program: str) -> bool:
    """Whether a checker sees the bounds of a server's blocks: it replaces malloc, and jemalloc if that is a shared library."""
    if "jemalloc" in output("ldd", program) or b"je_malloc_conf" not in Path(program).read_bytes():
        return True
    print(f"left out: {program} is statically linked with jemalloc (a build with MALLOC=libc can be checked)")
    return False


def server_tests(work: Path, command: str, programs: list[str], left_out: list[str], words: tuple[str, ...], **environment: object) -> int:
    """Runs server tests on servers that a checker runs. Returns the status of cargo."""
    programs = list(filter(is_checkable, programs)) or skip("no server here can be checked")
    run("cargo", "build", "--locked", "--workspace", "--bin", "bloomgate", "--example", "fault_module")
    os.environ["BLOOMGATE_SERVERS"] = wrapped_servers(work, command, programs)
    # RedisBloom's libraries are not checked.
    os.environ.pop("BLOOMGATE_PEERS", None)
    skips = unavailable() + [word for name in left_out for word in ("--skip", name)]
    tests = ["cargo", "test", "--locked", "--workspace", "--no-fail-fast", "--test", "server", "--", "--include-ignored"]
    threads = ["--test-threads", os.environ["BLOOMGATE_THREADS"]] if os.environ.get("BLOOMGATE_THREADS") else []
    return status_of(*tests, *threads, *skips, *words, BLOOMGATE_WATCHED=1, **environment)


def fresh(name: str) -> tuple[Path, Path]:
    """Returns an empty folder for wrappers, and one in it for the reports of a checker."""
    work = TARGET / name
    shutil.rmtree(work, ignore_errors=True)
    (work / "logs").mkdir(parents=True)
    return work, work / "logs"


def asan(*words: str) -> None:
    """[NAME...] server tests under AddressSanitizer, with debug assertions; not on Valkey, which loads modules with RTLD_DEEPBIND"""
    host = require_nightly()
    runtime = output("cc", "-print-file-name=libasan.so")
    if not Path(runtime).is_absolute():
        skip("libasan is missing", "on Debian it is installed with gcc")
    programs = [program for program in servers() if not output(program, "--version").startswith("Valkey")]
    work, logs = fresh("asan-work")
    build = ["rustup", "run", "nightly", "cargo", "build", "--locked", "-p", "bloomgate", "--lib"]
    run(*build, "--target", host, "--target-dir", TARGET / "asan", RUSTFLAGS="-Zsanitizer=address")
    options = f"log_path={logs}/report:detect_leaks=0:allocator_may_return_null=1:abort_on_error=1:handle_segv=0"
    command = f"env LD_PRELOAD='{runtime}' ASAN_OPTIONS='{options}'"
    made = TARGET / "asan" / host / "debug" / LIBRARY
    status = server_tests(work, command, programs, MEASURE_A_PROCESS + PRELOADS, words, BLOOMGATE_MODULE=made)
    headline("AddressSanitizer")
    reports = [text for file in logs.glob("report.*") if "ERROR: AddressSanitizer" in (text := file.read_text(errors="replace"))]
    for report in reports[:5]:
        print("\n".join(report.splitlines()[:41]))
    if reports or status:
        fail(f"AddressSanitizer found {len(reports)} errors" if reports else "a test failed under AddressSanitizer (see above)", f"the reports: {logs}")
    print("no errors")


def memcheck(*words: str) -> None:
    """[NAME...] server tests under valgrind's memcheck: invalid accesses, uninitialised memory, leaks. All of them take half an hour"""
    require("memcheck", "valgrind")
    work, logs = fresh("memcheck-work")
    # The shipped module, with line numbers.
    run("cargo", "build", "--locked", "-p", "bloomgate", "--profile", "symbols", "--lib")
    # Small blocks are aligned as in jemalloc, so a filter is as large as it is elsewhere.
    command = (
        "valgrind --tool=memcheck --alignment=64 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite"
        f" --num-callers=30 --keep-debuginfo=yes --suppressions='{ROOT}/tests/server/memcheck.supp' --log-file='{logs}'/\"$(date +%s%N)\".%p.log"
    )
    effort = os.environ.get("BLOOMGATE_EFFORT", "0.05")
    os.environ.setdefault("BLOOMGATE_THREADS", str(os.cpu_count()))
    variables = {"BLOOMGATE_MODULE": TARGET / "symbols" / LIBRARY, "BLOOMGATE_EFFORT": effort}
    status = server_tests(work, command, servers(), MEASURE_A_PROCESS + TOO_LARGE, words, **variables)
    # The log of a server that its test killed has no summary, but it has the errors found until then. A server that received SIGTERM
    # before it could listen is not an error.
    texts = {file: file.read_text(errors="replace") for file in logs.glob("*.log")}
    faulty = {file: text for file, text in texts.items() if re.search(r"^(?!.*signal 15 ).*\n==\d+==    at 0x", text, re.M)}
    ended = sum("ERROR SUMMARY" in text for text in texts.values())
    for file, text in faulty.items():
        print(f"\n{file}:", *[line for line in text.splitlines() if not line.startswith("--")][:120], sep="\n")
    headline("Memcheck")
    print(f"figures: memcheck: {len(texts)} processes checked, {ended} of them until they exited, {len(faulty)} with errors")
    if not ended or faulty or status:
        reason = "memcheck found errors" if faulty else "a test failed under memcheck" if status else "no server was checked until it exited"
        fail(f"{reason} (see above)", f"the log files: {logs}")


def miri(*words: str) -> None:
    """[--all] the tests of the filter's `unsafe` code in miri, which finds invalid accesses; with --all its laws too, in an hour"""
    if words not in ((), ("--all",)):
        fail(f"unknown words: {' '.join(words)}")
    require_nightly("miri", "rust-src")
    # Tree borrows, because bitvec's references to single bits violate the older rules (stacked borrows). Isolation is off, because the
    # tests read PROPTEST_CASES from the environment. Floats are deterministic, because sizes are compared with golden values.
    flags = os.environ.get("MIRIFLAGS", "") + " -Zmiri-tree-borrows -Zmiri-disable-isolation -Zmiri-deterministic-floats"

    def tests(target: str, names: str = "", **environment: object) -> None:
        command = ["rustup", "run", "nightly", "cargo", "miri", "test", "--locked", "-p", "bloomgate-filter", "--target-dir", TARGET / "miri"]
        kind = ["--lib"] if target == "lib" else ["--test", target]
        run(*command, *kind, "--", *names.split(), MIRIFLAGS=flags, **environment)

    if words:
        tests("lib")
        corpus = "corpus::native corpus::redisbloom corpus::valkey_bloom corpus::every_error corpus::made::found corpus::made::refusals"
        tests("laws", f"general:: described:: edges:: {corpus}", PROPTEST_CASES=2)
        tests("memory", "relocation::")
    else:
        tests("lib", "cells:: geometry::counting geometry::blocked geometry::probe hash:: kinds::packed kinds::valkey_bloom format::value::tests::golden")
        tests("laws", "a_copy_lives_its_own_life::native a_copy_lives_its_own_life::redisbloom", PROPTEST_CASES=1)
