"""The course is true: every command of a chapter is run in a learner's folder, and what it prints is what the page shows."""

import re

import pytest

from cluster_kit import Lab, why_not
from conftest import SOURCE, clean_environment, end_session, start_process
from course_kit import Chapter, Shell, commands_of, mistakes, out_of_form, stands_in, wrong
from docs_kit import BLOCKS, Block, blocks_of, prose

pytestmark = pytest.mark.about("tutorials")

SAMPLE = SOURCE / "tests/fixtures/course/sample.md"
PAGES = sorted((SOURCE / "tutorials").rglob("*.md"))
WITH_COMMANDS = [page for page in PAGES if any(block.language == "console" for block in blocks_of(page))]


def console(text, **said):
    return Block("page.md", 1, "console", text, {word.replace("_", " "): value for word, value in said.items()})


# --- the comparer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown, out, err", [
    ("a\nb", "a\nb\n", ""),
    ("a  b", "a b  \n\n", ""),                      # blanks, and empty lines at the end
    ("", "", ""),
    ("loss 0.…, … s", "loss 0.123, 4.5 s\n", ""),
    ("…", "anything", ""),
    ("a\n...\nd", "a\nb\nc\nd", ""),
    ("a\n...\nb", "a\nb", ""),                       # any lines may be none
    ("...\nb\n...", "b\nb\nc", ""),
    ("1\n2\n3", "1\n3", "2"),                        # two streams, mixed as a terminal mixed them
    ("2\n1\n3", "1\n3", "2"),
    ("1\n...\n3", "1\n3", "x\ny"),
    ("a.c", "a.c", ""),
])
def test_what_is_alike_passes(shown, out, err):
    assert wrong(shown.splitlines(), out, err) is None


@pytest.mark.parametrize("shown, out, err, says", [
    ("a\nb", "a\nc", "", "not printed, or not here: b"),           # a wrong line
    ("a\nb", "a", "", "not printed, or not here: b"),              # one that is missing
    ("a", "a\nb", "", "more is printed than is shown: b"),         # one too many
    ("", "a", "", "more is printed than is shown: a"),
    ("", "", "warning", "more is printed than is shown: warning"),
    ("a\nb", "b\na", "", "not printed, or not here: a"),           # another order
    ("a…c", "abd", "", "not printed"),
    ("a.c", "abc", "", "not printed"),                              # no regular expressions
    ("...\nd", "a\nb", "", "not printed, or not here: d"),
    ("a\n...", "b\na", "", "not printed"),
    ("a\n\nb", "a\nb", "", "not printed"),
    ("0.12", "0.123", "", "not printed"),
])
def test_what_differs_is_said(shown, out, err, says):
    assert says in wrong(shown.splitlines(), out, err)


@pytest.mark.parametrize("shown, out, says", [
    ("a\nb\nc", "c\na\nb", None),
    ("a…\nab", "ab\nac", None),        # the first line that fits is another's
    ("a\n...", "b\na", None),
    ("a\na", "a\nb", "not so often: a"),
    ("a\nb", "a", "not so often: b"),
    ("a", "a\nb", "more is printed than is shown: b"),
])
def test_ranks_may_print_in_any_order(shown, out, says):
    found = wrong(shown.splitlines(), out, any_order=True)
    assert found is None if says is None else says in found


# --- the form -----------------------------------------------------------------------------------------------------


def test_a_block_is_read_as_commands_and_what_they_print():
    first, second = commands_of(console("$ one \\\n  more\nsaid\n\n$ two\n"))
    assert (first.line, first.text, first.shown) == (1, "one \\\n  more", ["said", ""])
    assert (second.line, second.text, second.shown) == (5, "two", [])


def test_blocks_are_found_wherever_they_stand(tmp_path):
    page = page_of(tmp_path, "1. In a list:\n\n   <!-- any order -->\n   <!-- not run: -->\n   ```console\n   $ one\n     two\n   ```\n\n"
                             "> In a quote:\n>\n> ```yaml\n> a:\n>   b: 1\n> ```\n\n"
                             "````markdown\n```console\n$ shown\n```\n````\n\n```c++ title\nint a;\n```\n")
    listed, quoted, longer, titled = blocks_of(page)
    assert (listed.text, listed.line, listed.said) == ("$ one\n  two\n", 6, {"any order": "", "not run": ""})
    assert (quoted.language, quoted.text) == ("yaml", "a:\n  b: 1\n")
    assert (longer.language, longer.text) == ("markdown", "```console\n$ shown\n```\n")
    assert (titled.language, titled.text) == ("c++", "int a;\n")
    assert [mistake.partition(": ")[2] for mistake in mistakes(listed)] == ["<!-- not run: --> needs a word after the colon"]


@pytest.mark.parametrize("text", ["", "said\n", "said\n$ one\n", "> $ one\n"])
def test_a_block_begins_with_a_command(text):
    with pytest.raises(AssertionError, match="command"):
        commands_of(console(text))


@pytest.mark.parametrize("said, says", [
    ({"not_run": ""}, "needs a word"), ({"needs": "lsf"}, "nobody has lsf"), ({"need": "slurm"}, "nobody knows"),
    ({"file": ""}, "needs a word")])
