"""scripts/test: what a tier runs, in which order, and what it says of a test that fails."""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

import dealing_kit
from conftest import SOURCE, clean_environment, run_process
from process_kit import PATIENCE, wait_for

sys.path.insert(0, str(SOURCE / "scripts/testing"))
import changes  # noqa: E402
import modules  # noqa: E402
import scratch  # noqa: E402
import stress  # noqa: E402

pytestmark = pytest.mark.about("scripts")

E2E = SOURCE / "tests/e2e"
FILES = sorted(E2E.glob("test_*.py"))


def parts_of(path):
    marks = re.findall(r"^pytestmark = pytest\.mark\.about\((.*)\)$", path.read_text(), re.M)
    return re.findall(r'"([^"]+)"', "".join(marks))


# what is about what

@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_what_it_is_about(path):
    """A name that is nothing's would never be chosen."""
    named = set(parts_of(path)) - {"every command"}
    assert parts_of(path)
    assert not [part for part in named if part not in modules.modules() and not (SOURCE / part).is_dir()]


def test_every_module_has_tests_of_its_own_or_of_the_program():
    marked = {part for path in FILES for part in parts_of(path)}
    tested = {module for module in modules.modules() if list((SOURCE / "tests" / module.partition("/")[0]).glob("*.cpp"))}
    assert sorted(set(modules.modules()) - marked - tested - set(modules.covering())) == []
    assert set(modules.covering()) < set(modules.modules()) and set(modules.covering().values()) <= tested


def test_no_module_has_more_than_24_sources():
    folders = [layer / module for layer in modules.LAYERS for module in modules.modules()]
    assert not [folder for folder in folders if len(list(folder.glob("*.cpp"))) > 24]


def longest_chain(folder):
    """Files of one module that include each other, one behind the other: the most there are."""
    files = [path for ending in ("h", "cpp") for path in folder.glob(f"*.{ending}")]
    name = folder.relative_to(folder.parents[len(folder.relative_to(SOURCE / "src").parts) - 1])
    below = {}
    for path in files:
        found = re.findall(rf'#include "{name}/(\w+)\.h"', path.read_text())
        below.setdefault(path.stem, set()).update(set(found) - {path.stem})

    def depth(stem, above=()):
        return 1 + max((depth(next_one, (*above, stem)) for next_one in below.get(stem, ()) if next_one not in above), default=0)

    return max((depth(stem) for stem in below), default=0)


def test_no_module_includes_its_own_files_deeper_than_seven():
    chains = {module: max(longest_chain(layer / module) for layer in modules.LAYERS) for module in modules.modules()}
    assert {module: chain for module, chain in chains.items() if chain > 7} == {}
    assert chains["config"] > 4  # the count counts


# A class, an enum or an alias of a namespace: clang-format leaves it at a line's start, where no nested one stands. Forward
# declarations, `struct Outer::Inner {` and `struct Table<Row> {` define no name of their own.
TYPE = re.compile(r"^(?:(?:class|struct|union|enum(?: class)?) (?:\[\[\w+\]\] )?(\w+)(?: final)?\s*(?:\{|:(?!:)[^;{]*\{)"
                  r"|using (\w+) =(?!\s*(?:\w+::)+\2\b))", re.M)  # `using Text = base::Text<...>` is the same type


def types_in(header):
    """What a header's namespaces define."""
    return {match[1] or match[2] for match in TYPE.finditer(header)}


def test_the_types_of_a_header_are_those_of_its_namespaces():
    header = """
        class Ahead;
        template <class T>
        class Box
            : public Base {
          struct Inner {};
          using Item = T;
        };
        struct [[nodiscard]] Plain final {};
        enum class Kind : char { a };
        enum Kind;
        struct Box::Hidden : Base {};
        template <>
        struct Table<Kind> {};
        using Names = std::vector<std::string>;
        using Long =
            std::vector<int>;
        using Text = base::Text<int>;
        using Words = base::Word;
        using base::Word;
        struct Plain make(struct Plain plain);
    """.replace("\n        ", "\n")
    assert types_in(header) == {"Box", "Plain", "Kind", "Names", "Long", "Words"}


def test_a_type_name_stands_in_one_header():
    """Whoever reads a name in one module does not have to ask which of two is meant."""
    places = {}
    for header in sorted((SOURCE / "src").rglob("*.h")):
        for name in types_in(header.read_text()):
            places.setdefault(name, []).append(str(header.relative_to(SOURCE / "src")))
    assert len(places) > 700
    twice = [f"{name}: {', '.join(headers)}" for name, headers in sorted(places.items()) if len(headers) > 1]
    assert not twice, "\n".join(["types of one name in several headers; rename one:", *twice])


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


