"""What tests of processes share: waiting for them, showing them a terminal, putting a library of C before theirs."""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time

import pytest

# The ends of waits, in seconds, so that no test says how busy the machine is.
PATIENCE = 540  # for what comes soon; less than the 10 minutes of launch.timeout, which is not to bring it
LONG_PATIENCE = 3600  # for what takes half a minute and more where nothing else runs: compilers, campaigns

PENDING = ("SigPnd", "ShdPnd")


def status_of(pid):
    """{field: value} of a process; of one that has ended, of a dead one."""
    with contextlib.suppress(OSError):
        return dict(re.findall(r"^(\w+):\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M))
    return {"State": "X"}


def has_signal(status, number, *masks):
    """Is this signal in one of these masks of status_of(): PENDING, or SigCgt of those that are caught?"""
    return any(int(status[mask], 16) >> (number - 1) & 1 for mask in masks)


def wait_for(condition, within=PATIENCE, what="it"):
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"waited {within} s for {what}")
        time.sleep(0.02)


def line_with(process, stream, words="", within=PATIENCE):
    """The stream's next line with these words in it; fails where none comes within that time, or the stream ends.

    Reads no byte beyond it, and past the stream's own buffer: communicate() gives the rest. A stream is read so from its
    first line on.
    """
    until, read = time.monotonic() + within, b""
    while not (read.endswith(b"\n") and words in (line := read.splitlines()[-1].decode(errors="replace"))):
        if not select.select([stream], [], [], max(0, until - time.monotonic()))[0]:
            process.kill()
            pytest.fail(f"waited {within} s for a line with {words!r}, after {read!r}")
        byte = os.read(stream.fileno(), 1)
        if not byte:
            pytest.fail(f"no line with {words!r}: it ended ({process.poll()}) after {read!r}")
        read += byte
    return line


def ends_of(processes, timeout=PATIENCE):
    """The status, stdout and stderr of each, which must end within that time."""
    ends = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout} s")
        ends.append((process.returncode, out, err))
    return ends


def on_terminal(start, *args, columns=80, env=None, cwd=None, timeout=PATIENCE):
    """What a process that must succeed writes to a terminal of its own; `start` is the fixture."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = start(*args, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env={"TERM": "xterm", **(env or {})})
    os.close(theirs)
    text, end = b"", time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the last that had it open has left
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    assert process.wait(PATIENCE) == 0, text.decode(errors="replace")
    return text.decode()


def read_only(prefix):
    """The words that run a command with `prefix` mounted read-only; root walks through file modes."""
    words = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"', prefix]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("may not mount here")
    return words


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of that many bytes, mounted there."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "lockstep-test", folder], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk):
    """Takes what is left, to the last page, with the file `more`."""
    with contextlib.suppress(OSError), open(disk / "more", "wb", buffering=0) as more:
        while more.write(bytes(4096)):
            pass


def executable(path, text):
    """A program of this text."""
    path.write_text(text)
    path.chmod(0o755)


def shared_library(folder, name, source, *flags):
    """FOLDER/NAME, compiled from C: a text, or a file's path. For LD_PRELOAD and LD_LIBRARY_PATH."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    if not isinstance(source, pathlib.Path):
        text, source = source, folder / f"{name}.c"
        source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", folder / name, source, "-ldl"], check=True)
    return folder / name
