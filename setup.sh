#!/usr/bin/env bash
# Sets shaderl up on a Debian or Ubuntu machine: npm packages, a Vulkan adapter that Dawn accepts, Chromium for the
# browser tests. Asks for nothing, is safe to repeat, and says what it did. Uses sudo only where something is missing.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf 'setup: %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
apt_install() { DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -q --no-install-recommends "$@" >/dev/null; }

if ! command -v node >/dev/null; then
  say 'found no Node; shaderl needs Node 20.19 or newer (https://nodejs.org). Install it and run this again.'
  exit 2
fi
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' || {
  say "found Node $(node --version); shaderl needs 20.19 or newer. Install it and run this again."
  exit 2
}

if [ -d node_modules ] && [ node_modules/.package-lock.json -nt package-lock.json ]; then
  say 'npm packages are up to date'
else
  PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --no-audit --no-fund --loglevel=error
  say 'installed the npm packages of package-lock.json'
fi

export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"
has_adapter() { timeout 60 node cli/bin.mjs doctor --quick >/dev/null 2>&1; }

install_lavapipe() {
  . /etc/os-release
  if [ "${ID:-}" = debian ] && [ "${VERSION_CODENAME:-}" = bookworm ]; then
    # Debian 12's own Mesa (22.3) is refused by Dawn; the backports have 25.
    list=/etc/apt/sources.list.d/shaderl-backports.list
    [ -f "$list" ] || echo 'deb http://deb.debian.org/debian bookworm-backports main' | as_root tee "$list" >/dev/null
    as_root apt-get update -q >/dev/null
    apt_install -t bookworm-backports mesa-vulkan-drivers libvulkan1
  else
    as_root apt-get update -q >/dev/null
    apt_install mesa-vulkan-drivers libvulkan1
  fi
}

if has_adapter; then
  say 'a usable WebGPU adapter is there'
else
  install_lavapipe
  if has_adapter; then
    say 'installed the software adapter lavapipe (mesa-vulkan-drivers)'
  else
    say 'installed mesa-vulkan-drivers, but Dawn still finds no adapter:'
    timeout 60 node cli/bin.mjs doctor || true
    exit 3
  fi
fi

if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then
  say 'Chromium is there'
elif apt-cache show chromium >/dev/null 2>&1 && apt_install chromium; then
  say 'installed Chromium for the browser tests'
else
  say 'found no Chromium package; the browser tests will be skipped'
fi
say 'done. Next: npm start, or npm test'
