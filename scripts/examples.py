"""Fetch the example extensions of pi 0.73.1 for the tests: one archive of 5 MB, checked against the lock.

It fetches nothing when the examples, or the whole corpus (`make corpus`), are present. Without a network or npm, it
says so, and the tests that need the examples are skipped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "corpus" / "cache" / "examples"
GROUP = "pi-0.73"
_WANTED = ("package/examples/extensions/", "package/package.json")


def main() -> int:
    lock = json.loads((ROOT / "corpus" / "lock.json").read_bytes())
    package = next(item for item in lock["packages"] if item["group"] == GROUP)
    homes = (PLACE, ROOT / "corpus" / "cache" / GROUP / "node_modules" / package["package"])
    if any((home / entry).is_file() for home in homes for entry in package["entries"][:1]):
        return 0
    try:
        _fetch(package)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        count = len(package["entries"])
        sys.stderr.write(f"The {count} example extensions cannot be fetched ({error}); their tests are skipped.\n")
    return 0


def _fetch(package: dict[str, str]) -> None:
    from forestay import assets

    npm = assets.npm_command()
    if npm is None:
        raise OSError("npm is missing")
    with tempfile.TemporaryDirectory() as folder:
        command = [*npm, "pack", "--silent", f"{package['package']}@{package['version']}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise OSError("npm pack failed; is there a network?")
        archive = Path(folder) / done.stdout.strip().splitlines()[-1]
        digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != package["integrity"]:
            raise ValueError("the archive does not match corpus/lock.json")
        beside = PLACE.with_name(".examples")
        with tarfile.open(archive) as tar:
            wanted = [item for item in tar.getmembers() if item.name.startswith(_WANTED)]
            tar.extractall(beside, members=wanted, filter="data")
        (beside / "package").rename(PLACE)
        beside.rmdir()


if __name__ == "__main__":
    sys.exit(main())
