"""`lockstep check` and `lockstep workshop` as a learner and an instructor meet them."""

import json
import re
import shutil
import signal
import subprocess
import time

import pytest

from conftest import left_behind, run_process
from process_kit import LONG_PATIENCE, PATIENCE, executable, read_only, wait_for

pytestmark = pytest.mark.about("workshop", "lesson")

SOLVED = """#include <lockstep/workshop.h>
int main(int count, char** words) {
  return lockstep::run([&] {
    lockstep::Session session;
    const int place = 1 + session.rank();
    std::vector<double> numbers = {place < count ? std::stod(words[place]) : place};
    session.team().sum(numbers);
    WORK
    lockstep::show("mean", numbers[0] / session.world());
  });
}
"""


def program(work=""):
    """An answer to groups.1 that does something else besides."""
    return SOLVED.replace("WORK", work)


# What an answer may do besides. They are built as one program, as each build costs seconds of a core; TEST_WORK says which.
WORKS = {
    "nothing": "",
    "own loss": "numbers[0] = (1.0 + session.rank()) * session.world();",
    "divides by zero": "if (session.rank() == 1) { volatile int zero = 0; numbers[0] += 7 / zero; }",
    "calls alone": "if (session.rank() == 0) session.team().sum(numbers);",
    "leaves a child and waits": "if (std::system(\"sleep 300 &\") == 0) for (;;) ::pause();",
    "waits for a file": "while (::access(std::getenv(\"TEST_FILE\"), F_OK) != 0) ::usleep(10000);",
}


@pytest.fixture(scope="session")
def built(prepared, once):
    """A compiler for CXX that takes no time: its program does what TEST_WORK says, whatever it is given."""
    def build(folder):
        run_process([prepared, "workshop", "init", folder / "course"], check=True)
        cases = "".join(f'if (wanted == "{name}") {{ {work} }}\n    ' for name, work in WORKS.items())
        (folder / "course/cases.cpp").write_text(
            "#include <lockstep/workshop.h>\n#include <unistd.h>\n#include <csignal>\n" +
            program(f'const std::string wanted = std::getenv("TEST_WORK");\n    {cases}').split("\n", 1)[1])
        run_process([prepared, "workshop", "build", "cases.cpp"], cwd=folder / "course", check=True)
        executable(folder / "compiler", f"#!/bin/sh\n[ \"$1\" != --version ] || exit 0\nwhile [ \"$1\" != -o ]; do shift; done\n"
                                        f"cp '{folder}/course/build/cases' \"$2\"\n")
    return once("workshop-cases", build) / "compiler"


@pytest.fixture
def doing(built):
    """doing(work): the environment in which an answer, whatever it is, does this."""
    return lambda work, **more: {"CXX": str(built), "TEST_WORK": work, **more} if work in WORKS else pytest.fail(work)


@pytest.fixture
def course(lockstep, tmp_path):
    """A learner's folder, under a name that a shell would trip over."""
    folder = tmp_path / "Jörg's \"course\" $HOME"
    run_process([lockstep, "workshop", "init", folder], check=True)
    return folder


@pytest.fixture
def check(prepared, course):
    """check(ARG...) in the learner's folder -> Result."""
    return lambda *args, **how: run_process([prepared, "check", *args], cwd=how.pop("cwd", course), **how)


def answer(course, text):
    (course / "exercises/groups.1.cpp").write_text(text)


def noted(course):
    return json.loads((course / ".lockstep-workshop.json").read_text()).get("groups.1", {})


# the folder


def test_a_learners_folder_holds_the_course_and_no_solution(course, lockstep):
    text = (course / "exercises/groups.1.cpp").read_text()
    solution = run_process([lockstep, "check", "groups.1", "--solution"], cwd=course, check=True).stdout
    assert "TODO" in text and "//@" not in text
    assert solution.strip() not in text
    texts = [path.read_text(errors="ignore") for path in course.rglob("*") if path.is_file()]
    assert not any(re.search(r"^\s*(//|#)@", text, re.M) for text in texts)


