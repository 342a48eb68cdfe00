"""How scripts/bundle makes one: what it refuses, what it keeps, and what stays when it is ended."""

import hashlib
import http.server
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import SOURCE, left_behind, run_process
from process_kit import PATIENCE, ends_of, line_with, shared_library, wait_for

sys.path.append(str(SOURCE / "scripts"))
from bundling import archive, baseline, check, kept, said  # noqa: E402

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


@pytest.mark.parametrize("need, source, flag", [
    ("GLIBC_PRIVATE", "void __libc_early_init(int); void f(void) { __libc_early_init(1); }", "-Wl,-z,defs"),
    ("GLIBC_ABI_DT_RELR", "int abs(int); static int a; int *b = &a, (*c)(int) = abs;", "-Wl,-z,pack-relative-relocs"),
], ids=["private", "relr"])
def test_what_not_every_c_library_has_is_refused(need, source, flag, tmp_path):
    library = shared_library(tmp_path, "new.so", source, flag)
    if need not in run_process(["readelf", "-VW", library], check=True).stdout:
        pytest.skip(f"this linker or C library knows no {need}")
    with pytest.raises(said.Wrong, match=f"new.so asks for {need}, "):
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


def test_what_is_in_no_checkout_needs_a_time(tmp_path, monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    with pytest.raises(said.Wrong, match=f"{tmp_path} does not say when it was committed"):
        archive.commit_time(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "17")
    assert archive.commit_time(tmp_path) == 17


def test_a_time_that_is_none_is_said_before_any_work(lockstep, build_dir, tmp_path):
    done = run_process([SCRIPT, "--build", build_dir, "--out", tmp_path / "new"], env={"SOURCE_DATE_EPOCH": "today"})
    assert done.returncode == 1 and "SOURCE_DATE_EPOCH is 'today'" in done.stderr, done.output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("option", ["--out", "--folder"])
def test_nothing_stays_of_a_bundle_that_was_ended(option, number, status, lockstep, build_dir, start, tmp_path):
    process = start(SCRIPT, "--build", build_dir, option, tmp_path / "to/new",
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list(tmp_path.glob("to/**/.bundle-*")), what="a bundle to begin")
    process.send_signal(number)
    (ended, out, err), = ends_of([process])
    assert (ended, out, err) == (status, "", "")
    left = ["new"] if option == "--out" else []  # the folder of archives, empty
    assert [path.name for path in tmp_path.glob("to/**/*")] == left and not left_behind(process)


def test_a_signal_at_any_moment_leaves_no_folder(start, tmp_path):
    script = """if True:
        import pathlib, sys, ended
        ended.by_signals()
        print("begun", flush=True)
        while True:
            with ended.scratch_folder(sys.argv[1], "part-") as made:
                (made / "file").touch()
                try:
                    with ended.new_folder(pathlib.Path(sys.argv[1]) / "new"):
                        raise OSError
                except OSError:
                    pass
    """
    for number in range(25):
        process = start(sys.executable, "-c", script, tmp_path, env={"PYTHONPATH": str(SOURCE / "scripts")}, stdout=subprocess.PIPE,
                        text=True)
        line_with(process, process.stdout, "begun")
        time.sleep(number / 5000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
        assert list(tmp_path.iterdir()) == []


def test_two_at_once_do_not_make_the_same_thing(start, tmp_path):
    script = ("import pathlib, sys; from bundling import kept\n"
              "with kept.alone(pathlib.Path(sys.argv[1])): print(kept.once(pathlib.Path(sys.argv[1]), 'thing', None).read_text())")
    with kept.alone(tmp_path):
        other = start(sys.executable, "-c", script, tmp_path, env={"PYTHONPATH": str(SOURCE / "scripts")},
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line_with(other, other.stderr, "at work")
        assert other.poll() is None
        kept.once(tmp_path, "thing", lambda to: to.write_text("whole"))
    assert ends_of([other]) == [(0, "whole\n", "")]


def test_what_was_not_finished_gets_no_name(tmp_path):
    def make(to):
        to.write_text("half")
        raise said.Wrong("no more")
    with pytest.raises(said.Wrong):
        kept.once(tmp_path, "thing", make)
    assert not list(tmp_path.iterdir())


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


class CutOff(http.server.BaseHTTPRequestHandler):
    """Promises more than it sends."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"few")

    def log_message(self, *_):
        pass


def test_a_download_that_is_cut_off_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), CutOff) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(said.Wrong, match="cannot fetch http://127.0.0.1.*IncompleteRead"):
            baseline.fetch(f"http://127.0.0.1:{server.server_port}/package", "0", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words, status, said_words", [
    (["--build", "{tmp}", "--folder", "{tmp}/new"], 1, "has no bin/lockstep"),
    (["--folder", "{tmp}"], 1, "is there already"),
    (["--folder", "a", "--out", "b"], 2, "--out is for an archive"),
    (["--level", "11"], 2, "invalid choice"),
    (["extra"], 2, "unrecognized arguments: extra"),
])
def test_what_cannot_be_done_is_said_first(words, status, said_words, tmp_path):
    done = run_process([SCRIPT, *(word.format(tmp=tmp_path) for word in words)])
    assert (done.returncode, said_words in done.stderr) == (status, True), done.output


@pytest.mark.parametrize("words", ['--out "$1"', '--out "$1/a"', '--folder "$1/a/b"'])
def test_too_little_room_is_said_first(words, lockstep, build_dir, tmp_path):
    small = f'mount -t tmpfs -o size=99m none "$1" || exit 77; "$0" --build "$2" {words}; status=$?; ls -A "$1"; exit $status'
    done = run_process(["unshare", "--mount", "sh", "-c", small, SCRIPT, tmp_path, build_dir])
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this user may make no mount namespace")
    assert done.returncode == 1 and f"{tmp_path} has 99 MB left" in done.stderr and not done.stdout, done.output


def test_a_missing_tool_is_named(build_dir, tmp_path):
    (tmp_path / "python3").symlink_to(sys.executable)
    done = run_process([tmp_path / "python3", SCRIPT, "--build", build_dir, "--folder", tmp_path / "new"], env={"PATH": str(tmp_path)})
    assert done.returncode == 1 and re.search(r"not here: .*\bgcc\b.*\bxz\b", done.stderr), done.output
