"""Node packs as WASM core modules, by the ABI of OpenWOP's RFC 0008."""
