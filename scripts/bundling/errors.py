"""Errors with a hint, and commands whose failure raises one."""

import contextlib
import os
import signal
import subprocess
import sys


class PackagingError(Exception):
    def __init__(self, what, remedy=""):
        super().__init__(what)
        self.remedy = remedy


def output(*command, **how):
    """What a command prints; PackagingError with its last words where it fails."""
    try:
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True, **how)
    except FileNotFoundError:
        raise PackagingError(f"{command[0]} is not installed", "run scripts/bootstrap, which lists what is missing")
    with process:
        try:
            out, err = process.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # a compiler's own programs, too
            process.wait()
            raise
    if process.returncode != 0:
        words = (err or out).strip().splitlines()
        raise PackagingError(f"{command[0]} failed: " + "\n  ".join(words[-12:]))
    return out


def run(main):
    """Calls main(). What goes wrong ends the script with status 1."""
    try:
        main()
    except (PackagingError, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}" + (f"\n  hint: {error.remedy}" if getattr(error, "remedy", "") else ""), file=sys.stderr)
        sys.exit(1)
