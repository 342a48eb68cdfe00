"""The checks behind scripts/test, which has installed what they need and configured build/release."""

import argparse
import os
import re
import shutil
import sys

import changes
import full
import program
import reports
import modules
import steps
import stress
from paths import BUILD, PYTHON, REPORTS, ROOT, shell
from steps import Steps, build, say, succeeds

E2E = "tests/e2e/"
QUICK_SECONDS = 60  # for program tests in --quick: with a build and the unit tests it stays below two minutes
PROGRAM = "lockstep_ready"
PEERS = "lockstep_peers"
MOST_NAMED = 50  # failed tests, in the summary


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/test", add_help=False)
    parser.add_argument("what", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--stress", action="store_true")
    parser.add_argument("--libtorch")
    return parser.parse_args()


def bad_input(what, hint):
    print(f"error: {what}\n  hint: {hint}", file=sys.stderr)
    sys.exit(2)


def files(*patterns):
    listed = changes.git("ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    return [name for name in listed if (ROOT / name).is_file()]


def formatting():
    sources = files(*(f"{top}/*.{ending}" for top in ("src", "course", "tests") for ending in ("cpp", "h")))
    return succeeds("clang-format", "--dry-run", "--Werror", *sources, cwd=ROOT)


def scripts_are_sound():
    scripts = shell('for file; do if is_shell "$file"; then echo "$file"; fi; done',
                    *files("scripts", "job_scripts", ".ci/run", "tests")).splitlines()
    return succeeds("shellcheck", "-x", *scripts, cwd=ROOT)


def look_quickly(run):
    run.run("size budget", succeeds, PYTHON, ROOT / "scripts/budget")
    run.run_where("clang-format", "clang-format", formatting)
    run.run_where("shellcheck", "shellcheck", scripts_are_sound)


def look_at_the_text(run, *tidy):
    look_quickly(run)
    run.run("clang-tidy", succeeds, PYTHON, ROOT / "scripts/tidy", BUILD, *tidy)


def all_of_it(run, everything):
    if not run.run("build", build, BUILD):
        return
    look_at_the_text(run, *(["--all"] if everything else []))
    run.run("unit tests", modules.run, BUILD, REPORTS / "release-ctest.xml")
    run.run("program tests", program.run, "release")
    if everything:
        full.run(run)


# --- some of it -----------------------------------------------------------------------------------------------------


def unit_tests(run, names):
    """Builds and runs these of ctest."""
    listed = modules.known()
    chosen = sorted({test for name in names for test in modules.names_of(name, listed)})
    if chosen and run.run("build the unit tests", build, BUILD, *modules.targets_of(chosen, listed)):
        run.run(f"unit tests of {' '.join(chosen)}", modules.run, BUILD, REPORTS / "release-ctest.xml", chosen)


def program_tests(run, name, *words, **how):
    if run.run("build the program", build, BUILD, PROGRAM, PEERS):
        run.run(name, program.run, re.sub(r"\W+", "-", name), *words, **how)


def one_case(run, case):
    listed = modules.known()
    if not run.run("build the unit tests", build, BUILD, *modules.targets_of([name for name, _ in listed], listed)):
        return
    found = modules.commands_for(case, listed)
    if not found:
        bad_input(f"there is no test {case}", "name a module, tests/e2e/test_NAME.py[::TEST], or Suite.Name of GoogleTest")
    for name, command in found:
        run.run(f"{case} in {name}", succeeds, *command, cwd=ROOT)


def parts():
    """What may stand after scripts/test: modules, and the folders that program tests are about."""
    marks = re.findall(r"pytest\.mark\.about\(([^)]*)\)", "".join(path.read_text() for path in (ROOT / E2E).glob("test_*.py")))
    return sorted(set(modules.modules()) | {word for mark in marks for word in re.findall(r'"([\w/]+)"', mark)})


def named(run, what):
    ids = [word for word in what if word.startswith(E2E)]
    cases = [word for word in what if "." in word and not word.startswith(E2E)]
    about = [word.rstrip("/") for word in what if word not in ids + cases]
    for word in about:
        if word not in parts():
            bad_input(f"there is no module or part {word}", f"name one of: {' '.join(parts())}")
    for word in ids:
        if not (ROOT / word.partition("::")[0]).exists():
            bad_input(f"there is no {word.partition('::')[0]}", "list the files: ls tests/e2e")
    unit_tests(run, about)
    for case in cases:
        one_case(run, case)
    if about:
        program_tests(run, f"program tests about {' '.join(about)}", *(f"--about={part}" for part in about))
    if files := [word for word in ids if "::" not in word]:
        program_tests(run, "program tests", *files)
    if tests := [word for word in ids if "::" in word]:
        program_tests(run, "named tests", *tests, marks="(full or not full)")  # who names one wants it


def quick(run):
    names = changes.changed()
    about, tests = changes.parts_of(names), changes.test_files_of(names)
    say(f"{len(names)} files changed: {' '.join(sorted(about)) or 'nothing that tests are about'}")
    look_quickly(run)
    unit_tests(run, sorted((about | changes.compiled_with(names)) & set(modules.modules())))
    chosen = [f"--about={part}" for part in sorted(about)] + [f"--file={name}" for name in tests]
    program_tests(run, "a call of each command, and what the change touches", f"--budget={QUICK_SECONDS}",
                  "--about=every command", *chosen)


def stressed(what):
    if not 1 <= len(what) <= 2 or (len(what) == 2 and not re.fullmatch(r"[1-9]\d*", what[1])):
        bad_input("--stress takes a test and, optionally, a number", "run scripts/test --stress tests/e2e/test_stop.py::test_x 50")
    good = build(BUILD) and stress.run(what[0], int(what[1]) if len(what) == 2 else 50)
    return 0 if good else 1


# --- the summary ----------------------------------------------------------------------------------------------------


def summary(run):
    tests, bad, left = reports.count("tests"), reports.count("failures", "errors"), reports.count("skipped", "disabled")
    print("== the slowest tests", *reports.slowest(40 if run.rows and len(reports.costs()) > 400 else 5), sep="\n")
    say("== summary")
    failed = [f"failed: {failure}" for failure in reports.failures()]
    more = [f"and {len(failed) - MOST_NAMED} more"] if len(failed) > MOST_NAMED else []
    print(*run.rows, *failed[:MOST_NAMED], *more, sep="\n")
    print(f"checks: {run.passed} passed, {run.failed} failed, {run.skipped} skipped")
    print(f"{tests - bad - left} passed, {bad} failed, {left} skipped")
    return 1 if run.failed or bad else 0


def main():
    wanted = arguments()
    if wanted.stress:
        return stressed(wanted.what)
    tiers = [f"--{name}" for name in ("quick", "full", "libtorch") if getattr(wanted, name)]
    if len(tiers) + bool(wanted.what) > 1:
        bad_input(f"{' and '.join([*tiers, *wanted.what])} exclude each other", "name either tests or one tier")
    program.remove_scratch()  # of the run before
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    run = Steps()
    if wanted.quick:
        quick(run)
    elif wanted.libtorch:
        full.try_libtorch(run, wanted.libtorch)
    elif wanted.what:
        named(run, wanted.what)
    else:
        all_of_it(run, wanted.full)
    return summary(run)


os.environ["OMP_NUM_THREADS"] = "1"
sys.stdout.reconfigure(line_buffering=True)
sys.exit(steps.leave_nothing(main))