def test_a_comment_that_nobody_understands_is_a_mistake(said, says):
    assert any(says in mistake for mistake in mistakes(console("$ one\n", **said)))


@pytest.mark.parametrize("page, says", [
    ("# 1. One\n\n> **Overview.** 5 minutes\n\n> **Exercise `a.1`.** x\n\n> **Key points**\n>\n> - x\n", None),
    ("# One\n\n> **Overview.**\n\n> **Key points**\n", "begin with"),
    ("# 1. One\n\n> **Explanation.**\n\n> **Key points**\n", "Overview"),
    ("# 1. One\n\n> **Overview.**\n", "Key points"),
    ("# 1. One\n\n> **Overview.**\n\n> **Note.** x\n\n> **Key points**\n", "nobody knows the box: Note"),
    ("# 1. One\n\n> **Overview.**\n\n> words\n\n> **Key points**\n", "nobody knows the box: > words")])
def test_a_chapters_form_is_checked(page, says):
    found = list(out_of_form(page))
    assert not found if says is None else any(says in fault for fault in found)


def test_a_piece_of_a_file_is_found_word_for_word():
    whole = "a:\n  b: 1\n\n  c: 2\n"
    assert stands_in("b: 1\n\nc: 2\n", whole) and stands_in(whole, whole)
    assert not stands_in("b: 1\nc: 2\n", whole) and not stands_in("b: 2\n", whole) and not stands_in("a:\nb: 1\n", whole)


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


def do(page, tmp_path, shell_in, **how):
    chapter = Chapter(list(blocks_of(page)), tmp_path / "learner", shell_in, **how)
    return chapter, chapter.do()


def page_of(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_the_sample_passes(tmp_path, shell_in):
    chapter, faults = do(SAMPLE, tmp_path, shell_in)
    assert not faults, "\n\n".join(faults)
    assert not [mistake for block in blocks_of(SAMPLE) for mistake in mistakes(block)]
    if chapter.left_out:
        pytest.skip("; ".join(chapter.left_out))


def test_all_that_is_wrong_on_a_page_is_said(tmp_path, shell_in):
    page = page_of(tmp_path, "```console\n$ echo a\nb\n$ false\n$ echo c\nc\n$ exit 3\n```\n")
    _, faults = do(page, tmp_path, shell_in)
    said = [fault.splitlines()[:2] for fault in faults]
    assert said == [["page.md:2: $ echo a", "  this line is not printed, or not here: b"],
                    ["page.md:4: $ false", "  it ends with 1, and no `$ echo $?` below says that it should"],
                    ["page.md:7: $ exit 3", "  the shell has left"]]


def test_a_command_that_does_not_end_is_ended(tmp_path, shell_in):
    page = page_of(tmp_path, "```console\n$ sleep 1000\n$ echo more\n```\n")
    _, faults = do(page, tmp_path, shell_in, within=0.3)
    assert [fault.splitlines()[1] for fault in faults] == ["  still running after 0.3 s"]


def test_a_file_stays_in_the_learners_folder(tmp_path, shell_in):
    page = page_of(tmp_path, "<!-- file: ../../over.there -->\n```text\nhere\n```\n")
    with pytest.raises(AssertionError, match="not in the learner's folder"):
        do(page, tmp_path, shell_in)


def test_a_file_without_a_language_or_with_one_is_saved(tmp_path, shell_in):
    page = page_of(tmp_path, "<!-- file: in/a.txt -->\n```\nhere\n```\n\n```console\n$ cat in/a.txt\nhere\n```\n")
    assert do(page, tmp_path, shell_in)[1] == []


# --- the course itself --------------------------------------------------------------------------------------------


EVERY_TIME = ("01-first-job.md", "06-ddp.md", "08-checkpoints.md")  # of the others --full runs the commands


def chapter_of(page):
    full = [] if page.name in EVERY_TIME else [pytest.mark.full]
    return pytest.param(page, id=str(page.relative_to(SOURCE)), marks=full)


@pytest.mark.parametrize("page", [chapter_of(page) for page in WITH_COMMANDS])
def test_a_chapter_shows_what_is_printed(page, tmp_path, shell_in):
    chapter, faults = do(page, tmp_path, shell_in)
    assert not faults, "\n\n".join(faults)
    if chapter.left_out:
        pytest.skip("; ".join(chapter.left_out))


def test_every_chapter_has_the_form_of_chapters():
    chapters = [page for page in PAGES if re.match(r"\d\d-", page.name)]
    assert not [f"{page.name}: {fault}" for page in chapters for fault in out_of_form(prose(page))]


def test_what_is_said_before_a_block_is_understood():
    assert not [mistake for block in BLOCKS if block.page.startswith("tutorials/") for mistake in mistakes(block)]


def test_what_is_not_run_says_why(capsys):
    left = [f"{block}: not run: {block.said['not run']}" for block in BLOCKS if "not run" in block.said]
    with capsys.disabled():
        print("".join(f"\n  {line}" for line in left), end="")
    assert all(line.rpartition(": ")[2] for line in left)


def test_what_is_shown_of_a_file_stands_in_it():
    lost = [f"{block}: not in {block.said['from']}" for block in [*BLOCKS, *blocks_of(SAMPLE)] if "from" in block.said
            and not stands_in(block.text, (SOURCE / block.said["from"]).read_text())]
    assert not lost
