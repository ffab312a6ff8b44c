# shellcheck shell=bash
# Sourced by scripts/package --test after it has built the packages: checks them, and installs them in a fresh Debian.

: "${packages:?scripts/package sources this file}" "${files:?}" "${target:?}" "${module:?}" "${profile:?}"

# The Debian release of this machine, because the tool in the packages is built with its C library.
suite=$(
  # shellcheck source=/dev/null
  source /etc/os-release
  say "${VERSION_CODENAME:-stable}"
)

headline "The other packaging files"
# Each is checked if the tool for it is installed.
python3 - .github/workflows/*.yml <<'END'
import hashlib, pathlib, re, subprocess, sys, tempfile
try:
    import yaml
except ImportError:
    sys.exit(print("  this Python has no yaml module: the workflows are not checked"))
for name in sys.argv[1:]:
    workflow = yaml.safe_load(open(name))
    jobs = workflow["jobs"]
    assert all(job["steps"] and job["runs-on"] for job in jobs.values()), name
    assert workflow["permissions"] == {"contents": "read"}, f"{name}: jobs may write by default"
    for line in open(name):
        if "uses:" in line:
            assert re.search(r"@[0-9a-f]{40} # v\d", line), f"{name}: not pinned by commit: {line.strip()}"
    print(f"  {name}: {', '.join(jobs)}")
    if name.endswith("release.yml"):
        rights = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
        assert rights == {
            "release": {"contents": "write", "id-token": "write", "attestations": "write"},
            "push-image": {"packages": "write"},
        }, f"jobs have other rights than they need: {rights}"
        assert set(jobs["release"]["needs"]) == set(jobs) - set(rights), "the release does not wait for every other job"
        assert jobs["push-image"]["needs"] == ["release"], "the image does not wait for the release"
        assert "scripts/test" in [step.get("run") for step in jobs["test"]["steps"]], "the release does not run the tests"
        with tempfile.TemporaryDirectory() as folder:
            packages = pathlib.Path(folder) / "packages"
            packages.mkdir()
            # What scripts/package --release writes, and a file of another host.
            (packages / "file").write_text("text")
            (packages / "SHA256SUMS").write_text(f"{hashlib.sha256(b'text').hexdigest()}  file\n")
            (packages / "RELEASE-NOTES.md").write_text("notes")
            (packages / "macos").write_text("text")
            for step in jobs["release"]["steps"]:
                if "SHA256SUMS" in step.get("run", "") and "gh release" not in step["run"]:
                    subprocess.run(["sh", "-ec", step["run"]], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            # Users download the files into one folder.
            names = [line.split()[1] for line in open(f"{folder}/SHA256SUMS")]
            assert names == ["file", "macos"], f"SHA256SUMS names {names}"
END
(scripts/package --check-tag "v$(version)")
! (scripts/package --check-tag v0.0.0) 2>/dev/null || fail "scripts/package --check-tag accepts any tag"
crates=$(cargo metadata --locked --offline --no-deps --format-version 1 | python3 -c '
import json, sys
for crate in json.load(sys.stdin)["packages"]:
    if crate["publish"] == []:
        continue
    assert crate["repository"], "the crate " + crate["name"] + " has no repository"
    print(crate["name"], end=" ")')
for crate in $crates; do
  for file in LICENSE-MIT LICENSE-APACHE README.md; do
    cargo package --offline --allow-dirty --list -p "$crate" | grep -x "$file" >/dev/null || fail "the crate $crate has no $file"
  done
done
say "  the crates ${crates% }: licences, READMEs, a repository"
# The files that the Containerfile copies must be enough for cargo.
copied=$packages/copied
rm -rf "$copied"
mkdir -p "$copied"
while read -r file; do
  [ -e "$file" ] || fail "packaging/Containerfile copies $file, which does not exist"
  cp -R "$file" "$copied"
done < <(sed -n '/--from=/d; s/^COPY \(.*\) [^ ]*$/\1/p' packaging/Containerfile | tr ' ' '\n')
cargo metadata --locked --offline --no-deps --format-version 1 --manifest-path "$copied/Cargo.toml" >/dev/null
rm -r "$copied"
say "  packaging/Containerfile: the files that it copies exist, and form a workspace"
# The entry point of Redis 8 loads every library in a folder. A copy of the module stands in for RedisBloom, which has the same
# commands.
if have redis-server; then
  image=$(mktemp -d "${TMPDIR:-/tmp}/bloomgate.XXXXXX")
  folder=$image/usr/local/lib/redis/modules
  mkdir -p "$folder"
  cp "$module" "$folder/redisbloom.so"
  sed -n "s|^RUN rm -f /usr/local/lib|rm -f $image/usr/local/lib|p" packaging/Containerfile | sh -e
  words=(--loadmodule "$module")
  for library in "$folder"/*.so; do [ ! -e "$library" ] || words+=(--loadmodule "$library"); done
  use_in_server redis-server "${words[@]}"
  rm -r "$image"
  say "  packaging/Containerfile: the server starts with the remaining libraries of Redis 8"
fi
[ "$(scripts/package --notes "$(version)" | head -n 1)" != '' ]
if have systemd-analyze && [ -e /lib/systemd/system/redis-server.service ]; then
  units=$packages/units
  mkdir -p "$units/redis-server.service.d"
  cp /lib/systemd/system/redis-server.service "$units"
  cp packaging/debian/redis-server.service.d.conf "$units/redis-server.service.d/50-bloomgate.conf"
  SYSTEMD_UNIT_PATH=$units: systemd-analyze verify redis-server.service 2>"$packages/units.log" || true
  ! grep -F -e bloomgate "$packages/units.log" || fail "systemd rejects the drop-in (see above)"
  rm -r "$units"
  say "  packaging/debian/redis-server.service.d.conf: systemd accepts it"
fi
if have systemd-analyze; then
  # The units run a program of the PATH, which need not be installed on this machine.
  units=$packages/units
  mkdir -p "$units"
  for unit in packaging/*.service; do
    sed "s|^ExecStart=bloomgate|ExecStart=$target/$profile/bloomgate|" "$unit" >"$units/${unit##*/}"
  done
  for unit in bloomgate-follow@shop.service bloomgate-web.service; do
    SYSTEMD_UNIT_PATH=$units: systemd-analyze verify --man=no "$unit" || fail "systemd rejects $unit (see above)"
    systemd-analyze security --offline=true --no-pager --threshold=20 "$units/${unit/shop/}" >"$packages/units.log" ||
      fail "$unit lost a part of its sandbox:" "$(grep -e ✗ -e → "$packages/units.log")"
    say "  $unit: systemd accepts it, and its sandbox"
  done
  rm -r "$units"
fi
if have lintian; then
  # The suppressed tags concern what packages from cargo-deb, outside the Debian archive, cannot have.
  lintian --fail-on error --allow-root --suppress-tags no-manual-page,initial-upload-closes-no-bugs,bogus-mail-host-in-debian-changelog \
    "$packages"/*.deb || fail "lintian found errors (see above)"
  say "  lintian: no errors"
fi

tar -tzf "$packages"/bloomgate-*.tar.gz | grep -c '/bloomgate-.*\.service$' | grep -qx 2 || fail "the archive lacks a unit"

headline "cargo install"
folder=$(mktemp -d "${TMPDIR:-/tmp}/bloomgate.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cargo install --locked --quiet --profile tools --target-dir "$target" --path crates/tool --root "$folder/cargo" --no-track
"$folder/cargo/bin/bloomgate" --version
rm -r "$folder"

headline "Install them in a fresh Debian ($suite)"
# shellcheck source-path=SCRIPTDIR source=test-debian.sh
source packaging/test-debian.sh
use_in_debian "$suite" "$(dpkg --print-architecture)" "$packages"/*.deb
