"""`lockstep check` and `lockstep workshop` as a learner and an instructor meet them."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import SOURCE, left_behind, run_process
from process_kit import LONG_PATIENCE, NOBODY, PATIENCE, let_others_pass, on_terminal, shared_library, wait_for

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
    "touches others' memory": "if (session.rank() == 1) *reinterpret_cast<volatile int*>(8) = 1;",
    "asks for too much": "if (session.rank() == 0) std::vector<char> all(size_t{9} << 30);",
    "leaves early": "if (session.rank() == 0) std::exit(0);",
    "throws": "if (session.rank() == 1) throw std::runtime_error(\"bad\");",
    "calls alone": "if (session.rank() == 0) session.team().sum(numbers);",
    "leaves children": "if (std::system(\"setsid sleep 300 & setsid -f sleep 301\") != 0) return;",
    "never ends": "if (session.rank() == 1) for (volatile int i = 0;; i = i + 1) {}\n    session.team().sum(numbers);",
    "kills its checker": "::kill(::getppid(), SIGKILL); ::pause();",
    "stops its checker": "::kill(::getppid(), SIGSTOP); ::pause();",
    "leaves a daemon and kills its checker": "if (std::system(\"setsid sleep 300 & setsid -f sleep 301\") == 0) "
                                             "::kill(::getppid(), SIGKILL); ::pause();",
    "closes its folder": "if (session.rank() == 0) (void)!std::system(\"mkdir -p a/b; touch a/b/c; chmod 000 a/b a .. .\");",
    "leaves a child and waits": "if (std::system(\"setsid sleep 300 &\") == 0) for (;;) ::pause();",
    "waits for a file": "while (::access(std::getenv(\"TEST_FILE\"), F_OK) != 0) ::usleep(10000);",
    "prints": "std::cout << \"I am \" << session.rank() << std::endl;",
    "prints, and is wrong": "std::cout << \"I am \" << session.rank() << std::endl; numbers[0] = 0;",
    "comes late": "if (session.rank() == 0) session.team().sum(numbers); else ::sleep(4);\n"
                  "    if (session.rank() == 1) session.team().sum(numbers);",
}


@pytest.fixture(scope="session")
def built(prepared, once):
    """A compiler for CXX that takes no time: its program does what TEST_WORK says, whatever it is given."""
    def build(folder):
        run_process([prepared, "workshop", "init", folder / "course"], check=True)
        cases = "".join(f'if (wanted == "{name}") {{ {work} }}\n    ' for name, work in WORKS.items())
        (folder / "course/cases.cpp").write_text(
            "#include <lockstep/workshop.h>\n#include <unistd.h>\n#include <csignal>\n#include <iostream>\n" +
            program(f'const std::string wanted = std::getenv("TEST_WORK");\n    {cases}').split("\n", 1)[1])
        run_process([prepared, "workshop", "build", "cases.cpp"], cwd=folder / "course", check=True)
        (folder / "compiler").write_text(f"#!/bin/sh\n[ \"$1\" != --version ] || exit 0\n"
                                         f"while [ \"$1\" != -o ]; do shift; done\n"
                                         f"cp '{folder}/course/build/cases' \"$2\"\n")
        (folder / "compiler").chmod(0o755)
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

def test_the_repositorys_exercises_are_those_of_a_learner(course):
    made = {path.name: path.read_text() for path in (SOURCE / "tutorials/exercises").iterdir()}
    assert made == {path.name: path.read_text() for path in (course / "exercises").iterdir()}


def test_a_learners_folder_holds_the_course_and_no_solution(course, lockstep):
    text = (course / "exercises/groups.1.cpp").read_text()
    solution = run_process([lockstep, "check", "groups.1", "--solution"], cwd=course, check=True).stdout
    assert "TODO" in text and "//@" not in text
    assert solution.strip() not in text
    texts = [path.read_text(errors="ignore") for path in course.rglob("*") if path.is_file()]
    assert not any(re.search(r"^\s*(//|#)@", text, re.M) for text in texts)


def test_the_copied_pages_lead_to_what_is_there(course):
    """A relative link to the docs would lead nowhere from a learner's folder."""
    pages = list(course.glob("*.md"))
    links = [(page, target) for page in pages
             for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()) if ":" not in target]
    assert len(pages) > 10 and sum("/docs/" in target for _, target in links) > 10
    assert [target for page, target in links if not (page.parent / target).exists()] == []


