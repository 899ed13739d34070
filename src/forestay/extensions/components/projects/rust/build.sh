#!/bin/sh
# Needs: rustc with the target wasm32-unknown-unknown (Debian: rustc libstd-rust-dev-wasm32 lld), pip install forestay
set -e
cd "$(dirname "$0")"
${RUSTC:-rustc} --edition 2021 --target wasm32-unknown-unknown -C opt-level=s -C lto -C codegen-units=1 -C panic=abort -C strip=symbols --crate-type cdylib -o core.wasm extension.rs
forestay ext wrap core.wasm --output extension.wasm
