"""The tests of the clients: each language's package, all of them before one judge, other libraries, and the page in a browser. Their
requirements come from the registries, in the versions pinned in the tests' folders, and later runs reuse them."""

from __future__ import annotations

import os
import re
import shutil
import xml.etree.ElementTree as xml
from pathlib import Path

from machine import (
    ALL_CASES, ROOT, SERVER_CASES, TARGET, TOOL, cases, fail, headline, install_with_npm, module, output, require, require_go,
    require_java, require_node, require_php, run, servers, skip, status_of, use_server, version, virtual_environment, wanted,
)

FIRST_ONLY = "BLOOMGATE_SERVERS" not in os.environ
"""By default, the packages are tested on the first server of the PATH. On all but the first, only tests run that need a server."""


def package_servers() -> list[str]:
    module()
    return servers()[:1] if FIRST_ONLY else servers()


def only_specification(words: tuple[str, ...], *others: str) -> bool:
    if len(words) > 1 or any(word not in ("--specification", *others) for word in words):
        fail(f"unknown words: {' '.join(words)}")
    return words == ("--specification",)


def no_words(words: tuple[str, ...]) -> None:
    if words:
        fail(f"unknown words: {' '.join(words)}")


def end(*have_passed: bool) -> None:
    if not all(have_passed):
        raise SystemExit(1)


def python(*words: str) -> None:
    """[--specification] the wheel of clients/python as a user installs it: tests, mypy, older versions of redis-py, the specification"""
    package = ROOT / "clients/python"
    specification, requirements = only_specification(words), ROOT / "clients/python/tests/requirements.txt"
    programs = package_servers()
    if not specification:
        require("the Python package", "initdb")
        os.environ["BLOOMGATE_TOOL"] = str(TOOL if TOOL.exists() else fail(f"there is no tool at {TOOL}", "cargo build -p bloomgate-tool makes it"))
    # The specification needs few of the requirements.
    few = ("--constraint", requirements, "redis", "build", "hatchling") if specification else ()
    home = TARGET / ("python-specification" if specification else "python")
    interpreter = virtual_environment(home, requirements, *few)
    # Keeps compiled files out of the source tree.
    os.environ["PYTHONPYCACHEPREFIX"] = str(home / "cache")
    shutil.rmtree(home / "dist", ignore_errors=True)
    # Builds the wheel from the source package, so that both are tested.
    run("sh", "-c", f"'{interpreter}' -m build --no-isolation --outdir '{home}/dist' '{package}' >'{home}/log' 2>&1 || {{ tail -n 20 '{home}/log'; exit 1; }}")
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run(*pip, "--force-reinstall", "--no-index", *(home / "dist").glob("*.whl"))
    use_server("The Python package", programs[0])
    if not specification:
        run(interpreter, "-m", "mypy", "--strict", "--config-file", package / "pyproject.toml", "--cache-dir", home / "mypy", package / "src")
        pytest = [interpreter, "-m", "pytest", "-q", "-rsx", "-p", "no:cacheprovider", "-c", package / "pyproject.toml"]
        run(*pytest, package / "tests")
        for release in ("6.4.0", "7.1.0"):
            older = home / f"redis-{release}"
            if not older.is_dir():
                run(*pip, "--target", older, f"redis=={release}")
            headline(f"The Python package on redis-py {release}")
            run(*pytest, *(package / f"tests/test_{name}.py" for name in ("readme", "hung", "near")), PYTHONPATH=older)
    passed, kinds = True, ALL_CASES
    for server in programs[:1] if specification else programs:
        use_server("The specification in Python", server)
        for flavour in ("threads", "tasks"):
            passed &= cases(f"Python in {flavour}", kinds, interpreter, package / "tests/adapter.py", flavour)
        kinds = SERVER_CASES
    end(passed)