def test_init_keeps_what_is_there_and_a_check_needs_a_compiler(course, lockstep, check):
    answer(course, "mine")
    (course / "exercises/groups.2.cpp").unlink()
    run_process([lockstep, "workshop", "init", "."], cwd=course, check=True)
    assert (course / "exercises/groups.1.cpp").read_text() == "mine" and (course / "exercises/groups.2.cpp").exists()
    assert check("groups.1", env={"CXX": "no-such-compiler"}).returncode == 2


def test_the_copied_pages_lead_to_what_is_there(course):
    """A relative link to the docs would lead nowhere from a learner's folder."""
    pages = list(course.glob("*.md"))
    links = [(page, target) for page in pages
             for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()) if ":" not in target]
    assert len(pages) > 10 and sum("/docs/" in target for _, target in links) > 10
    assert [target for page, target in links if not (page.parent / target).exists()] == []


def test_where_the_course_is_not_installed_a_line_says_how_to_get_it(lockstep, tmp_path):
    shutil.copy(lockstep, tmp_path)
    result = run_process([tmp_path / "lockstep", "check"], env={"LD_LIBRARY_PATH": str(lockstep.parents[1] / "lib")})
    assert result.returncode == 2 and "the course is not installed" in result.stderr and "LOCKSTEP_COURSE=ON" in result.stderr


def test_a_progress_file_that_is_damaged_is_named(check, course):
    passed = []
    for text in ("", "{\"groups.1\": {\"tries\": \"many\"}}"):
        (course / ".lockstep-workshop.json").write_text(text)
        result = check()
        if result.returncode != 2 or ".lockstep-workshop.json" not in result.stderr or "remove" not in result.stderr:
            passed.append((text, result.output))
    assert not passed


# a check

def test_it_passes_and_notes_it_and_the_program_runs_by_hand(check, course, doing, mpirun):
    result = check("groups.1", env=doing("nothing"), check=True)
    assert result.stdout.splitlines()[-3:] == ["  pass", "", "next: lockstep check groups.2"]
    assert noted(course)["solved"] and not result.left_behind
    shown = mpirun(2, course / "build/groups.1", env=doing("nothing"), check=True, quiet=True).stdout
    assert sorted(shown.splitlines()) == ["rank 0: mean = 1.5", "rank 1: mean = 1.5"]


@pytest.mark.parametrize("work, words", [
    ("divides by zero", "rank 1 crashed: it divided an integer by zero"),
    ("calls alone", "rank 0 waited in all-reduce (collective 2) without a result: rank 1 left the group after collective 1"),
])
def test_what_goes_wrong_is_said_in_a_learners_terms(check, course, doing, work, words):
    result = check("groups.1", env=doing(work))
    assert result.returncode == 1
    assert "Not yet: " in result.stdout and words in result.stdout
    assert not result.left_behind and noted(course)["solved"] == ""


def test_what_does_not_compile_is_said_with_its_place(check, course):
    answer(course, "#include <vector>\nint main() {\n  std::vector<double> numbers(1);\n  numbers[0] = no_such_name;\n}\n")
    result = check("groups.1")
    assert result.returncode == 1 and noted(course)["solved"] == ""
    assert "Not yet: " in result.stdout
    assert "groups.1.cpp:4:16: error: 'no_such_name' was not declared in this scope" in result.stdout


def test_inside_a_job_it_starts_ranks_of_its_own(check, doing):
    check("groups.1", check=True, env=doing("nothing", SLURM_JOB_ID="7", SLURM_NTASKS="4", SLURM_PROCID="0",
                                            SLURM_LOCALID="0", SLURM_NODEID="0", PBS_JOBID="7.x"))


@pytest.mark.full
def test_two_checks_of_a_folder_wait_for_each_other_and_both_are_right(prepared, course, doing, start, tmp_path):
    def begin_check():
        return start(prepared, "check", "groups.1", cwd=course, stdout=subprocess.PIPE, text=True,
                     env=doing("waits for a file", TEST_FILE=tmp_path / "file", LOCKSTEP_CHECKS=2))

    first = begin_check()
    assert any("2 ranks" in line for line in iter(first.stdout.readline, ""))
    second = begin_check()
    assert any("another check of this folder runs" in line for line in iter(second.stdout.readline, ""))
    (tmp_path / "file").touch()
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert "another check" not in outputs[0] and all("  pass" in text for text in outputs)
    assert noted(course)["tries"] == 2


