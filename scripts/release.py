"""Signs the notes of a release, and checks them.

    python scripts/release.py key FILE            write a new signing key to FILE, its public half to FILE.pub
    python scripts/release.py sign KEY [FOLDER]   write FOLDER/forestay-VERSION.md and its signature beside it
    python scripts/release.py verify NOTES PUB    check the signature, and every file that the notes name

- N1  The notes name each file of the release with its SHA-256, and have the version's section of CHANGELOG.md.
- N2  The signature is the 64 bytes of Ed25519 over the notes' bytes, so `openssl pkeyutl` can check it too.
- N3  The same files, changes and key give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tomllib
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ROOT = Path(__file__).parents[1]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
_LISTED = re.compile(r"^\| `([^`/]+)` \| `([0-9a-f]{64})` \|$", re.MULTILINE)


class Refused(Exception):
    """Says why a release is not signed, or does not match its notes."""


def make_key(path: Path) -> None:
    """Write a new key that only its owner can read; never replace an existing key."""
    key = Ed25519PrivateKey.generate()
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(key.private_bytes(serialization.Encoding.PEM, *form))
    except FileExistsError:
        raise Refused(f"{path} exists already; a key is never replaced.") from None
    path.with_name(path.name + ".pub").write_bytes(key.public_key().public_bytes(*public))


def notes(changelog: str, version: str, files: list[Path]) -> str:
    """Return the text to sign (N1)."""
    found = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    if found is None:
        raise Refused(f"CHANGELOG.md has no section for {version}.")
    if not any(file.suffix == ".whl" for file in files):
        raise Refused("There is no wheel to release: run `make wheel` first.")
    rows = [f"| `{file.name}` | `{hashlib.sha256(file.read_bytes()).hexdigest()}` |" for file in sorted(files)]
    table = "\n".join(["| file | SHA-256 |", "|---|---|", *rows])
    return f"# forestay {version}\n\n{table}\n\n{found[1].strip()}\n"


def sign(key: Path, folder: Path) -> Path:
    """Write the notes of the files in `folder`, and their signature; return the path of the notes."""
    if not key.is_file():
        raise Refused("Name the file of the signing key: `make release KEY=FILE`.")
    files = [*folder.glob(f"forestay-{VERSION}-*.whl"), *folder.glob("*.cdx.json")]
    text = notes((ROOT / "CHANGELOG.md").read_text("utf-8"), VERSION, files).encode()
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    if not isinstance(private, Ed25519PrivateKey):
        raise Refused(f"{key} is not an Ed25519 key.")
    written = folder / f"forestay-{VERSION}.md"
    written.write_bytes(text)
    written.with_name(written.name + ".sig").write_bytes(private.sign(text))
    return written


def verify(written: Path, public: Path) -> list[str]:
    """Return the names of the files that match the signed notes; raise `Refused` when one does not."""
    text = written.read_bytes()
    key = serialization.load_pem_public_key(public.read_bytes())
    if not isinstance(key, Ed25519PublicKey):
        raise Refused(f"{public} is not an Ed25519 key.")
    try:
        key.verify(written.with_name(written.name + ".sig").read_bytes(), text)
    except InvalidSignature:
        raise Refused(f"{written.name} was not signed with this key, or was changed since.") from None
    listed = _LISTED.findall(text.decode())
    for name, digest in listed:
        file = written.with_name(name)
        if not file.is_file():
            raise Refused(f"{name} is not beside its notes.")
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise Refused(f"{name} is not the file that was signed.")
    return [name for name, _ in listed]


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["key", path]:
                make_key(Path(path))
            case ["sign", key, *folder] if len(folder) < 2:
                print(sign(Path(key), Path(*folder or ["dist"])))
            case ["verify", written, public]:
                print("Signed, and as signed:", *verify(Path(written), Path(public)))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (Refused, OSError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