def typescript(*words: str) -> None:
    """[--specification] clients/typescript on node-redis and ioredis: format, lints, types, documentation, tests, the specification"""
    package, specification, node, programs = ROOT / "clients/typescript", only_specification(words), require_node(), package_servers()
    if not specification:
        require("the TypeScript package", "initdb")
    headline(f"The TypeScript package, node {node}")
    build_typescript()
    run("npx", "--no-install", "tsc", cwd=package)
    if not specification:
        run("npx", "--no-install", "biome", "ci", "--colors=off", ".", cwd=package)
        run("npx", "--no-install", "typedoc", "--logLevel", "Warn", cwd=package)
    passed, kinds, tests = True, ALL_CASES, sorted((package / ".build/test").glob("*.test.js"))
    for server in programs:
        use_server("The TypeScript package", server)
        if not specification:
            passed &= not status_of("node", "--test", "--test-reporter=./.build/test/reporter.js", *tests, cwd=package)
        for library in ("redis", "ioredis"):
            passed &= cases(f"TypeScript with {library}", kinds, "node", package / ".build/test/adapter.js", library)
        tests, kinds = [package / f".build/test/{name}.test.js" for name in ("filter", "guard", "near")], SERVER_CASES
    end(passed)


def build_typescript() -> None:
    package = ROOT / "clients/typescript"
    install_with_npm(package, package)
    for folder in (".build", "dist"):
        shutil.rmtree(package / folder, ignore_errors=True)
    run("npm", "run", "--silent", "build", cwd=package)


def go(*words: str) -> None:
    """clients/go: format, lints, tests with the race detector, examples, the specification"""
    no_words(words)
    require_go()
    package, adapter, programs = ROOT / "clients/go", TARGET / "go/adapter", package_servers()
    if unformatted := output("gofmt", "-l", ".", cwd=package):
        fail(f"gofmt would change: {unformatted}")
    run("go", "vet", "./...", cwd=package)
    run("go", "run", "honnef.co/go/tools/cmd/staticcheck@v0.8.2", "./...", cwd=package)
    run("go", "build", "-race", "-o", adapter, "./internal/adapter", cwd=package)
    passed, kinds, without = True, ALL_CASES, list[str]()
    for server in programs:
        use_server("The Go module", server)
        log = adapter.parent / "log"
        # Most tests are waiting most of the time: run 16 in parallel.
        command = ["go", "test", "-race", "-v", "-count", "1", "-parallel", "16", *without, "./..."]
        status = status_of("sh", "-c", '"$@" >"$0" 2>&1', log, *command, cwd=package)
        text = log.read_text(errors="replace")
        if status:
            print(text)
        for outcome, word in (("pass", "PASS"), ("fail", "FAIL"), ("skipped", "SKIP")):
            print(outcome, len(re.findall(rf"^ *--- {word}: ", text, re.M)))
        passed &= not status and cases("Go", kinds, adapter)
        without, kinds = ["-skip", "^TestScripted"], SERVER_CASES
    end(passed)


def php(*words: str) -> None:
    """[--specification] clients/php on phpredis and Predis: syntax, tests, pages, the specification"""
    specification, package, programs = only_specification(words), ROOT / "clients/php", package_servers()
    found = require_php()
    for file in sorted(path for folder in ("src", "tests") for path in (package / folder).rglob("*.php")):
        run("sh", "-c", 'php -l "$0" >/dev/null', file)
    passed, kinds = True, ["scripted", "real"]
    for server in programs:
        use_server(f"The PHP package, PHP {found}", server)
        # Some tests have no filter: Valkey 8.1 and 9.0 then cache nothing.
        if not specification and server == programs[0]:
            passed &= not status_of("phpunit", "-c", "tests/phpunit.xml", cwd=package)
        for library in ("phpredis", "predis"):
            passed &= cases(f"PHP on {library}", kinds, "php", package / "tests/adapter.php", library)
        kinds = ["real"]
    end(passed)


