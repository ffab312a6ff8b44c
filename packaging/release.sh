# shellcheck shell=bash
# Sourced by scripts/package --release: makes what a release publishes, all of it in one folder, and checks each file as the registry
# that gets it would. Nothing is uploaded.

: "${packages:?scripts/package sources this file}" "${files:?}" "${target:?}" "${cross:?}" "${library_targets:?}"

release=$packages/release

# make_system PROCESSOR: makes the packages and the archive for Linux on a processor.
make_system() {
  local triple=$1-unknown-linux-gnu
  headline "Packages for $1"
  zig_cargo "$triple" build --release -p bloomgate-tool --bin bloomgate
  check_needs "$triple" "$cross/$triple/release/bloomgate"
  stage "$(library "$triple")" "$cross/$triple/release/bloomgate"
  # The pages are equal on all processors.
  [ "$1" != "$(uname -m)" ] || write_pages "$files/bloomgate"
  make_packages "$1"
}

# make_python: builds the source archive of the Python package, and the wheel from it.
make_python() {
  local home=$packages/python
  virtual_environment "$home" packaging/python.txt
  "$home/bin/python" -m build --no-isolation --outdir "$release" clients/python >"$packages/python.log" 2>&1 ||
    fail "the Python package could not be built:" "$(tail -n 20 "$packages/python.log")"
  "$home/bin/python" -m twine --no-color check --strict "$release"/*.whl "$release/bloomgate-$(version).tar.gz"
}

# make_typescript: packs the TypeScript package.
make_typescript() (
  cd clients/typescript || exit
  npm ci --no-audit --no-fund --ignore-scripts --loglevel error
  rm -rf .build dist
  npm run --silent build
  node package.mjs "$release"
)

# make_crates: packs the crates, compiles each from its package, and has cargo check what it would upload, in the order in which they
# depend on each other.
make_crates() {
  rm -rf "$target/package"
  # `testing` is for this workspace alone.
  cargo package --locked --workspace --exclude testing --quiet
  # It leaves no .crate files, and has nothing to compile that the line before did not.
  cargo publish --locked --workspace --dry-run --no-verify --quiet
  cp "$target"/package/*.crate "$release"
  (cd "$release" && ls ./*.crate)
}

# make_materials PROCESSOR: writes from which crates the module and the tool were made, those that only compiled them included, in
# CycloneDX's format. The command writes next to each Cargo.toml, so it runs on a copy.
make_materials() {
  local copy=$packages/materials name
  rm -rf "$copy"
  mkdir -p "$copy"
  cp -R Cargo.toml Cargo.lock src crates benches "$copy"
  cargo cyclonedx --quiet --manifest-path "$copy/Cargo.toml" --format json --describe binaries --spec-version 1.5 \
    --target "$1-unknown-linux-gnu"
  name=$release/bloomgate-$(version)-$1-linux
  # The names inside contain the path of the copy.
  sed "s|$copy/*||g" "$copy"/bloomgate_cdylib*.cdx.json >"$name-module.cdx.json"
  sed "s|$copy/*||g" "$copy/crates/tool/bloomgate_bin.cdx.json" >"$name-tool.cdx.json"
  rm -r "$copy"
  grep -q '"name": "bloomgate-filter"' "$name-module.cdx.json" || fail "the list of the module's crates lacks the filter"
}

have npm || skip "npm is missing, which packs the TypeScript package" "scripts/setup --release installs it"
node_wanted=$(wanted clients/typescript/package.json '.*"node": ">=\([0-9.]*\)".*')
at_least "$(node --version | tr -d v)" "$node_wanted" || skip "node is version $(node --version); the TypeScript package needs $node_wanted"
have cargo-cyclonedx || skip "cargo-cyclonedx is missing" "scripts/setup --release installs it"
changed=$(git status --porcelain)
[ -z "$changed" ] || fail "a release is made from a commit, and these files differ from the last one:" "$changed"

rm -rf "$release" "$packages"/*.{deb,tar.gz}
mkdir -p "$release"
# First, because it fails if the changelog has no section about the version.
awk -v version="$(version)" '/^## / { inside = index($0, "## [" version "]") == 1; next } inside' CHANGELOG.md |
  sed -e '/./,$!d' >"$release/RELEASE-NOTES.md"
[ -s "$release/RELEASE-NOTES.md" ] || fail "CHANGELOG.md has no section [$(version)]"
headline "The module for every Linux"
make_libraries
# This machine's processor comes first, because its tool writes the manual pages for both.
make_system "$(uname -m)"
for processor in x86_64 aarch64; do [ "$processor" = "$(uname -m)" ] || make_system "$processor"; done
mv "$packages"/*.{deb,tar.gz} "$packages/libbloomgate-$(version)"-*.so "$release"
headline "The Python package"
make_python
headline "The TypeScript package"
make_typescript
headline "The crates"
make_crates
headline "What they are made of"
for processor in x86_64 aarch64; do make_materials "$processor"; done
headline "Checksums"
(cd "$release" && find . -type f ! -name RELEASE-NOTES.md -printf '%P\n' | sort | xargs sha256sum >"$packages/SHA256SUMS")
mv "$packages/SHA256SUMS" "$release"
cat "$release/SHA256SUMS"
say "${release#"$root"/}: $(wc -l <"$release/SHA256SUMS") files, $(du -sh "$release" | cut -f 1)"
