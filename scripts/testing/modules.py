"""The unit tests: GoogleTest binaries that ctest runs, one a module, and one more for what runs under mpirun."""

import json
import pathlib
import re
import shlex
import subprocess

from paths import BUILD, ROOT, cores

LIMIT = 900  # seconds of one binary, some twenty times what the longest takes: its ranks may wait for each other for ever
LAYERS = [ROOT / layer for layer in ("src/lockstep", "src/trainer", "src/tools", "course")]


def modules():
    """The folders of the layers that hold sources, or headers alone: comm, comm/mpi, options."""
    found = {str(path.parent.relative_to(layer))
             for layer in LAYERS for ending in ("cpp", "h") for path in layer.rglob(f"*.{ending}")}
    return sorted({"fast"} | {module for module in found if module != "." and not re.search("gloo_headers|^include", module)})


def covering():
    """{module without tests of its own: the module whose tests are about it}, as tests/CMakeLists.txt says."""
    text = (ROOT / "tests/CMakeLists.txt").read_text()
    return {module: call.split()[0] for call in re.findall(r"lockstep_module_tests\(([^)]*)\)", text) if "COVERS" in call
            for module in re.search(r"COVERS((?: [a-z_/]+)+)", call)[1].split()}


def module_of(path):
    """The module of a source of src or tests, or None."""
    for top in (*LAYERS, ROOT / "src", ROOT / "tests"):
        try:
            folder = (ROOT / path).relative_to(top).parent
        except ValueError:
            continue
        for place in [folder, *folder.parents]:
            if str(place) in modules():
                return str(place)
    return None


def known(build=BUILD):
    """[(name, command)] of ctest."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    return [(test["name"], test["command"]) for test in json.loads(listed.stdout)["tests"] if "command" in test]


def names_of(module, tests):
    """The tests of ctest that are a module's: its own, or where it has none those about it, or of the module around it."""
    for place in [module, covering().get(module, module), *map(str, pathlib.Path(module).parents)]:
        name = place.replace("/", "_")
        found = [test for test, _ in tests if re.fullmatch(rf"{name}(_\d+_ranks|_part_\d+)?", test)]
        if found:
            return found
    return []


def binary_of(command):
    return next(word for word in command if pathlib.Path(word).name.startswith("test_"))


def targets_of(names, tests):
    return sorted({pathlib.Path(binary_of(command)).name for name, command in tests if name in names})


def failed_cases(build):
    log = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    return sorted(set(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", log, re.M)))


def skipped_cases(build):
    """What was skipped inside a binary, with its reason: ctest counts binaries."""
    log = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    return re.findall(r"^(\S.*): Skipped\n(.*)$", log, re.M)


def run(build, report, names=None, env=None):
    """All unit tests of a build, or the named ones."""
    words = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "--output-junit", report,
             "--timeout", LIMIT, "-j", 2 * cores()]  # many wait for most of their time
    if names is not None:
        words += ["-R", f"^({'|'.join(map(re.escape, names))})$"]
    for old in (build / "Testing").glob("unfinished-*"):
        old.unlink()
    good = subprocess.run([str(word) for word in words], env=env).returncode == 0
    for unfinished in (build / "Testing").glob("unfinished-*"):
        print(f"error: the tests of {unfinished.name.removeprefix('unfinished-')} ended before all of them had run")
        good = False
    for where, why in skipped_cases(build):
        print(f"skipped: {where.replace(str(ROOT) + '/', '')}: {why}")
    for case in failed_cases(build) if not good else []:
        print(f"run it alone: scripts/test {shlex.quote(case)}")
    return good


def commands_for(case, tests):
    """The commands that run one case (Suite.Name, or a filter of GoogleTest's): with each number of ranks it has."""
    filters = f"--gtest_filter={case}"
    found = []
    for name, command in {tuple(command): (name, command) for name, command in reversed(tests)}.values():  # parts are alike
        listed = subprocess.run([binary_of(command), "--gtest_list_tests", filters], capture_output=True, text=True, cwd=ROOT)
        if listed.returncode == 0 and re.search(r"^  \S", listed.stdout, re.M):
            found.append((name, [*command, filters]))
    return found
