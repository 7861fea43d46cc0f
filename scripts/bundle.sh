#!/usr/bin/env bash
# Makes one archive for a bare Linux x64 GPU node without network or Node: the node binary, the app, the production
# modules with one Dawn binary, the inspector's built page, and the Vulkan loader. Unpack it and run ./shaderl doctor.
# Usage: scripts/bundle.sh [OUTPUT.tar.xz]   (default dist/shaderl-linux-x64.tar.xz)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist/shaderl-linux-x64.tar.xz}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
app="$stage/shaderl-linux-x64"
mkdir -p "$app/bin" "$app/lib" "$(dirname "$out")"

git ls-files -z -- package.json package-lock.json tsconfig.json LICENSE README.md src workers cli shaders recipes fixtures bench |
  xargs -0 cp --parents -t "$app"

# The inspector's page, built: its sources and Vite's native part stay behind.
node_modules/.bin/vite build --config browser-harness/vite.config.ts --logLevel error
mkdir -p "$app/dist"
cp -r dist/harness "$app/dist/"

# Production modules only; of Dawn the Linux x64 binary alone.
(cd "$app" && npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error)
mkdir -p "$app/node_modules/@esbuild"
cp -r node_modules/@esbuild/linux-x64 "$app/node_modules/@esbuild/"
find "$app/node_modules/webgpu/dist" -mindepth 1 -maxdepth 1 ! -name linux-x64 -exec rm -rf {} +
find "$app/node_modules" \( -name '*.map' -o -name '*.d.ts' -o -name '*.md' \) -delete

node=$(readlink -f "$(command -v node)")
cp "$node" "$app/bin/node"
strip "$app/bin/node" 2>/dev/null || true
loader=$(ldconfig -p | awk '/libvulkan\.so\.1 / && /x86-64/ {print $NF; exit}')
if [ -n "$loader" ]; then cp -L "$loader" "$app/lib/libvulkan.so.1"; fi

cat > "$app/shaderl" <<'RUN'
#!/bin/sh
# shaderl with the Node and the Vulkan loader of this folder. A node's own loader, if it has one, is used first.
here=$(cd "$(dirname "$0")" && pwd)
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/lib"
exec "$here/bin/node" "$here/cli/bin.mjs" "$@"
RUN
chmod +x "$app/shaderl"
tar -C "$stage" -c shaderl-linux-x64 | xz -T0 -6 > "$out"
echo "bundle: $out, $(du -m "$out" | cut -f1) MiB"
