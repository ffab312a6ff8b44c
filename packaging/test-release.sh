# shellcheck shell=bash
# Sourced by scripts/package --test-release: uses what --release made for this machine's processor, as it will be published.

: "${packages:?scripts/package sources this file}" "${processor:?}" "${root:?}"

# shellcheck source-path=SCRIPTDIR source=test-debian.sh
source packaging/test-debian.sh

release=$packages/release
[ -s "$release/SHA256SUMS" ] || fail "${release#"$root"/} has no release" "scripts/package --release makes it"
(cd "$release" && sha256sum --check --strict --quiet SHA256SUMS)

headline "Load the library in each server"
use_every_server
while read -r program; do
  use_in_server "$program" --loadmodule "$release/libbloomgate-$(version)-$processor-linux-gnu.so"
  say "  $("$program" --version | cut -d ' ' -f 1-3)"
done < <(list_servers)

architecture=$(dpkg --print-architecture)
for suite in bookworm trixie; do
  headline "Install the packages in a fresh Debian ($suite)"
  use_in_debian "$suite" "$architecture" "$release"/*_"$architecture".deb
done
