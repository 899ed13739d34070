#!/bin/sh
# Needs: pip install ziglang forestay
set -e
cd "$(dirname "$0")"
python -m ziglang cc -target wasm32-freestanding -O2 -nostdlib -Wl,--no-entry -o core.wasm extension.c
forestay ext wrap core.wasm --output extension.wasm
