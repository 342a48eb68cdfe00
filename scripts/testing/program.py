"""The program tests: pytest over tests/e2e, dealt to several workers; those marked `alone` follow, one by one."""

import importlib.util
import os
import subprocess

import scratch
from place import BUILD, PYTHON, REPORTS, ROOT, workers

E2E = "tests/e2e"
NOTHING_CHOSEN = 5  # pytest's status where no test is left


def dealt(number):
    """pytest's words for that many workers. Tests that share a set-up stay together (conftest.py groups them)."""
    if number == 1 or importlib.util.find_spec("xdist") is None:
        return ["-p", "no:xdist"] if importlib.util.find_spec("xdist") else []
    return ["-n", number, "--dist", "loadscope", "--no-loadscope-reorder"]


def pytest(name, *words, build=BUILD, env=None):
    if not any(str(word).startswith(E2E) for word in words):
        words = (*words, E2E)  # its conftest.py knows the options
    folder, lock = scratch.take()
    command = [PYTHON, "-m", "pytest", "--build-dir", build, "--basetemp", folder,
               "--junitxml", REPORTS / f"{name}-pytest.xml", *words]
    good = subprocess.run([str(word) for word in command], cwd=ROOT, env=env, pass_fds=[lock]).returncode in (0, NOTHING_CHOSEN)
    if good:
        scratch.remove(folder)
    else:
        scratch.keep(folder)
        print(f"what the failed tests left is in {folder} until scripts/test runs again")
    os.close(lock)
    return good


def run(name, *words, build=BUILD, env=None, marks="not full"):
    """Program tests of a build: `words` choose them."""
    good = pytest(name, "-m", f"({marks}) and not alone", *dealt(workers()), *words, build=build, env=env)
    files = [path.relative_to(ROOT) for path in sorted((ROOT / E2E).glob("test_*.py")) if "pytest.mark.alone" in path.read_text()]
    if files:
        if not any(str(word).startswith(E2E) for word in words):
            words = (*words, *files)  # the others need not be collected once more
        good &= pytest(f"{name}-alone", "-m", f"({marks}) and alone", *dealt(1), *words, build=build, env=env)
    return good