# a test that fails

@pytest.fixture
def pytest_here(tmp_path):
    """pytest_here(TEXT, ARG...) -> what pytest says of a file with that text, with the hooks of conftest.py."""
    def run(text, *words):
        (tmp_path / "test_it.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-p", "conftest", "-q", "--rootdir", tmp_path, "-c", "/dev/null", *words, tmp_path]
        return run_process(command, cwd=tmp_path, env={"PYTHONPATH": str(E2E)})
    return run


def test_a_failing_test_says_how_it_runs_alone(pytest_here):
    said = pytest_here("import pytest\n@pytest.mark.parametrize('a', ['x y', 'z'])\ndef test_a(a):\n    assert a == 'z'\n")
    assert said.returncode == 1
    assert re.findall(r"^run it alone: (.*)$", said.stdout, re.M) == ["scripts/test 'test_it.py::test_a[x y]'"]


# a test that depends on the weather

COUNTED = "import pathlib\ndef test_a():\n    runs = pathlib.Path(__file__).with_name('runs')\n" \
          "    runs.write_text(runs.read_text() + 'x' if runs.exists() else 'x')\n    assert len(runs.read_text()) < LIMIT\n"


@pytest.mark.parametrize("limit, passes", [(9, True), (2, False)])
def test_stress_runs_a_test_again_and_again(limit, passes, tmp_path, monkeypatch, capsys):
    (tmp_path / "test_it.py").write_text(COUNTED.replace("LIMIT", str(limit)))
    monkeypatch.setattr(stress, "commands_for", lambda test: [[sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", tmp_path]])
    if not passes:
        monkeypatch.setattr(stress, "busy", lambda number: contextlib.nullcontext())  # what passes is tried beside them
    assert stress.run("it", 3) is passes
    said = capsys.readouterr()
    assert ("it: 3 of 3 passed" if passes else "it: 1 of 3 passed") in said.out
    assert passes or "run 2 of 3 failed" in said.err


def test_stress_shows_nothing_by_a_test_that_is_skipped(tmp_path, monkeypatch):
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_a():\n    pytest.skip('no')\n")
    monkeypatch.setattr(stress, "commands_for", lambda test: [[sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", tmp_path]])
    monkeypatch.setattr(stress, "busy", lambda number: contextlib.nullcontext())
    assert stress.run("it", 3) is False


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


def run_with_files(tmp_path):
    """A run that has written something read-only, and its folder."""
    script = ("import sys, time; sys.path.insert(0, sys.argv[1]); import scratch, steps\n"
              "def work():\n"
              "    folder, _ = scratch.take()\n"
              "    (folder / 'inner').mkdir(parents=True)\n"
              "    (folder / 'inner').chmod(0o500)\n"
              "    print(folder, flush=True)\n"
              "    time.sleep(1000)\n"
              "steps.leave_nothing(work)\n")
    process = subprocess.Popen([sys.executable, "-c", script, SOURCE / "scripts/testing"], stdout=subprocess.PIPE, text=True,
                               env={**clean_environment(), "TMPDIR": str(tmp_path)}, start_new_session=True)
    return process, pathlib.Path(process.stdout.readline().strip())


def test_the_files_of_a_killed_run_go_with_the_next_one(tmp_path, monkeypatch):
    """And an interrupted one removes its own; those of a living one, or of nobody's, stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, left = run_with_files(tmp_path)
    living, used = run_with_files(tmp_path)
    (tmp_path / "lt-other").mkdir()
    killed.kill()
    killed.wait(PATIENCE)
    scratch.remove_left()
    assert not left.exists() and used.exists()
    living.terminate()
    assert living.wait(PATIENCE) == 128 + 15
    assert [path.name for path in tmp_path.iterdir()] == ["lt-other"]


# what compiling costs

def test_compile_times_names_the_most_expensive(build_dir, run):
    said = run(SOURCE / "scripts/compile-times", build_dir, check=True).stdout
    assert re.match(r"\d+ objects, \d+ s of compiling\n", said)
    sources, headers = said.split("our headers: what a change in one compiles again\n")
    assert len(re.findall(r"^ +\d+\.\d s  \S+\.c\w+", sources, re.M)) == 10
    costs = [float(seconds) for seconds in re.findall(r"^ +(\d+\.\d) s  (?:src|tests)/\S+\.h, \d+ objects$", headers, re.M)]
    assert len(costs) == 10 and costs == sorted(costs, reverse=True)


def test_compile_times_of_no_build_says_what_to_do(run, tmp_path):
    refused = run(SOURCE / "scripts/compile-times", tmp_path)
    assert refused.returncode == 2 and "was never built" in refused.stderr and "scripts/bootstrap" in refused.stderr
