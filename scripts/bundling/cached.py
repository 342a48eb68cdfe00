"""Downloads and tools in a folder that the next run uses again: each is made once and gets its name when it is complete."""

import contextlib
import fcntl
import sys

import ended


@contextlib.contextmanager
def exclusive(folder):
    """While no other process uses that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that uses {folder}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(folder, name, make):
    """FOLDER/NAME, which make(path) writes in a folder of its own where it is not there."""
    place = folder / name
    if not place.exists():
        with ended.scratch_folder(folder, ".part-") as scratch:
            make(scratch / name)
            (scratch / name).rename(place)
    return place
