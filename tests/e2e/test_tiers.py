"""scripts/test: which tests a change or a name chooses, in which order, and what an ended run leaves."""

import pathlib
import re
import subprocess
import sys

import pytest

import dealing_kit
from conftest import SOURCE, clean_environment
from process_kit import PATIENCE, wait_for

sys.path.insert(0, str(SOURCE / "scripts/testing"))
import changes  # noqa: E402
import modules  # noqa: E402

pytestmark = pytest.mark.about("scripts")

E2E = SOURCE / "tests/e2e"
FILES = sorted(E2E.glob("test_*.py"))


def parts_of(path):
    marks = re.findall(r"^pytestmark = \[?pytest\.mark\.about\(([^)]*)\)", path.read_text(), re.M)
    return re.findall(r'"([^"]+)"', "".join(marks))


# what is about what

def test_each_file_says_what_it_is_about():
    """A name that is nothing's would never be chosen."""
    known = {*modules.modules(), "every command"}
    wrong = [f"{path.name}: {part}" for path in FILES for part in parts_of(path) or ["nothing"]
             if part not in known and not (SOURCE / part).is_dir()]
    assert not wrong


def test_every_module_has_tests_of_its_own_or_of_the_program():
    marked = {part for path in FILES for part in parts_of(path)}
    tested = {module for module in modules.modules() if list((SOURCE / "tests" / module.partition("/")[0]).glob("*.cpp"))}
    assert sorted(set(modules.modules()) - marked - tested - set(modules.covering())) == []
    assert set(modules.covering()) < set(modules.modules()) and set(modules.covering().values()) <= tested


def test_a_change_touches_its_module_or_its_folder():
    names = ["src/lockstep/comm/memory/bell.cpp", "tests/base/text_test.cpp", "docs/ddp.md", "tests/e2e/test_stop.py", "src/trainer/cli/a.h",
             "src/trainer/step/step.cpp", "src/tools/doctor/node/gpus.cpp"]
    assert changes.parts_of(names) == {"comm/memory", "comm/node", "comm", "base", "docs", "cli", "step", "loop", "doctor/node", "doctor"}
    assert changes.test_files_of(names) == ["tests/e2e/test_stop.py"]
    assert "tests/e2e/test_slurm.py" in changes.test_files_of(["tests/e2e/slurm_kit.py"])


def test_the_build_tells_which_modules_read_a_header(build_dir):
    if build_dir != SOURCE / "build/release":
        pytest.skip("it looks into build/release")
    assert {"optim", "zero", "step"} <= changes.compiled_with(["src/lockstep/optim/optimizer.h"])
    assert "plot" not in changes.compiled_with(["src/lockstep/optim/optimizer.h"])
    assert changes.compiled_with(["docs/ddp.md"]) == set()


def test_the_tests_of_an_inner_module_without_any_are_those_of_the_outer():
    known = [("comm", []), ("comm_2_ranks", []), ("workshop", []), ("workshop_judges", []), ("commons", [])]
    assert modules.names_of("comm/meet", known) == ["comm", "comm_2_ranks"]
    assert modules.names_of("workshop/judges", known) == ["workshop_judges"]
    assert modules.names_of("plot", known) == []
    assert modules.names_of("step", [("loop", []), ("loop_2_ranks", [])]) == ["loop", "loop_2_ranks"]


# who takes what

class Item:
    def __init__(self, nodeid):
        self.nodeid = nodeid

    def iter_markers(self, _name):
        return []


def test_a_file_that_shares_a_set_up_stays_with_one_worker():
    assert dealing_kit.group_of("tests/e2e/test_slurm.py::test_a") == dealing_kit.group_of("tests/e2e/test_slurm.py::test_b[1]")
    assert dealing_kit.group_of("tests/e2e/test_tiers.py::test_a") != dealing_kit.group_of("tests/e2e/test_tiers.py::test_b")


def test_the_longest_group_comes_first():
    names = ["test_tiers.py::short", "test_slurm.py::a", "test_tiers.py::long", "test_slurm.py::b", "test_tiers.py::new"]
    costs = {"test_tiers.py::short": 0.1, "test_tiers.py::long": 9, "test_slurm.py::a": 6, "test_slurm.py::b": 4}
    ordered = [item.nodeid for item in dealing_kit.longest_first([Item(name) for name in names], costs)]
    assert ordered == [names[place] for place in (1, 3, 2, 4, 0)]


def test_a_budget_takes_the_cheapest_and_says_what_is_left():
    items = [Item(f"test_tiers.py::{name}") for name in "abc"]
    kept, left = dealing_kit.within(items, 4, {"test_tiers.py::a": 3, "test_tiers.py::b": 2, "test_tiers.py::c": 1})
    assert kept == items[1:] and left == items[:1]


# a run that ends before its time

def test_an_interrupted_run_leaves_nothing(tmp_path):
    """What a test started in a session of its own, too."""
    script = ("import sys, subprocess, time; sys.path.insert(0, sys.argv[1]); import steps\n"
              "def work():\n"
              "    child = subprocess.Popen(['setsid', 'sleep', '1000'])\n"
              "    print(child.pid, flush=True)\n"
              "    time.sleep(1000)\n"
              "steps.leave_nothing(work)\n")
    process = subprocess.Popen([sys.executable, "-c", script, SOURCE / "scripts/testing"], stdout=subprocess.PIPE, text=True,
                               env=clean_environment(), start_new_session=True)
    pid = int(process.stdout.readline())
    process.terminate()
    assert process.wait(PATIENCE) == 128 + 15
    wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="its child to end")
