#!/bin/sh
# Needs: npm install @bytecodealliance/jco
set -e
cd "$(dirname "$0")"
npx jco componentize extension.js --wit wit/extension.wit --world-name pi-extension --backend quickjs --backend-qjs-disable-async --out extension.wasm
