"""What scripts/wheel refuses to pack, and how it checks what it downloads."""

import hashlib
import platform
import shutil
import sys

import pytest
from conftest import SOURCE
from process_kit import shared_library

sys.path.append(str(SOURCE / "scripts"))
from bundling import baseline, check, errors  # noqa: E402

pytestmark = pytest.mark.about("scripts")


def test_a_program_of_the_build_itself_is_refused(lockstep, tmp_path):
    if tuple(map(int, platform.libc_ver()[1].split("."))) <= (2, 28):
        pytest.skip("this machine's C library is as old as the baseline")
    shutil.copy(lockstep, tmp_path)
    with pytest.raises(errors.PackagingError, match=r"needs GLIBC(XX)?_"):
        check.check(tmp_path)


def test_a_library_that_looks_elsewhere_is_refused(tmp_path):
    shared_library(tmp_path, "outside.so", "int nothing;", "-Wl,-rpath,/somewhere")
    with pytest.raises(errors.PackagingError, match="outside.so looks for libraries in /somewhere"):
        check.check(tmp_path)


def test_a_download_has_its_hash_before_its_name(tmp_path):
    (tmp_path / "package").write_bytes(b"right")
    (tmp_path / "kept").mkdir()
    url, digest = (tmp_path / "package").as_uri(), hashlib.sha256(b"right").hexdigest()
    with pytest.raises(errors.PackagingError, match="does not have the SHA-256"):
        baseline.fetch(url, hashlib.sha256(b"another").hexdigest(), tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())
    assert baseline.fetch(url, digest, tmp_path / "kept") == b"right"
    (tmp_path / "kept/package").write_bytes(b"brought by hand")
    with pytest.raises(errors.PackagingError, match="kept/package does not have the SHA-256"):
        baseline.fetch(url, digest, tmp_path / "kept")
