"""The notes of a release: signed, and checked by our script and by OpenSSL."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from scripts import release

NOTES = f"forestay-{release.VERSION}.md"
WHEEL = f"forestay-{release.VERSION}-py3-none-any.whl"


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """Where the notes of a release lie, with its files and the key beside them."""
    release.make_key(tmp_path / "release")
    (tmp_path / WHEEL).write_bytes(b"a wheel")
    (tmp_path / "sbom.cdx.json").write_text("{}")
    return release.sign(tmp_path / "release", tmp_path)


def test_n1_the_notes_name_every_file_and_what_changed(signed: Path) -> None:
    text = signed.read_text("utf-8")
    assert text.startswith(f"# forestay {release.VERSION}\n") and "- " in text and "\n## " not in text
    assert release.verify(signed, signed.with_name("release.pub")) == [WHEEL, "sbom.cdx.json"]


@pytest.mark.parametrize("name", [NOTES, f"{NOTES}.sig", "sbom.cdx.json"])
def test_what_was_changed_since_is_refused(signed: Path, name: str) -> None:
    file = signed.with_name(name)
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    with pytest.raises(release.Refused, match=r"not signed with this key|not the file that was signed"):
        release.verify(signed, signed.with_name("release.pub"))


def test_what_is_missing_is_refused(signed: Path) -> None:
    signed.with_name("sbom.cdx.json").unlink()
    with pytest.raises(release.Refused, match=r"sbom\.cdx\.json is not beside its notes"):
        release.verify(signed, signed.with_name("release.pub"))


def test_another_key_does_not_do(signed: Path) -> None:
    release.make_key(signed.with_name("other"))
    with pytest.raises(release.Refused, match="not signed with this key"):
        release.verify(signed, signed.with_name("other.pub"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_n2_openssl_checks_the_signature(signed: Path) -> None:
    command = f"openssl pkeyutl -verify -pubin -inkey release.pub -rawin -in {NOTES} -sigfile {NOTES}.sig"
    done = subprocess.run(command.split(), cwd=signed.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_n3_the_same_files_and_key_make_the_same_bytes(signed: Path) -> None:
    before = signed.read_bytes(), signed.with_name(f"{signed.name}.sig").read_bytes()
    release.sign(signed.with_name("release"), signed.parent)
    assert (signed.read_bytes(), signed.with_name(f"{signed.name}.sig").read_bytes()) == before


def test_a_key_is_never_replaced_and_only_its_owner_reads_it(signed: Path) -> None:
    key = signed.with_name("release")
    assert key.stat().st_mode & 0o077 == 0
    with pytest.raises(release.Refused, match="never replaced"):
        release.make_key(key)


def test_a_release_without_a_wheel_or_a_word_is_not_signed(tmp_path: Path) -> None:
    release.make_key(tmp_path / "release")
    with pytest.raises(release.Refused, match="Name the file of the signing key"):
        release.sign(tmp_path, tmp_path)
    with pytest.raises(release.Refused, match="no wheel"):
        release.sign(tmp_path / "release", tmp_path)
    with pytest.raises(release.Refused, match="has no section for 9"):
        release.notes("# Changelog\n\n## 0.2.0\n", "9", [])
