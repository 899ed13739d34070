"""Declared, inferred, observed: what differs is told."""

from __future__ import annotations

from forestay.extensions.compiler.drift import Drift, drift


def test_each_kind_of_drift():
    assert drift(["read", "ui"], ["read", "http"], ["exec", "http"]) == Drift(("http",), ("ui",), ("exec",))


def test_no_declaration_is_no_drift():
    assert drift(None, ["read"]) == Drift((), (), ())
    assert not drift(["read"], ["read"], ["read"])
    assert drift(None, ["read"], ["exec"])
