"""QuickJS in WebAssembly: VMs, their memory, their limits, and snapshots of them (P1, P2)."""
