"""The course is true: every command of a chapter is run in a learner's folder, and what it prints is what the page shows."""

import pytest

from cluster_kit import Lab, why_not
from conftest import SOURCE, clean_environment, end_session, start_process
from course_kit import Chapter, Shell, mistakes, stands_in, wrong
from docs_kit import BLOCKS, blocks_of

pytestmark = pytest.mark.about("tutorials")

SAMPLE = SOURCE / "tests/fixtures/course/sample.md"
PAGES = sorted((SOURCE / "tutorials").rglob("*.md"))
WITH_COMMANDS = [page for page in PAGES if any(block.language == "console" for block in blocks_of(page))]


def test_what_is_printed_is_compared_line_by_line():
    alike = [("a  b", "a b  \n\n", ""),                      # blanks, and empty lines at the end
             ("loss 0.…, … s", "loss 0.123, 4.5 s\n", ""),
             ("a\n...\nd", "a\nb\nc\nd", ""),
             ("a\n...\nb", "a\nb", ""),                       # any lines may be none
             ("1\n2\n3", "1\n3", "2"),                        # two streams, mixed as a terminal mixed them
             ("1\n...\n3", "1\n3", "x\ny")]
    differ = [("a\nb", "a\nc", "", "not printed, or not here: b"),
              ("a", "a\nb", "", "more is printed than is shown: b"),
              ("", "", "warning", "more is printed than is shown: warning"),
              ("a\nb", "b\na", "", "not printed, or not here: a"),
              ("a.c", "abc", "", "not printed"),               # no regular expressions
              ("...\nd", "a\nb", "", "not printed, or not here: d"),
              ("0.12", "0.123", "", "not printed")]
    assert [case for case in alike if wrong(case[0].splitlines(), *case[1:])] == []
    assert [case for case in differ if case[3] not in (wrong(case[0].splitlines(), *case[1:3]) or "")] == []


# --- what does it -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def learner(build_dir, mpi_on_path, prepared):
    """What a learner's terminal has set."""
    python = SOURCE / ".deps/python/bin"
    return {"PATH": f"{build_dir / 'bin'}:{python}:{mpi_on_path}", "LOCKSTEP_HOME": str(SOURCE), "LC_ALL": "C.UTF-8",
            "LOCKSTEP_PROGRAM": str(build_dir / "bin/lockstep"), "LOCKSTEP_THREADS_PER_CORE": "1"}


@pytest.fixture(scope="session")  # not the module's: chapters are dealt to workers one by one
def labs(tmp_path_factory):
    """labs(scheduler) -> a running one, or the reason why there is none."""
    started = {}

    def start(scheduler):
        if scheduler not in started:
            started[scheduler] = why_not(scheduler) or Lab(tmp_path_factory.mktemp(scheduler) / "lab", scheduler).start()
        return started[scheduler]
    yield start
    for lab in started.values():
        if isinstance(lab, Lab):
            lab.stop()


@pytest.fixture
def shell_in(tmp_path, learner, labs):
    """shell_in(place) -> the terminal here (""), or on a cluster; None where there is no such cluster."""
    shells = {}

    def here(words, **how):
        return start_process(words, env=learner, cwd=folder, **how)

    def start(place):
        if not place:
            return Shell(here)
        lab = labs(place)
        if not isinstance(lab, Lab):
            return None
        return Shell(lambda words, **how: lab.popen(*words, env=clean_environment(**learner), cwd=folder, **how))

    def shell(place):
        if place not in shells:
            shells[place] = start(place)
        return shells[place]
    folder = tmp_path / "learner"
    folder.mkdir()
    yield shell
    for place, each in shells.items():
        if each and place:
            each.end()
        elif each:
            end_session(each.process)


def do(page, tmp_path, shell_in):
    chapter = Chapter(list(blocks_of(page)), tmp_path / "learner", shell_in)
    return chapter, chapter.do()


# --- the course itself --------------------------------------------------------------------------------------------


EVERY_TIME = ("README.md",)  # of the others --full runs the commands


def chapter_of(page):
    full = [] if page.name in EVERY_TIME else [pytest.mark.full]
    return pytest.param(page, id=str(page.relative_to(SOURCE)), marks=full)


@pytest.mark.parametrize("page", [chapter_of(page) for page in WITH_COMMANDS])
def test_a_chapter_shows_what_is_printed(page, tmp_path, shell_in):
    chapter, faults = do(page, tmp_path, shell_in)
    assert not faults, "\n\n".join(faults)
    if chapter.left_out:
        pytest.skip("; ".join(chapter.left_out))


def test_the_comments_before_blocks_are_understood_and_what_is_shown_of_a_file_stands_in_it():
    wrong_ones = [mistake for block in BLOCKS if block.page.startswith("tutorials/") for mistake in mistakes(block)]
    wrong_ones += [f"{block}: not in {block.said['from']}" for block in [*BLOCKS, *blocks_of(SAMPLE)] if "from" in block.said
                   and not stands_in(block.text, (SOURCE / block.said["from"]).read_text())]
    assert not wrong_ones
