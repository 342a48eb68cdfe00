"""A script that is ended by a signal leaves with 128 + its number, and cleans up undisturbed."""

import contextlib
import pathlib
import shutil
import signal
import sys
import tempfile

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
unfinished = []  # folders that go with the script


def leave(number, _):
    for end in ENDS:
        signal.signal(end, signal.SIG_IGN)  # a second one would come into the clean-up
    for folder in unfinished:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(128 + number)


def by_signals():
    """From here on; what is ignored stays so, as nohup has SIGHUP."""
    for end in ENDS:
        if signal.getsignal(end) != signal.SIG_IGN:
            signal.signal(end, leave)


@contextlib.contextmanager
def made_by(make):
    """The folder that make() gives, which a signal at any moment removes until this is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        folder = make()
        unfinished.append(folder)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield folder
    except BaseException:  # also after leave() removed it: a child may have written into it until now
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        unfinished.remove(folder)


def new_folder(place):
    """Makes `place`, and removes it where what follows fails. What another one made meanwhile is left alone."""
    def make():
        place.mkdir(parents=True)
        return place
    return made_by(make)


@contextlib.contextmanager
def scratch_folder(place, prefix):
    """A folder of its own in `place`, gone when this is done."""
    with made_by(lambda: pathlib.Path(tempfile.mkdtemp(dir=place, prefix=prefix))) as folder:
        yield folder
        shutil.rmtree(folder)