def test_init_puts_back_what_is_missing_and_keeps_what_is_there(course, lockstep):
    answer(course, "mine")
    run_process([lockstep, "workshop", "init", "."], cwd=course, check=True)
    assert (course / "exercises/groups.1.cpp").read_text() == "mine"
    (course / "exercises/groups.1.cpp").unlink()
    run_process([lockstep, "workshop", "init", "."], cwd=course, check=True)
    assert "TODO" in (course / "exercises/groups.1.cpp").read_text()


def test_no_course_is_made_inside_a_course(course, lockstep):
    for place in ["another", "exercises", "a/b"]:
        result = run_process([lockstep, "workshop", "init", place], cwd=course)
        assert result.returncode == 2 and "you are in a course already" in result.stderr, result.stderr
        assert "outside it" in result.stderr
    assert not (course / "another").exists() and not (course / "a").exists()


def test_init_here_names_the_page_to_begin_with(lockstep, tmp_path):
    said = run_process([lockstep, "workshop", "init", "."], cwd=tmp_path, check=True).stdout
    assert f"{tmp_path}/README.md" in said and "//" not in said


def test_each_action_of_the_workshop_has_a_line_of_help(lockstep):
    said = run_process([lockstep, "workshop", "--help"], check=True).stdout
    for action in ["init DIR", "build FILE.cpp", "prepare", "prove EXERCISE", "progress DIR..."]:
        assert any(line.strip().startswith(action) for line in said.splitlines()), action


def test_a_file_that_is_gone_is_said_with_the_way_to_get_it_back(check, course):
    (course / "exercises/groups.1.cpp").unlink()
    result = check("groups.1")
    assert result.returncode == 2
    assert "lockstep check groups.1 --reset" in result.stderr
    assert check("groups.1", "--reset").returncode == 0
    assert "TODO" in (course / "exercises/groups.1.cpp").read_text()


def test_reset_keeps_the_learners_file_beside(check, course):
    answer(course, "mine")
    assert "yours is now groups.1.cpp.old" in check("groups.1", "--reset", check=True).stdout
    assert (course / "exercises/groups.1.cpp.old").read_text() == "mine"


def test_outside_a_course_it_says_how_to_make_one(lockstep, tmp_path):
    result = run_process([lockstep, "check"], cwd=tmp_path)
    assert result.returncode == 2 and "lockstep workshop init DIR" in result.stderr


def test_a_copy_within_the_course_itself_is_refused(lockstep, tmp_path):
    (tmp_path / "tutorials/masters").mkdir(parents=True)
    for place in ("my-course", "new/deeper", "."):
        result = run_process([lockstep, "workshop", "init", place], cwd=tmp_path / "tutorials",
                             env={"LOCKSTEP_HOME": str(tmp_path)})
        assert result.returncode == 2 and "outside it" in result.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["tutorials", "masters"]
    run_process([lockstep, "workshop", "init", "../tutorials-of-mine"], cwd=tmp_path / "tutorials", check=True,
                env={"LOCKSTEP_HOME": str(tmp_path)})


@pytest.mark.parametrize("text", ["", "[]", "{\"groups.1\": 7}", "{\"groups.1\": {\"tries\": \"many\"}}", "\0\xff"])
def test_a_progress_file_that_is_damaged_is_named(check, course, text):
    (course / ".lockstep-workshop.json").write_text(text)
    result = check()
    assert result.returncode == 2 and ".lockstep-workshop.json" in result.stderr and "remove" in result.stderr


def test_a_count_of_hints_below_nothing_is_nothing(check, course):
    (course / ".lockstep-workshop.json").write_text('{"groups.1": {"hints": -7}}')
    assert check("groups.1", "--hint").stdout.startswith("hint 1 of")


# a check

def test_it_passes_and_notes_it_and_the_program_runs_by_hand(check, course, mpirun):
    answer(course, program())
    result = check("groups.1", check=True)
    assert result.stdout.splitlines()[-3:] == ["  pass", "", "next: lockstep check groups.2"]
    assert noted(course)["solved"] and not result.left_behind
    shown = mpirun(2, course / "build/groups.1", check=True, quiet=True).stdout
    assert sorted(shown.splitlines()) == ["rank 0: mean = 1.5", "rank 1: mean = 1.5"]


