"""WASM components as extensions (Tier A): the world `pi:extension/pi-extension`, confined by the dispatcher."""