def test_interrupted_it_leaves_nothing_behind(prepared, course, doing, start):
    process = start(prepared, "check", "groups.1", cwd=course, env=doing("leaves a child and waits"), stdout=subprocess.PIPE,
                    text=True)
    assert any("2 ranks" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == -signal.SIGINT
    assert process.stdout.read().strip().endswith("stopped")
    assert not left_behind(process)


# hints, solutions, progress

def test_hints_come_in_steps_a_solution_is_noted_and_a_reset_keeps_the_learners_file(check, course, doing):
    said = [check(word, "--hint", check=True).stdout for word in ("groups.1", "groups.1", "groups.1", "exercises/groups.1.cpp")]
    assert [text.split(":")[0] for text in said] == ["hint 1 of 3", "hint 2 of 3", "hint 3 of 3", "hint 3 of 3"]
    check("groups.1", "--solution", check=True)
    check("groups.1", env=doing("nothing"), check=True)
    assert "read  groups.1" in check().stdout
    answer(course, "mine")
    check("groups.1", "--reset", check=True)
    assert (course / "exercises/groups.1.cpp.old").read_text() == "mine"


def test_all_that_was_begun_is_checked_again(check, doing):
    assert check("--all", check=True).stdout == ""
    check("groups.1", env=doing("own loss"))
    result = check("--all", env=doing("own loss"))
    assert result.returncode == 1 and "not yet: with 2 ranks, rank 0 has 1 as `mean`, but 1.5 is correct" in result.stdout


# at every save


def test_a_file_that_is_taken_away_ends_no_watch_of_the_others(prepared, course, start, tmp_path):
    with open(tmp_path / "said", "w") as said:
        process = start(prepared, "check", "--watch", cwd=course, stdout=said, stderr=said)
    text = (tmp_path / "said").read_text
    wait_for(lambda: "save one to check it" in text(), what="the watch")
    away = course / "exercises/start.1.cpp"
    away.rename(course / "exercises/mine.cpp")
    time.sleep(0.6)
    answer(course, "int main() { return no; }")
    wait_for(lambda: text().count("save to check again") == 1, what="the check of another file")
    away.write_text("int main() { return no; }")
    wait_for(lambda: text().count("save to check again") == 2, what="the check of the file that is back")
    assert "watching groups.1" in text() and "watching start.1" in text()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0


# a class


def test_a_class_is_looked_over(lockstep, course, tmp_path):
    other = tmp_path / "other"
    run_process([lockstep, "workshop", "init", other], check=True)
    (other / ".lockstep-workshop.json").write_text(
        '{"groups.1": {"tries": 3, "solved": "2026-01-02 03:04", "last": "2026-01-02 03:05", "saw_solution": true}}')
    words = [lockstep, "workshop", "progress", course, tmp_path / "nobody", other]
    result = run_process(words, check=True)
    rows = result.stdout.splitlines()
    assert len(rows) == 3 and "nobody" in result.stderr
    assert re.search(r"0/\d+ +0 +0 +-$", rows[1])
    assert re.search(r"other +1/\d+ +0 +1 +2026-01-02 03:05$", rows[2])
    told = json.loads(run_process([*words, "--json"], check=True).stdout)
    assert told[1]["exercises"]["groups.1"]["tries"] == 3


# an install that nobody may write to

@pytest.mark.full
def test_from_a_read_only_install_an_exercise_is_solved(build_dir, course, tmp_path):
    prefix = tmp_path / "prefix"
    run_process(["cmake", "--install", build_dir, "--prefix", prefix], check=True)
    run_process([prefix / "bin/lockstep", "workshop", "prepare"], check=True, timeout=LONG_PATIENCE)
    answer(course, program())
    result = run_process([*read_only(prefix), prefix / "bin/lockstep", "check", "groups.1"], cwd=course, check=True)
    assert "building\n" in result.stdout and "  pass" in result.stdout
    assert sum(path.lstat().st_size for path in course.rglob("*")) < 20 << 20