def rust(*words: str) -> None:
    """the specification in both halves of crates/client; the other tests of the crate are the step client"""
    no_words(words)
    passed, kinds, programs = True, ALL_CASES, package_servers()
    run("cargo", "build", "--quiet", "--locked", "--workspace", "--example", "adapter")
    for server in programs:
        use_server("The specification in Rust", server)
        for half in ("threads", "tasks"):
            passed &= cases(f"Rust in {half}", kinds, TARGET / "debug/examples/adapter", half)
        kinds = SERVER_CASES
    end(passed)


JAVA = ROOT / "clients/java"
MAVEN = ["mvn", "--batch-mode", "--quiet", "-Dstyle.color=never"]


def maven_tests(*words: str) -> None:
    """Runs Maven, and prints how many tests passed as node's test runner does."""
    for report in JAVA.glob("*/target/surefire-reports"):
        shutil.rmtree(report)
    status = status_of(*MAVEN, *words, cwd=JAVA)
    counts = {"pass": 0, "fail": 0, "skipped": 0}
    for file in JAVA.glob("*/target/surefire-reports/TEST-*.xml"):
        for test in xml.parse(file).iter("testcase"):
            skipped = test.find("skipped")
            if skipped is not None:
                print("SKIPPED:", (skipped.text or "").strip().partition("TestAbortedException: ")[2].partition("\n")[0])
            has_failed = test.find("failure") is not None or test.find("error") is not None
            counts["skipped" if skipped is not None else "fail" if has_failed else "pass"] += 1
    print("", *(f"{name} {count}" for name, count in counts.items()), sep="\n")
    end(status == 0)


def on_release(release: str, *words: str) -> None:
    """Runs tests of what is compiled already, with this release of Spring Boot."""
    without = [] if release.startswith("3.") else ["-Dspring-boot.without=none"]
    maven_tests("-Dmaven.main.skip", "-Dmaven.javadoc.skip", f"-Dspring-boot.version={release}", *without, *words)


def java_cases(kinds: list[str], lettuce: str = "") -> bool:
    """Runs the cases with this version of Lettuce, or with the one in pom.xml."""
    listing = TARGET / "java/libraries"
    listing.parent.mkdir(parents=True, exist_ok=True)
    choice = [f"-Dlettuce.version={lettuce}"] if lettuce else []
    run(*MAVEN, "-pl", "bloomgate", "dependency:build-classpath", f"-Dmdep.outputFile={listing}", *choice, cwd=JAVA)
    core = JAVA / "bloomgate"
    adapter = ["java", f"-Djava.util.logging.config.file={core}/src/test/resources/logging.properties"]
    adapter += ["-cp", f"{core}/target/test-classes:{core}/target/classes:{listing.read_text()}", "io.bloomgate.Adapter"]
    title = f", Lettuce {lettuce}" if lettuce else ""
    return all([cases(f"Java, {kind}{title}", kinds, *adapter, kind) for kind in ("blocking", "asynchronous")])


def java(*words: str) -> None:
    """[--specification | --spring] clients/java: tests, documentation, the specification; --spring: the starter on each Spring Boot"""
    require_java()
    specification, programs = only_specification(words, "--spring"), package_servers()
    os.environ.setdefault("BLOOMGATE_TOOL", str(TOOL))
    releases = wanted("clients/java/pom.xml", "<spring-boot.tested>(.*)<").split()
    passed, kinds, goal = True, ALL_CASES, ["verify"]
    for server in programs:
        use_server("The Java library", server)
        if specification:
            run(*MAVEN, "test-compile", "-pl", "bloomgate", cwd=JAVA)
            passed &= java_cases(kinds)
        elif words:
            run(*MAVEN, "test-compile", cwd=JAVA)
            for release in releases:
                print("Spring Boot", release)
                tests = ["-Dtest=io.bloomgate.spring.*Test", "-Dsurefire.failIfNoSpecifiedTests=false"]
                on_release(release, "test", "-pl", "bloomgate-spring", "-am", *tests)
        else:
            is_first = goal == ["verify"]
            if is_first:
                # The starter is compiled once, against the oldest release.
                run(*MAVEN, "verify", "-DskipTests", cwd=JAVA)
            on_release(releases[-1], *goal)
            passed &= java_cases(kinds)
            for name in ("oldest", "boot4") if is_first else ():
                passed &= java_cases(["real"], wanted("clients/java/bloomgate/pom.xml", f"<lettuce.{name}>(.*)<"))
        # The starter has no separate step.
        goal, kinds = ["test", "-pl", "bloomgate"], SERVER_CASES
    end(passed)


