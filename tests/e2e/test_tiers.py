"""scripts/test: which tests a change or a name chooses."""

import re
import sys

import pytest

from conftest import SOURCE

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
    names = ["src/lockstep/comm/shm/segment.cpp", "tests/base/text_test.cpp", "docs/reference/ddp.md", "tests/e2e/test_stop.py", "src/trainer/cli/a.h",
             "src/trainer/step/step.cpp", "src/tools/doctor/rules.cpp"]
    assert changes.parts_of(names) == {"comm/shm", "comm", "base", "docs", "cli", "step", "loop", "doctor"}
    assert changes.test_files_of(names) == ["tests/e2e/test_stop.py"]
    assert "tests/e2e/test_slurm.py" in changes.test_files_of(["tests/e2e/slurm_kit.py"])
