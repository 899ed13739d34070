"""The OpenWOP surface: `/.well-known/openwop` and `/v1`."""