@pytest.mark.parametrize("work, words", [
    ("divides by zero", "rank 1 crashed: it divided a whole number by zero"),
    ("touches others' memory", "rank 1 crashed: it touched memory that is not its own"),
    ("asks for too much", "rank 0 asked for more memory than 4 GB"),
    ("leaves early", "rank 0 never showed `mean`"),
    ("throws", "rank 1 left with an error:\n[rank 1] error: bad"),
    ("calls alone", "rank 0 waited in all-reduce (collective 2), and in vain: rank 1 left the group after collective 1"),
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


def test_ranks_that_leave_children_behind_are_swept(check, doing):
    result = check("groups.1", check=True, env=doing("leaves children"))
    assert not result.left_behind


def test_a_rank_that_never_ends_is_told_from_the_one_that_waits_for_it(check, doing):
    assert "rank 1 still computed after" in check("groups.1", env=doing("never ends")).stdout


def test_facts_that_a_program_forges_are_judged_as_what_they_say_and_no_more(check, course):
    answer(course, "#include <unistd.h>\nint main() { (void)!write(3, \"{\\\"name\\\":\\\"mean\\\",\\\"numb\", 22); }\n")
    assert "never showed `mean`" in check("groups.1").stdout


def test_a_folder_that_cannot_be_written_is_said(check, course):
    (course / "build").write_text("a file in the folder's place")
    result = check("groups.1")
    assert result.returncode in (1, 2) and "build" in result.stderr


def test_inside_a_job_it_starts_ranks_of_its_own(check, doing):
    check("groups.1", check=True, env=doing("nothing", SLURM_JOB_ID="7", SLURM_NTASKS="4", SLURM_PROCID="0",
                                            SLURM_LOCALID="0", SLURM_NODEID="0", PBS_JOBID="7.x"))


ONE_GPU = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
"""


def test_beside_a_gpu_it_runs_on_the_cpu_as_two_ranks_cannot_share_one(check, doing, tmp_path):
    shared_library(tmp_path, "libcuda.so.1", ONE_GPU)
    check("groups.1", check=True, env=doing("nothing", LD_LIBRARY_PATH=tmp_path))


def test_below_mpirun_one_rank_speaks(prepared, course, doing, mpirun):
    result = mpirun(2, prepared, "check", "groups.1", cwd=course, env=doing("nothing"), check=True)
    assert result.stdout.count("pass") == 1


def test_a_rank_that_the_shell_only_speaks_of_is_told_so(check, course):
    for args in (("groups.1", "--hint"), ("groups.1",)):
        result = check(*args, env={"RANK": "1", "WORLD_SIZE": "2"})
        assert result.returncode == 2 and "this shell says that it is rank 1 of 2" in result.stderr
        assert "unset RANK WORLD_SIZE" in result.stderr
    result = check("groups.1", "--hint", env={"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}, check=True)
    assert result.stdout + result.stderr == ""


def test_a_program_that_kills_its_checker_is_told_of_it(check, doing):
    result = check("groups.1", env=doing("kills its checker"))
    assert result.returncode == 1 and "the check was killed (signal 9)" in result.stderr
    assert not result.left_behind


def test_a_program_that_stops_its_checker_is_told_of_it_and_holds_nobody_up(check, doing):
    result = check("groups.1", env=doing("stops its checker", LOCKSTEP_CHECKS=1))
    assert result.returncode == 1 and "the check was stopped (signal 19, SIGSTOP)" in result.stderr
    assert not result.left_behind
    assert "waiting" not in check("groups.1", check=True, env=doing("nothing")).stdout


def test_what_a_killed_check_left_is_ended_by_its_guard(check, doing):
    result = check("groups.1", env=doing("leaves a daemon and kills its checker"))
    assert result.returncode == 1 and "the check was killed (signal 9)" in result.stderr
    assert not result.left_behind


def test_a_check_that_is_stopped_holds_up_no_other_folder_and_is_named_in_its_own(prepared, course, doing, start,
                                                                                    tmp_path):
    """As by Ctrl-Z: the guard and the check below it."""
    waits = doing("waits for a file", TEST_FILE=tmp_path / "file", LOCKSTEP_CHECKS=1)
    first = start(prepared, "check", "groups.1", cwd=course, stdout=subprocess.PIPE, text=True, env=waits)
    assert any("2 ranks" in line for line in iter(first.stdout.readline, ""))
    os.killpg(first.pid, signal.SIGSTOP)
    other = tmp_path / "other"
    run_process([prepared, "workshop", "init", other], check=True)
    # for the stopped one it would wait ten minutes, longer than this has; another test's check may be waited for
    run_process([prepared, "check", "groups.1"], cwd=other, env=doing("nothing", LOCKSTEP_CHECKS=1), check=True)
    result = run_process([prepared, "check", "groups.1"], cwd=course, env=doing("nothing"))
    assert result.returncode == 2 and "a check of this folder is stopped (process " in result.stderr
    (tmp_path / "file").touch()
    os.killpg(first.pid, signal.SIGCONT)
    assert "  pass" in first.communicate(timeout=PATIENCE)[0]


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(prepared, course, doing, start, number):
    process = start(prepared, "check", "groups.1", cwd=course, env=doing("leaves a child and waits"), stdout=subprocess.PIPE,
                    text=True)
    assert any("2 ranks" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(number)
    assert process.wait(PATIENCE) == -number
    assert process.stdout.read().strip().endswith("stopped")
    assert not left_behind(process)


def test_a_lock_of_who_keeps_files_closed_holds_for_others_too(prepared):
    script = ('mount -t tmpfs -o mode=1777 none /tmp && cd /tmp && $2 test -x "$1" || exit 99\n'
              'umask 077; export LOCKSTEP_CHECKS=1; "$1" workshop init mine >&2; cd mine\n'
              'echo no >exercises/groups.1.cpp; "$1" check groups.1 >&2; stat -c %a /tmp/*.lock build/.lock\n'
              '( flock 9; until [ -e /tmp/go ]; do sleep 0.1; done ) 9</tmp/lockstep-check-0.lock &\n'
              'while flock -n /tmp/lockstep-check-0.lock true; do sleep 0.1; done\n'
              'umask 022; mkdir /tmp/other; chown 65534 /tmp/other; cd /tmp/other; $2 "$1" workshop init . >&2\n'
              'echo no >exercises/groups.1.cpp; $2 "$1" check groups.1 >/tmp/said &\n'
              'until grep waiting: /tmp/said >&2; do sleep 0.1; done\n'
              'touch /tmp/go; wait; cat /tmp/said')
    result = run_process(["unshare", "--mount", "sh", "-c", script, "sh", prepared, " ".join(NOBODY)])
    if result.returncode in (99, 125) or "unshare" in result.stderr:
        pytest.skip("may not mount here, or not be another user")
    assert result.stdout.splitlines()[:2] == ["644", "644"]
    assert "waiting: a check runs on this machine already" in result.stdout
    assert "does not compile" in result.stdout


def test_a_planted_link_is_no_lock_of_ours(prepared):
    script = ('mount -t tmpfs -o mode=1777 none /tmp && cd /tmp || exit 99\n'
              '"$1" workshop init mine >&2; cd mine; echo no >exercises/groups.1.cpp\n'
              'ln -s /tmp/victim /tmp/lockstep-check-0.lock; LOCKSTEP_CHECKS=2 "$1" check groups.1\n'
              'ls /tmp; LOCKSTEP_CHECKS=1 "$1" check groups.1 >/tmp/said &\n'
              'until grep waiting: /tmp/said; do sleep 0.1; done; kill $!')
    result = run_process(["unshare", "--mount", "sh", "-c", script, "sh", prepared])
    if result.returncode in (99, 125) or "unshare" in result.stderr:
        pytest.skip("may not mount here")
    assert "does not compile" in result.stdout and "victim" not in result.stdout.split()
    assert "lockstep-check-1.lock" in result.stdout and "waiting: a check runs" in result.stdout


def test_a_full_disk_is_said_as_such(prepared, tmp_path):
    script = ('mount -t tmpfs -o size=32m none "$0" && "$1" workshop init "$0" >/dev/null && cd "$0" || exit 99\n'
              'head -c 40m /dev/zero >fill; "$1" check groups.1')
    result = run_process(["unshare", "--mount", "sh", "-c", script, tmp_path, prepared])
    if result.returncode in (99, 125) or "unshare" in result.stderr:
        pytest.skip("may not mount here")
    assert result.returncode == 1 and "no room for the program" in result.stderr


# hints, solutions, progress

def test_hints_come_in_steps_and_end_with_the_last(check):
    said = [check("groups.1", "--hint", check=True).stdout for _ in range(4)]
    assert [text.split(":")[0] for text in said] == ["hint 1 of 3", "hint 2 of 3", "hint 3 of 3", "hint 3 of 3"]


def test_the_last_hint_leads_on_to_the_solution(check, doing):
    said = [check("groups.1", "--hint", check=True).stdout for _ in range(3)]
    assert ["that was the last hint" in text and "--solution" in text for text in said] == [False, False, True]
    told = check("groups.1", env=doing("own loss")).stdout
    assert "No hint is left" in told and "lockstep check groups.1 --solution" in told


def test_what_a_rank_printed_is_shown_where_it_does_not_pass(check, doing):
    told = check("groups.1", env=doing("prints, and is wrong")).stdout
    assert "rank 0 printed: I am 0\nrank 1 printed: I am 1\n(all of it: build/run/groups.1/rank-N.log)\n" in told
    assert "I am" not in check("groups.1", env=doing("prints"), check=True).stdout


@pytest.mark.parametrize("word", ["exercises/groups.1.cpp", "exercises/groups.1", "groups.1.cpp", "./exercises/groups.1.cpp"])
def test_a_files_path_names_its_exercise(check, word):
    assert check(word, "--hint", check=True).stdout.startswith("hint 1 of")


def test_who_solved_it_before_reading_the_solution_has_solved_it(check, course):
    (course / ".lockstep-workshop.json").write_text('{"groups.1": {"tries": 1, "solved": "2026-01-02 03:04"}}')
    check("groups.1", "--solution", check=True)
    assert "done  groups.1" in check().stdout


def test_who_saw_the_solution_is_told_from_who_found_it(check, doing):
    check("groups.1", "--solution", check=True)
    check("groups.1", env=doing("nothing"), check=True)
    assert "read  groups.1" in check().stdout


def test_the_overview_fits_a_terminal_and_is_coloured_there_alone(check, course, lockstep, start):
    (course / ".lockstep-workshop.json").write_text('{"groups.1": {"tries": 1, "solved": "2026-01-02 03:04"}}')
    plain = check(check=True).stdout
    seen = on_terminal(start, lockstep, "check", cwd=course).replace("\r\n", "\n")
    assert "\x1b[32mdone" in seen and "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", seen) == plain
    assert on_terminal(start, lockstep, "check", cwd=course, env={"NO_COLOR": "1"}).replace("\r\n", "\n") == plain
    assert max(map(len, plain.splitlines())) <= 80
    assert re.search(r"\[#*\.*\] 1 of \d+", plain)
    rows = [line for line in plain.splitlines() if " ddp." in line or " distributed_data" in line]
    assert not any(line.endswith("...") for line in plain.splitlines())
    assert len({re.search(r"(\S+) +", row[8:]).end() for row in rows}) == 1


def test_all_that_was_begun_is_checked_again(check, doing):
    assert check("--all", check=True).stdout == ""
    check("groups.1", env=doing("own loss"))
    result = check("--all", env=doing("own loss"))
    assert result.returncode == 1 and "not yet: with losses of 1 2 on 2 ranks, rank 0 has 1 for the mean" in result.stdout


def test_all_goes_on_past_a_file_that_is_not_there(check, course):
    (course / ".lockstep-workshop.json").write_text('{"start.1": {"tries": 1}, "groups.1": {"tries": 1}}')
    (course / "exercises/start.1.cpp").unlink()
    answer(course, "no")
    result = check("--all")
    assert result.returncode == 1 and "lockstep check start.1 --reset" in result.stdout
    assert "not yet: it does not compile" in result.stdout


@pytest.mark.parametrize("args", [("--hint",), ("groups.1", "--all"), ("groups.1", "--hint", "--solution"), ("groups.9",)])
def test_what_makes_no_sense_is_wrong_input(check, args):
    assert check(*args).returncode == 2


# at every save

def test_it_checks_again_at_every_save_and_ends_well_on_ctrl_c(prepared, course, start, tmp_path):
    with open(tmp_path / "said", "w") as said:
        process = start(prepared, "check", "groups.1", "--watch", cwd=course, stdout=said, stderr=said)
    text = (tmp_path / "said").read_text
    wait_for(lambda: text().count("save to check again") == 1, what="the first check")
    answer(course, "int main() { return no; }")
    wait_for(lambda: text().count("save to check again") == 2, what="the second check")
    # as many editors save: another file in its place
    (course / "exercises/new").write_text(program())
    (course / "exercises/groups.1.cpp").rename(course / "exercises/groups.1.cpp~")
    (course / "exercises/new").rename(course / "exercises/groups.1.cpp")
    wait_for(lambda: text().count("save to check again") == 3, what="the third check")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    parts = text().split("save to check again")
    assert "its own loss" in parts[0] and "does not compile" in parts[1] and "  pass" in parts[2]


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

def test_what_a_learner_writes_for_a_date_is_no_command_to_the_terminal(lockstep, course):
    (course / ".lockstep-workshop.json").write_text('{"groups.1": {"tries": 1, "last": "\\u001b[2J\\nroot 9/9"}}')
    result = run_process([lockstep, "workshop", "progress", course], check=True)
    assert "\x1b" not in result.stdout and len(result.stdout.splitlines()) == 2


def test_a_header_is_prepared_for_all_whatever_the_umask(lockstep, tmp_path):
    place, fake = tmp_path / "for/all", tmp_path / "c++"
    fake.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && echo made >"$2"; shift; done\n')
    fake.chmod(0o755)
    script = 'umask 077; exec "$0" workshop prepare'
    result = run_process(["sh", "-c", script, lockstep], check=True,
                         env={"LOCKSTEP_WORKSHOP": str(place), "CXX": f"{fake} -m64"})
    made = list(place.rglob("*.gch"))
    assert str(made[0].parent.parent) == result.stdout.strip() and oct(made[0].stat().st_mode)[-3:] == "644"
    assert {oct(path.stat().st_mode)[-3:] for path in (tmp_path / "for", place, *made[0].parents[:2])} == {"755"}


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

@pytest.fixture(scope="session")
def prepared_install(build_dir, once):
    """An install of its own, its header precompiled, and then all of it read-only."""
    def make(prefix):
        run_process(["cmake", "--install", build_dir, "--prefix", prefix], check=True)
        run_process([prefix / "bin/lockstep", "workshop", "prepare"], check=True, timeout=LONG_PATIENCE)
        run_process(["chmod", "-R", "a-w,a+rX", prefix], check=True)
    return once("read-only", make) / "bin/lockstep"


@pytest.fixture
def as_nobody(prepared_install, tmp_path, tmp_path_factory):
    """as_nobody(ARG..., env={}) of the installed program in a folder of a user without rights -> Result."""
    if os.getuid() == 0:
        for path in (prepared_install, tmp_path / "home"):
            let_others_pass(path, tmp_path_factory.getbasetemp())
    if run_process([*NOBODY, "test", "-x", prepared_install]).returncode != 0:
        pytest.skip("another user may not be taken on here, or does not reach the install")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    env = {"HOME": str(home)}
    run_process([*NOBODY, prepared_install, "workshop", "init", "course"], cwd=home, env=env, check=True)

    def act(*args, **how):
        return run_process([*NOBODY, prepared_install, *args], cwd=home / "course",
                           env={**env, **how.pop("env", {})}, **how)
    act.course = home / "course"
    return act


def size_of(folder):
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def test_from_a_read_only_install_a_user_without_rights_solves_an_exercise(as_nobody):
    answer(as_nobody.course, program())
    result = as_nobody("check", "groups.1", check=True)
    assert "building\n" in result.stdout and "  pass" in result.stdout
    assert size_of(as_nobody.course.parent) < 20 << 20


def test_preparing_says_how_long_it_takes_and_took(lockstep, tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" != -o ] || : >"$2"; shift; done\n')
    compiler.chmod(0o755)
    env = {"LOCKSTEP_WORKSHOP": str(tmp_path / "made"), "CXX": str(compiler)}
    first, again = (run_process([lockstep, "workshop", "prepare"], env=env, check=True) for _ in range(2))
    assert "minutes on a busy machine" in first.stderr and re.search(r"ready, after \d+ s", first.stderr)
    assert "there already" in again.stderr and again.stdout == first.stdout


def test_next_is_the_first_open_exercise_behind_it(check, course):
    (course / ".lockstep-workshop.json").write_text("".join(
        ["{", ", ".join(f'"{name}": {{"solved": "2026-01-01 10:00"}}' for name in ("groups.2", "groups.3", "groups.4")), "}"]))
    answer(course, program())
    assert check("groups.1", check=True).stdout.endswith("next: chapter 4, All-reduce: lockstep check allreduce.1\n")


# shows what groups.1 asks for, and includes none of libtorch's headers
LIGHT = """#include <cstdio>
#include <cstdlib>
#include <unistd.h>
int main(int count, char** words) {
  double sum = 0;
  for (int i = 1; i < count; ++i) sum += std::atof(words[i]);
  dprintf(3, "{\\"name\\":\\"mean\\",\\"numbers\\":[%.17g]}\\n", sum / (count - 1));
}
"""


def test_a_folder_that_a_program_closed_is_opened_for_the_next_check(as_nobody, doing):
    as_nobody("check", "groups.1", env=doing("closes its folder"))
    assert (as_nobody.course / "build/run").stat().st_mode & 0o777 == 0
    as_nobody("check", "groups.1", env=doing("nothing"), check=True)


# with the whole header the compiler needs half a minute of a core
@pytest.mark.parametrize("text", [pytest.param(LIGHT, id="light"), pytest.param(program(), id="whole", marks=pytest.mark.full)])
def test_without_a_precompiled_header_it_says_what_would_help_and_works(as_nobody, tmp_path, text):
    answer(as_nobody.course, text)
    result = as_nobody("check", "groups.1", check=True, env={"LOCKSTEP_WORKSHOP": str(tmp_path)})
    assert result.stdout.count("lockstep workshop prepare") == 1 and "  pass" in result.stdout


@pytest.mark.parametrize("text", [pytest.param(LIGHT, id="light"), pytest.param(program(), id="whole", marks=pytest.mark.full)])
def test_another_compiler_does_not_take_a_header_that_is_not_its_own(as_nobody, tmp_path, text):
    other, told = tmp_path / "c++", as_nobody.course / "told"
    other.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "another compiler 99" && exit\n'
                     f'echo "$@" >"{told}"; exec c++ "$@"\n')
    other.chmod(0o755)
    answer(as_nobody.course, text)
    result = as_nobody("check", "groups.1", check=True, env={"CXX": str(other)})
    assert "building, slowly" in result.stdout and "  pass" in result.stdout
    assert "-llockstep" in told.read_text() and "/workshop/" not in told.read_text().partition(" -Wall ")[0]


def test_without_a_compiler_it_says_where_to_check(as_nobody):
    result = as_nobody("check", "groups.1", env={"CXX": "no-such-compiler"})
    assert result.returncode == 2 and "check on the login node" in result.stderr


def test_who_may_not_write_to_the_install_is_told_who_prepares_it(as_nobody, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    result = as_nobody("workshop", "prepare", env={"LOCKSTEP_WORKSHOP": str(closed)})
    assert result.returncode == 2 and "who installed lockstep" in result.stderr


def test_a_folder_in_which_nothing_may_be_made_is_said(as_nobody):
    as_nobody.course.chmod(0o555)
    result = as_nobody("check", "groups.1")
    assert result.returncode in (1, 2) and "build" in result.stderr


# what a checked program finds in its environment

def test_a_sessions_timeout_is_lowered_from_outside_and_never_raised(built, mpirun):
    cases = built.with_name("course") / "build/cases"
    result = mpirun(2, cases, env={"TEST_WORK": "comes late", "LOCKSTEP_TIMEOUT": "1"})
    assert result.returncode != 0 and "timed out after 1 s" in result.stderr
    result = mpirun(2, cases, env={"TEST_WORK": "nothing", "LOCKSTEP_TIMEOUT": "soon"})
    assert "LOCKSTEP_TIMEOUT" in result.stderr
