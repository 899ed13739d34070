#!/bin/sh
# Needs: npm install @bytecodealliance/jco @bytecodealliance/componentize-js
set -e
cd "$(dirname "$0")"
npx jco componentize extension.js --wit wit --world-name pi-extension --disable all --out extension.wasm
