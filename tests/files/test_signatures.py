"""Signatures: by the owner of the key, of these very bytes; OpenSSL agrees."""

import hashlib
import shutil
import stat
import subprocess
from types import SimpleNamespace

import pytest

import bagwise as bw
from bagwise.errors import BagwiseError, ReleaseError, SignatureError
from bagwise.files import json_files, parquet_files, signatures
from bagwise.files.regular_files import open_regular
from bagwise.files.signatures import create_keys, read_public_key, read_signing_key
from bagwise.release import files


def openssl(*arguments):
    return subprocess.run(["openssl", *map(str, arguments)], check=False, capture_output=True)


@pytest.fixture
def keys(tmp_path):
    """A pair made as the documentation says."""
    private = tmp_path / "custodian.pem"
    return private, create_keys(private)


def test_a_new_key_is_for_its_owner_alone_and_replaces_none(keys):
    private, public = keys
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    before = private.read_bytes()
    with pytest.raises(BagwiseError, match="already exists"):
        create_keys(private)
    public.unlink()
    with pytest.raises(BagwiseError, match="already exists"):
        create_keys(private)
    assert private.read_bytes() == before
    assert not public.exists()


@pytest.fixture
def signed(table, keys, tmp_path):
    made = bw.make_release(
        table, label="y", bounds=(-5, 11), bag_size=6, strategy="random", epsilon=2.0
    )
    return made.save(tmp_path / "out", sign=keys[0])


def test_a_signed_release_verifies_with_the_key(signed, keys):
    found, _ = bw.verify(signed, key=keys[1])
    assert found.signed
    assert "signed the manifest" in found.checks[0]
    assert "Hashes show damage" not in found.note
    without, _ = bw.verify(signed)
    assert not without.signed
    assert any("whose signature" in unseen for unseen in without.unchecked)


def test_the_same_signature_satisfies_openssl(signed, keys):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    arguments = ("-verify", "-pubin", "-inkey", keys[1], "-rawin", "-in", signed / "manifest.json")
    checked = openssl("pkeyutl", *arguments, "-sigfile", signed / "manifest.sig")
    assert checked.returncode == 0, checked.stderr
    (signed / "manifest.json").write_bytes(b"{}\n")
    assert openssl("pkeyutl", *arguments, "-sigfile", signed / "manifest.sig").returncode != 0


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig", "bags.parquet"])
def test_one_bit_is_noticed(signed, keys, name):
    flip(signed / name)
    with pytest.raises(BagwiseError):
        bw.verify(signed, key=keys[1])


def test_somebody_elses_signature_is_refused(table, signed, keys, tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    content = (signed / "manifest.json").read_bytes()
    (signed / "manifest.sig").write_bytes(Ed25519PrivateKey.generate().sign(content))
    with pytest.raises(SignatureError, match="not a signature of"):
        bw.verify(signed, key=keys[1])
    bw.verify(signed)


def test_an_unsigned_release_is_refused_where_a_signature_is_asked_for(signed, keys, tmp_path):
    (signed / "manifest.sig").unlink()
    bw.verify(signed)
    with pytest.raises(SignatureError, match="not signed"):
        bw.verify(signed, key=keys[1])
    (tmp_path / "m.json").write_text("{}\n")
    with pytest.raises(SignatureError, match="only those are signed"):
        bw.verify(tmp_path / "m.json", key=keys[1])


@pytest.mark.parametrize("once", [False, True])
def test_what_is_read_is_what_was_signed(table, signed, keys, tmp_path, monkeypatch, once):
    """A link that is switched to another release before any of the files is opened."""
    other = bw.make_release(table, label="y", bag_size=6, not_private=True).save(tmp_path / "other")
    shutil.copy(signed / "manifest.sig", other)
    link, opened = tmp_path / "link", []

    def opening(path, *, error):
        number = len(opened)
        opened.append(path)
        link.unlink(missing_ok=True)
        link.symlink_to(other if number in switched else signed)
        return open_regular(path, error=error)

    digest, outcomes = bw.verify(signed, key=keys[1])[0].digest, set()
    link.symlink_to(signed)
    for module in (json_files, parquet_files, signatures, files):
        monkeypatch.setattr(module, "open_regular", opening)
    for first in range(12):
        opened.clear()
        switched = range(first, first + 1 if once else 99)
        try:
            found, _ = bw.verify(link, key=keys[1])
        except BagwiseError:
            outcomes.add("refused")
        else:
            assert (found.signed, found.digest) == (True, digest)
            outcomes.add("signed")
    assert outcomes == {"refused", "signed"}


def test_what_is_read_is_what_was_hashed(signed, keys, monkeypatch):
    """A file that is written to, in place, between its hash and its reading."""
    path, digest = signed / "bags.parquet", bw.verify(signed)[0].digest
    original, labels = path.read_bytes(), bw.Release.load(signed).labels

    def hash_and_write(handle, name):
        found = hashlib.file_digest(handle, name)
        if found.hexdigest() == hashlib.sha256(original).hexdigest():
            path.write_bytes(bytes(len(original)))
        return found

    monkeypatch.setattr(
        parquet_files, "hashlib", SimpleNamespace(file_digest=hash_and_write, sha256=hashlib.sha256)
    )
    loaded = bw.Release.load(signed, key=keys[1])
    assert loaded.digest == digest
    assert (loaded.labels == labels).all()
    path.write_bytes(original)
    monkeypatch.setattr(parquet_files, "_MODEST", 0)  # larger ones are not taken whole
    with pytest.raises(ReleaseError, match=r"written to while it was read|not a readable"):
        bw.Release.load(signed)


def test_a_signature_has_room_for_nothing_else(signed):
    (signed / "manifest.sig").write_bytes(bytes(65))
    with pytest.raises(BagwiseError, match="64 bytes"):
        bw.verify(signed)


def test_keys_that_are_none_are_refused(keys, tmp_path):
    private, public = keys
    with pytest.raises(SignatureError, match="not a public key"):
        read_public_key(private)
    public.chmod(0o600)
    with pytest.raises(SignatureError, match="not a private key"):
        read_signing_key(public)
    private.chmod(0o644)
    with pytest.raises(SignatureError, match="chmod 600"):
        read_signing_key(private)
    with pytest.raises(SignatureError, match="does not exist"):
        read_signing_key(tmp_path / "nowhere")


def test_a_key_of_another_kind_is_refused(tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "other.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path.chmod(0o600)
    with pytest.raises(SignatureError, match="another kind"):
        read_signing_key(path)
    path.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    with pytest.raises(SignatureError, match="another kind"):
        read_public_key(path)


def test_a_key_that_cannot_sign_is_refused_before_anything_is_charged(table, tmp_path):
    from typer.testing import CliRunner

    from bagwise.cli import app

    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=1.0)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},{i % 3}\n" for i in range(60)))
    result = CliRunner().invoke(
        app,
        ["release", str(tmp_path / "t.csv"), "--label", "y", "--bounds", "0", "2", "--epsilon", "1",
         "-o", str(tmp_path / "out"), "--ledger", str(ledger.path), "--sign", "nowhere"],
    )  # fmt: skip
    assert result.exit_code == 2
    assert not ledger.charges()
    assert not (tmp_path / "out").exists()
