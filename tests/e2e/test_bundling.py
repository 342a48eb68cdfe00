"""How scripts/bundle makes one: what it refuses, what it packs, and what stays when it is ended."""

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import SOURCE, left_behind, run_process
from process_kit import ends_of, shared_library, wait_for

sys.path.append(str(SOURCE / "scripts"))
from bundling import archive, baseline, check, said  # noqa: E402

pytestmark = pytest.mark.about("scripts")

SCRIPT = SOURCE / "scripts/bundle"


def test_a_program_of_the_build_itself_is_refused(lockstep, tmp_path):
    if tuple(map(int, platform.libc_ver()[1].split("."))) <= (2, 28):
        pytest.skip("this machine's C library is as old as the baseline")
    shutil.copy(lockstep, tmp_path)
    with pytest.raises(said.Wrong, match=r"asks for GLIBC(XX)?_"):
        check.check(tmp_path)


def test_a_library_that_looks_elsewhere_is_refused(tmp_path):
    shared_library(tmp_path, "outside.so", "int nothing;", "-Wl,-rpath,/somewhere")
    with pytest.raises(said.Wrong, match="outside.so looks for libraries in /somewhere"):
        check.check(tmp_path)


def test_an_archive_is_the_same_whoever_packs_it(tmp_path):
    packed = []
    for name, time in (("one", 1), ("two", 2_000_000_000)):
        folder = tmp_path / name / "lockstep"
        for file in ("b/x", "a/y", "a/x") if time == 1 else ("a/x", "b/x", "a/y"):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(file)
            os.utime(folder / file, (time, time))
            (folder / file).chmod(0o644 if time == 1 else 0o600)
        packed.append(archive.pack(folder, tmp_path / f"{name}.tar.xz", 1, time=0).read_bytes())
    assert packed[0] == packed[1]
    run_process(["tar", "-tJf", tmp_path / "one.tar.xz"], check=True)


@pytest.mark.full
def test_nothing_stays_of_a_bundle_that_was_ended(lockstep, build_dir, start, tmp_path):
    process = start(SCRIPT, "--build", build_dir, "--folder", tmp_path / "to/new", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    text=True)
    wait_for(lambda: list(tmp_path.glob("to/**/.bundle-*")), what="a bundle to begin")
    process.send_signal(signal.SIGTERM)
    assert ends_of([process]) == [(143, "", "")]
    assert list(tmp_path.glob("to/**/*")) == [] and not left_behind(process)


def test_a_download_has_its_hash_before_its_name(tmp_path):
    (tmp_path / "package").write_bytes(b"right")
    (tmp_path / "kept").mkdir()
    url, digest = (tmp_path / "package").as_uri(), hashlib.sha256(b"right").hexdigest()
    with pytest.raises(said.Wrong, match="is not what it should be"):
        baseline.fetch(url, hashlib.sha256(b"another").hexdigest(), tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())
    assert baseline.fetch(url, digest, tmp_path / "kept") == b"right"
    (tmp_path / "kept/package").write_bytes(b"brought by hand")
    with pytest.raises(said.Wrong, match="kept/package is not what it should be"):
        baseline.fetch(url, digest, tmp_path / "kept")