def judge(*words: str) -> None:
    """[SECONDS] all clients at once on the same rows, while servers and clients are killed, stopped and failed over (tests/judge)"""
    seconds = int(words[0]) if len(words) == 1 and words[0].isdigit() else fail("the judge takes a number of seconds") if words else 45
    home, pins = TARGET / "judge", ROOT / "clients/python/tests/requirements.txt"
    module()
    use_server("The judge of the clients", servers()[0])
    few = [line for line in pins.read_text().splitlines() if re.match("(redis|cachetools)==", line)]
    interpreter = virtual_environment(home / "python", pins, *few)
    os.environ.update(PYTHONPATH=str(ROOT / "clients/python/src"), PYTHONDONTWRITEBYTECODE="1")

    def typescript_driver() -> str:
        require_node()
        build_typescript()
        return "node tests/judge/driver.mjs"

    def go_driver() -> str:
        require_go()
        run("go", "build", "-o", home / "go", ROOT / "tests/judge/driver.go", cwd=ROOT / "clients/go")
        return f"{home}/go"

    def java_driver() -> str:
        require_java()
        run(*MAVEN, "-pl", "bloomgate", "compile", "dependency:build-classpath", f"-Dmdep.outputFile={home}/classpath", cwd=JAVA)
        return f"java -cp clients/java/bloomgate/target/classes:{(home / 'classpath').read_text()} tests/judge/Driver.java"

    def rust_driver() -> str:
        run("cargo", "build", "--quiet", "--locked", "--workspace", "--example", "judge_driver")
        return f"{TARGET}/debug/examples/judge_driver"

    def php_driver() -> str:
        require_php()
        return "php tests/judge/driver.php"

    drivers = [f"Python, {name}={interpreter} tests/judge/{file}.py" for name, file in (("threads", "driver"), ("asyncio", "driver_tasks"))]
    near = [driver.replace("=", ", near=", 1) for driver in drivers]
    single: list[str] = []
    makers = {"TypeScript": typescript_driver, "Go": go_driver, "Java": java_driver, "Rust": rust_driver, "PHP": php_driver}
    for name, make in makers.items():
        try:
            command = make()
        except SystemExit as missing:
            if missing.code != 77:
                raise
            continue
        if name == "PHP":
            single = [f"PHP, {library}={command} {library.lower()}" for library in ("phpredis", "Predis")]
        else:
            drivers.append(f"{name}={command}")
        near += [f"{name}, near={command}"] if name == "TypeScript" else []

    def passes(title: str, *options: object) -> bool:
        print(f"\n{title}")
        log = home / "log"
        has_passed = not status_of("sh", "-c", '"$@" 2>"$0"', log, interpreter, "tests/judge/judge.py", *options)
        if not has_passed:
            print("\n".join(log.read_text(errors="replace").splitlines()[-20:]))
        return has_passed

    # Two mutated runs show that the judge can fail.
    end(*[
        passes("Changes that are not announced must be found", "--seconds", 60, "--mutation", "unannounced", *drivers, *single),
        passes("Changes that are confirmed before their commit must be found", "--seconds", 60, "--mutation", "early", *drivers, *single),
        passes("A primary and a replica", "--seconds", seconds * 2 // 3, *drivers, *single, *near),
        passes("A cluster, without PHP, whose package does not support clusters", "--seconds", seconds // 3, "--cluster", *drivers),
    ])


CONFIGURATIONS: dict[str, dict[str, list[str]]] = {
    # Filters of our own layouts have other sizes than RedisBloom's, and other numbers of buckets and evictions.
    "": {"go-redis": ["BFInfoSize"], "Jedis": ["numbersOfReserveWithACapacity"]},
    "bf.layout redisbloom": {},
}
"""Lines of a server's configuration for the libraries' own tests, and by library the tests to omit because they assert other numbers."""


def libraries(*words: str) -> None:
    """redis-py, go-redis, Jedis and node-redis with their own tests, valkey-py, redis-cli, the programs of tests/clients/libraries, examples/webmagic"""
    no_words(words)
    tests, home = ROOT / "tests/clients", TARGET / "clients"
    require("client libraries", "redis-cli")
    module()
    requirements, source = tests / "python/requirements.txt", home / "python/redis-py"
    interpreter = virtual_environment(home / "python", requirements)
    if not source.is_dir():
        # redis-py's own tests are in its source package only.
        pin = wanted("tests/clients/python/requirements.txt", "^(redis==.*)")
        run(interpreter, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "redis", "--dest", home / "python", pin)
        source.mkdir()
        run("tar", "-xzf", next((home / "python").glob("redis-*.tar.gz")), "-C", source, "--strip-components", "1")
    install_with_npm(home / "node", tests / "node")
    for name, copy in (("go", copy_go_libraries), ("java", copy_java_libraries), ("webmagic", build_webmagic)):
        # Without this file, the tests omit the programs in the language.
        (home / name / "installed").unlink(missing_ok=True)
        try:
            copy(home / name, tests / "libraries")
            (home / name / "installed").touch()
        except SystemExit as missing:
            if missing.code != 77:
                raise
    os.environ.update(PYTHONPYCACHEPREFIX=str(home / "cache"), BLOOMGATE_NODE=str(home / "node"), BLOOMGATE_CLIENTS=str(home))
    pytest = [interpreter, "-m", "pytest", "-q", "-rsx", "-p", "no:cacheprovider"]
    configured = [*pytest, "-c", tests / "python/pytest.ini"]
    for number, server in enumerate(servers()):
        use_server("Client libraries", server)
        run(*configured, tests / "python")
        run("node", "--test", "--test-reporter", "spec", *sorted((tests / "node").glob("*.test.mjs")))
        for lines, omitted in CONFIGURATIONS.items():
            print(f"The libraries' own tests, {lines or 'default configuration'}", flush=True)
            own_tests(home, pytest, lines, omitted)
        if number == 0:
            run(*configured, tests / "libraries", PYTHONPATH=tests / "python")


def own_tests(home: Path, pytest: list[object], lines: str, omitted: dict[str, list[str]]) -> None:
    """Runs the libraries' own tests of BF and CF methods with a server that has these lines of configuration. No package contains the tests of
    Jedis and node-redis, so tests/clients/suites repeats their cases."""
    tests, environment = ROOT / "tests/clients", {"BLOOMGATE_LINES": lines}
    with_server = [pytest[0], tests / "python/server.py"]
    url = "redis://127.0.0.1:{port}?socket_timeout=120"
    chosen = " and not ".join(["(bf_ or cf_ or test_create)", *omitted.get("redis-py", [])])
    redis_py = [*with_server, *pytest, "-p", "no:warnings", "-p", "published_suite", "-k", chosen, "--redis-url", url, "--redis-mod-url", url]
    for protocol, legacy in (("2", "true"), ("3", "true"), ("3", "false")):
        print(f"redis-py in RESP{protocol}, legacy_responses {legacy}", flush=True)
        words = ("--protocol", protocol, "--legacy-responses", legacy, "tests/test_bloom.py", "tests/test_asyncio/test_bloom.py")
        run(*redis_py, *words, cwd=home / "python/redis-py", PYTHONPATH=tests / "python", **environment)
    if (home / "go/installed").exists():
        words = ("-ginkgo.no-color", "-ginkgo.focus=(bloom|cuckoo) should", *(f"-ginkgo.skip={name}" for name in omitted.get("go-redis", [])))
        run(*with_server, "env", "BLOOMGATE_ADDRESS=127.0.0.1:{port}", home / "go/suite.test", *words, **environment)
    if (home / "java/installed").exists():
        print("Jedis", flush=True)
        words = (tests / "suites/CuckooFilters.java", "{port}", *omitted.get("Jedis", []))
        run(*with_server, "java", "-cp", f"{home}/java/lib/*", *words, **environment)
    run("node", "--test", "--test-reporter", "spec", tests / "suites/cuckoo.test.mjs", **environment)


def copy_go_libraries(home: Path, source: Path) -> None:
    require_go()
    if version(output("go", "env", "GOVERSION")) < version(least := wanted("tests/clients/libraries/go.mod", "^go (.*)")):
        skip(f"go-redis and rueidis: Go {least} or newer is missing")
    home.mkdir(parents=True, exist_ok=True)
    for name in ("go.mod", "go.sum"):
        shutil.copy(source / name, home)
    run("go", "mod", "download", cwd=home)
    (home / "suite").mkdir(exist_ok=True)
    published = Path(output("go", "list", "-m", "-f", "{{.Dir}}", "github.com/redis/go-redis/v9", cwd=home)) / "probabilistic_test.go"
    for file in (published, ROOT / "tests/clients/suites/suite_test.go"):
        shutil.copyfile(file, home / "suite" / file.name)
    run("go", "test", "-c", "-o", "suite.test", "./suite", cwd=home)


def copy_java_libraries(home: Path, source: Path) -> None:
    require_java()
    pom = (source / "pom.xml").read_text()
    if not (home / "pom.xml").exists() or (home / "pom.xml").read_text() != pom:
        shutil.rmtree(home, ignore_errors=True)
        run("mvn", "-q", "-B", "-f", source / "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={home}/lib")
        (home / "pom.xml").write_text(pom)


def build_webmagic(home: Path, _: Path) -> None:
    require_java()
    pom = ROOT / "examples/webmagic/pom.xml"
    if status_of(*MAVEN, "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={home}/lib"):
        skip("examples/webmagic: Maven cannot resolve WebMagic")
    run(*MAVEN, "-f", pom, "compile")


BROWSERS = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"]
BROWSERS += ["/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium"]


def page(*words: str) -> None:
    """[--pictures] the page of `bloomgate web` in Chromium; with --pictures it takes the screenshots of docs/monitoring.md again"""
    if words not in ((), ("--pictures",)):
        fail(f"unknown words: {' '.join(words)}")
    browser = os.environ.get("BLOOMGATE_CHROMIUM") or next(filter(shutil.which, BROWSERS), "")
    path = shutil.which(browser) or skip("no Chromium on the PATH", "scripts/setup --deep installs it")
    require("the page", "node", "redis-cli")
    if version(found := output("node", "--version")) < (20,):
        skip(f"node is version {found}; playwright-core needs 20 or newer")
    module()
    tests = ROOT / "tests/page"
    # playwright-core does not include a browser.
    home = install_with_npm(TARGET / "page", tests)
    if words:
        os.environ["BLOOMGATE_PICTURES"] = str(ROOT / "docs/images")
    use_server("The page in Chromium", servers()[0])
    os.environ.update(BLOOMGATE_CHROMIUM=path, BLOOMGATE_TOOL=str(TOOL), BLOOMGATE_NODE=str(home))
    run("node", "--test", "--test-reporter", "spec", *sorted(tests.glob("*.test.mjs")))
