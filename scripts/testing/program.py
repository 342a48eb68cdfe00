"""The program tests: pytest over tests/e2e, dealt to several workers; those marked `alone` follow, one by one."""

import importlib.util
import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile
import zlib

from paths import BUILD, PYTHON, REPORTS, ROOT, workers

E2E = "tests/e2e"
# Where tests write: a name for each checkout and user, and a number for each call of pytest. Paths of sockets are short.
SCRATCH = pathlib.Path(tempfile.gettempdir(), f"lt-{zlib.crc32(f'{os.getuid()} {ROOT}'.encode()) & 0xFFFFFF:06x}")
NUMBERS = itertools.count(1)
NOTHING_CHOSEN = 5  # pytest's status where no test is left


def dealt(number):
    """pytest's words for that many workers. Tests that share a set-up stay together (conftest.py groups them)."""
    if number == 1 or importlib.util.find_spec("xdist") is None:
        return ["-p", "no:xdist"] if importlib.util.find_spec("xdist") else []
    return ["-n", number, "--dist", "loadscope", "--no-loadscope-reorder"]


def remove_scratch(number="*"):
    for folder in SCRATCH.parent.glob(f"{SCRATCH.name}-{number}"):
        subprocess.run(["chmod", "-R", "u+w", folder], stderr=subprocess.DEVNULL)  # some of it is read-only on purpose
        shutil.rmtree(folder, ignore_errors=True)


def pytest(name, *words, build=BUILD, env=None):
    if not any(str(word).startswith(E2E) for word in words):
        words = (*words, E2E)  # its conftest.py knows the options
    number = next(NUMBERS)
    command = [PYTHON, "-m", "pytest", "--build-dir", build, "--basetemp", f"{SCRATCH}-{number}",
               "--junitxml", REPORTS / f"{name}-pytest.xml", *words]
    status = subprocess.run([str(word) for word in command], cwd=ROOT, env=env).returncode
    if status in (0, NOTHING_CHOSEN):
        remove_scratch(number)
    else:
        print(f"the files of the failed tests are in {SCRATCH}-{number} until scripts/test runs again")
    return status


def run(name, *words, build=BUILD, env=None, marks="not full"):
    """Program tests of a build: `words` choose them."""
    named = any(str(word).startswith(E2E) for word in words)
    found = {pytest(name, "-m", f"({marks}) and not alone", *dealt(workers()), *words, build=build, env=env)}
    files = [path.relative_to(ROOT) for path in sorted((ROOT / E2E).glob("test_*.py")) if "pytest.mark.alone" in path.read_text()]
    if files:
        if not named:
            words = (*words, *files)  # the others need not be collected once more
        found.add(pytest(f"{name}-alone", "-m", f"({marks}) and alone", *dealt(1), *words, build=build, env=env))
    return found <= {0, NOTHING_CHOSEN} and (0 in found or not named)  # a test that does not run cannot pass
