"""What the rules' tests share."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.envelope import (
    Envelope,
    decode,
)
from forestay.kernel import Problem
from tests import forked

KEY = b"0123456789abcdef"


def forestay(folder: Path, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "XDG_CONFIG_HOME": str(folder), **environ}
    return forked.forestay(folder, *words, stdin=stdin, environ=given)


def changed(envelope: Envelope, **members: Any) -> bytes:
    return msgspec.json.encode({**msgspec.to_builtins(envelope), **members})


def refused(data: bytes) -> Problem:
    with pytest.raises(Problem) as caught:
        decode(data)
    return caught.value
