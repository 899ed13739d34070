"""Which ledger a command is about."""

from __future__ import annotations

from pathlib import Path

from forestay.kernel import Problem, config, kept_in


def ledger_file(data: Path | None, *, make: bool, fix: str) -> Path:
    """The file that `--data` means, a folder or the file itself; `not_found` with `fix` unless it may be made."""
    path = data or Path(config.load().config.data.dir)
    with kept_in(path):
        if path.is_dir() or path.suffix != ".db":
            path = path / "ledger.db"
        if not make and not path.exists():
            raise Problem("not_found", f"There is no ledger at {path}.", fix=fix)
    return path
