"""What the working tree's changes touch: found from git, the build graph and the marks of the program tests."""

import os
import pathlib
import re
import subprocess

import modules
from paths import BUILD, ROOT

E2E = "tests/e2e/"


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.split("\n")[:-1]


def changed():
    """What is not committed, and the commits that origin/main lacks; on main without either, the last commit."""
    names = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    base = (git("merge-base", "HEAD", "origin/main") or [""])[0]
    if base:
        names += git("diff", "--name-only", base, "HEAD")
    return list(dict.fromkeys(names or git("diff", "--name-only", "HEAD~1", "HEAD")))


def compiled_with(names):
    """The modules whose objects read one of these files, by the dependencies that the compiler wrote down."""
    wanted = {str(ROOT / name) for name in names if name.endswith((".h", ".inc"))}
    if not wanted:
        return set()
    found, target = set(), None
    listed = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if not line.startswith(" "):
            match = re.match(r"(?:src|course|tests)/CMakeFiles/(?:lockstep|test)_(\w+?)(?:_ranks)?\.dir/", line)
            target = match and match[1]
        elif target and os.path.normpath(BUILD / line.strip()) in wanted:
            found.add(target)
    return {module for module in modules.modules() if module.replace("/", "_") in found}


def parts_of(names):
    """What the marks of program tests call these files' places: modules, and the other top-level folders."""
    places = {modules.module_of(name) or name.partition("/")[0] for name in names if not name.startswith(E2E)}
    places |= {str(outer) for place in places for outer in pathlib.PurePath(place).parents if str(outer) != "."}
    covering = modules.covering()
    return places | {covering[place] for place in places if place in covering}


def test_files_of(names):
    """The program tests that changed, and those that import a module of tests that did."""
    files = {name for name in names if re.fullmatch(rf"{E2E}test_\w+\.py", name)}
    kits = [match[1] for name in names if (match := re.fullmatch(rf"{E2E}(\w+_kit|hostile)\.py", name))]
    for kit in kits:
        files |= set(git("grep", "-l", "-E", f"^(from|import) {kit}\\b", "--", f"{E2E}test_*.py"))
    return sorted(name for name in files if (ROOT / name).exists())
