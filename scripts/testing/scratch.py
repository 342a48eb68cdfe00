"""Folders for what program tests write. A failed or killed run's stays until scripts/test starts again."""

import atexit
import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

PREFIX = "lt-"  # short: sockets and what is printed have room for so long a path
LOCK = ".lock"  # stands beside the folder, and is locked while its run lives
_in_use = set()


def take():
    """A name for a new folder, and the descriptor of its lock, which pytest inherits."""
    while True:
        lock, path = tempfile.mkstemp(prefix=PREFIX, suffix=LOCK)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path):
            break
        os.close(lock)  # another run took it for one that was left
    folder = pathlib.Path(path.removesuffix(LOCK))
    _in_use.add(folder)
    return folder, lock


def keep(folder):
    _in_use.discard(folder)


def remove(folder):
    subprocess.run(["chmod", "-R", "u+w", folder], stderr=subprocess.DEVNULL)  # some of it is read-only on purpose
    shutil.rmtree(folder, ignore_errors=True)
    pathlib.Path(f"{folder}{LOCK}").unlink(missing_ok=True)
    _in_use.discard(folder)


def remove_left():
    """What our own earlier runs have left, in success or not, and no living one holds."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*{LOCK}"):
        try:
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(str(path).removesuffix(LOCK))
        except OSError:
            pass  # it is in use
        finally:
            os.close(lock)


@atexit.register  # after an interruption: by then all that the run started has ended
def _remove_ours():
    for folder in list(_in_use):
        remove(folder)
