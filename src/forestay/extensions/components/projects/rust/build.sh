#!/bin/sh
# Needs: rustc with the target wasm32-unknown-unknown (Debian: libstd-rust-dev-wasm32), pip install forestay
set -e
cd "$(dirname "$0")"
rustc --edition 2021 --target wasm32-unknown-unknown -C opt-level=s -C panic=abort --crate-type cdylib -o core.wasm extension.rs
forestay ext wrap core.wasm --output extension.wasm
