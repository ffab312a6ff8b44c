"""Fuzzes every decoder of untrusted bytes: snapshots, dumps, the argument of BF.LOAD, and the arguments of commands (fuzz/README.md)."""

from __future__ import annotations

import base64
import gzip
import os
import re
import shutil
import time
from pathlib import Path

from machine import IS_LINUX, ROOT, TARGET, fail, has, headline, require_nightly, run, servers, skip, status_of
from memory import wrapped_servers

WORK = TARGET / "fuzz-work"
ALL = sorted(file.stem for file in (ROOT / "fuzz/fuzz_targets").glob("*.rs"))
LIMITS = ["-rss_limit_mb=1024", "-malloc_limit_mb=64", "-timeout=30", "-max_len=8192"]


def corpus(*words: object) -> None:
    run("cargo", "run", "--locked", "--quiet", "-p", "bloomgate-filter", "--example", "corpus", "--", *words)


def prepare_server(host: str) -> None:
    """For the target `restore`, which sends its inputs to a server that exits with the fuzzer. The module is built with coverage counters,
    in a separate folder because its compiler flags differ."""
    flags = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    build = ["rustup", "run", "nightly", "cargo", "build", "--locked", "--release", "--manifest-path", "fuzz/Cargo.toml"]
    build += ["--package", "counted-module", "--target", host, "--target-dir", str(TARGET / "fuzz-module")]
    run(*build, RUSTFLAGS=f"{flags} -Ccodegen-units=1 -Cdebug-assertions")
    os.environ["BLOOMGATE_MODULE"] = str(TARGET / f"fuzz-module/{host}/release/libcounted_module.so")
    os.environ["BLOOMGATE_SERVERS"] = wrapped_servers(WORK / "servers", "setpriv --pdeathsig KILL", servers())
    # Removes the folders of servers that were killed in the previous run.
    shutil.rmtree(WORK / "tmp", ignore_errors=True)
    (WORK / "tmp").mkdir(parents=True)
    os.environ["TMPDIR"] = str(WORK / "tmp")


def fuzz_target(name: str, seconds: str) -> tuple[str, int, bool]:
    """Fuzzes a target. Returns a line of the table, the executions, and whether an input violated a law."""
    log, artifacts, began = WORK / f"{name}.log", WORK / f"{name}-artifacts", time.monotonic()
    # Found inputs stay in a separate folder from run to run; the kept inputs are only read.
    for folder in (WORK / name, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    headline(name)
    command = f"rustup run nightly cargo fuzz run --target-dir '{TARGET}/fuzz' {name} '{WORK}/{name}' '{WORK}/kept/{name}' --"
    options = f"-max_total_time={seconds} -print_final_stats=1 -artifact_prefix='{artifacts}/' {' '.join(LIMITS)}"
    has_crashed = status_of("sh", "-c", f"{command} {options} >'{log}' 2>&1") != 0
    text = log.read_text(errors="replace")

    def number(pattern: str) -> int:
        return int((re.findall(pattern, text) or ["0"])[-1])

    if has_crashed:
        panic = re.search(r".* panicked at (.*\n){4}", text)
        print(panic[0] if panic else "\n".join(text.splitlines()[-40:]))
        found = re.findall(r"Test unit written to (.*)", text)
        print(f"input: {found[-1] if found else 'none was written'}, log: {log}")
        # Prints the input itself, because after a run in CI only the output remains.
        if found and Path(found[-1]).stat().st_size <= 8192:
            print(base64.encodebytes(gzip.compress(Path(found[-1]).read_bytes())).decode())
    print(*re.findall(r"^not guided.*", text, re.M), sep="\n")
    executions = number(r"stat::number_of_executed_units: *(\d+)")
    coverage, features = number(r" cov: (\d+)"), number(r" ft: (\d+)")
    figures = f"{name:22} {executions:12} {coverage:9} {features:9} {time.monotonic() - began:6.0f}"
    return f"{figures}  {'FAILED' if has_crashed else 'ok'}", executions, has_crashed


def fuzz(*words: str) -> None:
    """[SECONDS] [TARGET...], or unpack|pack FOLDER [TARGET...]: fuzzes each decoder for SECONDS (20), or unpacks the kept inputs to
    FOLDER/TARGET, or packs them again"""
    task = words[:2] if words[:1] in (("pack",), ("unpack",)) else ()
    if len(task) == 1:
        fail(f"{task[0]} needs a folder")
    rest = list(words[len(task) :])
    seconds = rest.pop(0) if not task and rest and re.fullmatch("[1-9][0-9]*", rest[0]) else "20"
    for name in rest:
        if name not in ALL:
            fail(f"`{name}` is neither a number of seconds nor a target; the targets:", *ALL)
    targets = rest or ALL
    if task:
        return corpus(*task, *targets)
    if not has("cargo-fuzz"):
        run("cargo", "test", "--locked", "-p", "bloomgate-filter", "--test", "laws", "corpus::")
        skip("nothing was fuzzed: cargo-fuzz is missing", "scripts/setup --fuzz installs it")
    host, left_out = require_nightly(), ""
    if "restore" in targets:
        if IS_LINUX and has("setpriv") and servers():
            prepare_server(host)
        else:
            targets, left_out = [name for name in targets if name != "restore"], "the target restore, which needs Linux, a server and setpriv"
    run("rustup", "run", "nightly", "cargo", "fuzz", "build", "--target-dir", TARGET / "fuzz")
    shutil.rmtree(WORK / "kept", ignore_errors=True)
    corpus("unpack", WORK / "kept", *targets)
    rows = [fuzz_target(name, seconds) for name in targets]
    headline(f"{'target':22} {'executions':>12} {'coverage':>9} {'features':>9} {'time':>6}")
    print(*[line for line, _, _ in rows], sep="\n")
    print(f"figures: fuzzing: {sum(executions for _, executions, _ in rows)} executions of {len(rows)} targets")
    if any(has_crashed for _, _, has_crashed in rows):
        fail("an input violated a law (see above)", "fuzz/README.md explains how to keep it")
    if left_out:
        skip(left_out)
