"""Checks one after the other: each is run, how it went is kept, and the next one follows."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import uuid

from paths import shell

MARK = "TEST_RUN"  # in the environment of all that a run starts, whatever sessions they make


def say(text):
    print(f"\033[1m{text}\033[0m" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def succeeds(*words, **how):
    """Runs a command; its output goes where ours goes."""
    return subprocess.run([str(word) for word in words], **how).returncode == 0


def build(folder, *targets):
    """Compiles a configured folder, with as many jobs as its memory carries; `targets`: all."""
    wanted = ["--target", *targets] if targets else []
    return succeeds("cmake", "--build", folder, "--parallel", shell("compile_jobs").strip(), *wanted, stdout=sys.stderr)


class Steps:
    def __init__(self):
        self.rows, self.passed, self.failed, self.skipped = [], 0, 0, 0

    def run(self, name, check, *arguments, **how):
        say(f"== {name}")
        begin = time.monotonic()
        good = check(*arguments, **how)
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        self.rows.append(f"{'ok' if good else 'FAILED':6} {time.monotonic() - begin:5.0f}s  {name}")
        return good

    def skip(self, why):
        say(f"{why}: its check is skipped")
        self.skipped += 1
        self.rows.append(f"{'skip':6}         {why}")

    def run_where(self, program, name, check, *arguments):
        """The check, or a skip where its program is not there."""
        if shutil.which(program):
            self.run(name, check, *arguments)
        else:
            self.skip(f"{program} is not installed")


def marked():
    """The other living processes that this run has started."""
    ours = f"{MARK}={os.environ[MARK]}".encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and ours in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)
        except OSError:
            continue


def end_all(patience=5):
    """Nothing that this run started outlives it: a word that lets it clean up, then SIGKILL."""
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 1)):
        for pid in marked():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        end = time.monotonic() + wait
        while list(marked()) and time.monotonic() < end:
            time.sleep(0.05)


def interrupted(number, _frame):
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def leave_nothing(work):
    """What `work` returns. A signal ends it, and with it all that it started."""
    os.environ[MARK] = uuid.uuid4().hex
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    try:
        return work()
    finally:
        end_all()
