"""One test many times, beside processes that use every core: a test that then fails depends on timing."""

import contextlib
import re
import subprocess
import sys
import time

import modules
from paths import BUILD, PYTHON, ROOT, cores
from steps import say


def commands_for(test):
    """The commands that run that test, or []."""
    if test.startswith("tests/e2e/"):
        return [[PYTHON, "-m", "pytest", "-q", "--build-dir", BUILD, "-p", "no:cacheprovider", "-m", "full or not full", test]]
    return [command for _, command in modules.commands_for(test, modules.known())]


def skipped_all(output):
    """Whether no test ran."""
    last = output.strip().splitlines()[-1] if output.strip() else ""
    return bool(re.search(r"\bskipped\b", last)) and not re.search(r"\bpassed\b", last)


def run(test, times):
    """True where all of them pass."""
    commands = commands_for(test)
    if not commands:
        say(f"error: there is no test {test}")
        return False
    good, longest, begin = 0, 0, time.monotonic()
    with contextlib.ExitStack() as stack:
        for _ in range(2 * cores()):
            stack.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)
        for number in range(1, times + 1):
            before = time.monotonic()
            for command in commands:
                done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, errors="replace")
                output = done.stdout + done.stderr
                if skipped_all(output):
                    say(f"it was skipped:\n{output[-2000:]}")
                    return False
                if done.returncode != 0:
                    say(f"{test}: run {number} of {times} failed:\n{output[-8000:]}")
                    break
            else:
                good += 1
            longest = max(longest, time.monotonic() - before)
    print(f"{test}: {good} of {times} passed beside {2 * cores()} spinning processes, "
          f"{(time.monotonic() - begin) / times:.1f} s each, {longest:.1f} s the longest")
    return good == times
