"""What a bundle is made with, in a folder that is kept for the next one: made once, and named when it is whole."""

import contextlib
import fcntl
import pathlib
import sys
import tempfile


@contextlib.contextmanager
def alone(folder):
    """While no other bundle is made with that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another scripts/bundle is at work in {folder}: waiting for it", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(folder, name, make):
    """FOLDER/NAME, which make(path) writes in a folder of its own where it is not there."""
    place = folder / name
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as scratch:
            make(pathlib.Path(scratch) / name)
            (pathlib.Path(scratch) / name).rename(place)
    return place
