#!/bin/sh
# Needs: pip install componentize-py
set -e
cd "$(dirname "$0")"
componentize-py --wit-path wit --world pi-extension componentize extension --output extension.wasm
