"""A chapter's commands, run as a learner would, and what they print held to what the page shows. CONTRIBUTING.md, "How a
chapter is written", is the form."""

import dataclasses
import os
import re
import selectors
import shlex
import subprocess
import time
import uuid

from process_kit import LONG_PATIENCE, PATIENCE

ANY_LINES, ANY_TEXT = "...", "…"


# --- what a page shows --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Command:
    """A command of a console block, and the lines that stand below it."""
    line: int
    text: str
    shown: list = dataclasses.field(default_factory=list)


def commands_of(block):
    """The commands of a console block, in its order."""
    found, goes_on = [], False
    for number, line in enumerate(block.text.splitlines(), block.line):
        if goes_on:
            found[-1].text += "\n" + line
        elif line.startswith("$ "):
            found.append(Command(number, line[2:]))
        else:
            assert found, f"{block.page}:{number}: a console block begins with `$ ` and a command"
            found[-1].shown.append(line)
            continue
        goes_on = line.endswith("\\")
    assert found, f"{block}: a console block without a command"
    return found


def may_fail(commands, place):
    """Is what a command leaves with shown by the next one?"""
    return commands[place + 1:place + 2] != [] and commands[place + 1].text == "echo $?"


# --- what is printed against what is shown ------------------------------------------------------------------------


def blanks_as_one(line):
    return " ".join(line.split())


def pattern(line):
    return re.compile(".*".join(map(re.escape, blanks_as_one(line).split(ANY_TEXT))))


def trimmed(text):
    """Lines, without the empty ones at the end."""
    lines = [blanks_as_one(line) for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def in_order(shown, out, err):
    """What is wrong, or None. The lines of two streams may be shown as a terminal mixed them: each in its own order."""
    places = {(0, 0)}  # how much of each stream the lines so far may stand for
    for line in shown:
        if line == ANY_LINES:
            first = {i: min(b for a, b in places if a == i) for i in {a for a, _ in places}}
            places = {(i, j) for i in range(min(first), len(out) + 1)
                      for j in range(min(b for a, b in first.items() if a <= i), len(err) + 1)}
            continue
        fits = pattern(line).fullmatch
        places = {(i + 1, j) for i, j in places if i < len(out) and fits(out[i])} | \
                 {(i, j + 1) for i, j in places if j < len(err) and fits(err[j])}
        if not places:
            return f"this line is not printed, or not here: {line}"
    if (len(out), len(err)) in places:
        return None
    i, j = max(places, key=sum)
    return f"more is printed than is shown: {(out[i:] + err[j:])[0]}"


def in_any_order(shown, printed):
    """What is wrong, or None: each line shown for a line printed of its own."""
    left, lines = list(printed), [line for line in shown if line != ANY_LINES]
    for line in sorted(lines, key=lambda line: (ANY_TEXT in line, -len(line))):  # what fits few lines first
        fit = next((text for text in left if pattern(line).fullmatch(text)), None)
        if fit is None:
            return f"this line is not printed, or not so often: {line}"
        left.remove(fit)
    return f"more is printed than is shown: {left[0]}" if left and len(lines) == len(shown) else None


def wrong(shown, out, err="", any_order=False):
    """What differs between the lines of a page and what was printed, or None."""
    shown = trimmed("\n".join(shown))
    out, err = trimmed(out), trimmed(err)
    return in_any_order(shown, out + err) if any_order else in_order(shown, out, err)


# --- a learner's terminal -----------------------------------------------------------------------------------------


class Shell:
    """One bash that is handed command after command, as a terminal is: folder, variables and jobs last. popen() starts it."""

    def __init__(self, popen):
        self.mark = uuid.uuid4().hex
        self.process = popen(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.streams = {self.process.stdout: b"", self.process.stderr: b""}

    def run(self, command, within):
        """(status, stdout, stderr); TimeoutError past `within` seconds."""
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\nsaid=$?\nprintf '\\n%s %s\\n' {self.mark} $said\n"
                                 f"printf '\\n%s\\n' {self.mark} >&2\n(exit $said)\n".encode())
        self.process.stdin.flush()
        self.read_to_the_mark(time.monotonic() + within)
        out, err = (text.decode(errors="replace").partition("\n" + self.mark) for text in self.streams.values())
        status, _, rest = out[2].partition("\n")
        self.streams = dict(zip(self.streams, (rest.encode(), err[2].removeprefix("\n").encode())))
        return int(status), out[0], err[0]

    def read_to_the_mark(self, end):
        with selectors.DefaultSelector() as waiting:
            for stream in self.streams:
                waiting.register(stream, selectors.EVENT_READ)
            while not all(re.search(rf"\n{self.mark}.*\n".encode(), text) for text in self.streams.values()):
                ready = waiting.select(max(0, end - time.monotonic()))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    piece = os.read(key.fileobj.fileno(), 65536)
                    if not piece:
                        raise EOFError("the shell has left")
                    self.streams[key.fileobj] += piece

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pass


# --- a chapter ----------------------------------------------------------------------------------------------------


class Chapter:
    """Does what a page says, block after block; `shell_in(place)` -> a Shell, or None where there is no such place."""

    def __init__(self, blocks, folder, shell_in):
        self.blocks, self.folder, self.shell_in = blocks, folder, shell_in
        self.faults, self.left_out = [], []
        self.stands = None  # in which folder: one terminal to the learner, a shell for each place to us

    def do(self):
        """Everything that is wrong, a text each."""
        for block in self.blocks:
            if "file" in block.said:
                self.save(block)
            elif block.language == "console" and "not run" not in block.said:
                if not self.run(block):
                    break
        return self.faults

    def save(self, block):
        path = self.folder / block.said["file"]
        assert path.resolve().is_relative_to(self.folder.resolve()), f"{block}: {path} is not in the learner's folder"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)

    def run(self, block):
        """Can it go on after this?"""
        shell = self.shell_in(block.said.get("needs", ""))
        if shell is None:
            self.left_out.append(f"{block} needs {block.said['needs']}")
            return True
        if self.stands:
            shell.run(f"cd {shlex.quote(self.stands)}", LONG_PATIENCE)
        commands = commands_of(block)
        for place, command in enumerate(commands):
            where = f"{block.page}:{command.line}: $ {command.text}"
            try:
                status, out, err = shell.run(command.text, LONG_PATIENCE)
            except (TimeoutError, EOFError) as trouble:
                self.faults.append(f"{where}\n  {str(trouble) or f'still running after {LONG_PATIENCE} s'}")
                return False
            fault = wrong(command.shown, out, err, "any order" in block.said)
            if not fault and status != 0 and not may_fail(commands, place):
                fault = f"it ends with {status}, and no `$ echo $?` below says that it should"
            if fault:
                self.faults.append(f"{where}\n  {fault}\n--- stdout\n{out.rstrip()}\n--- stderr\n{err.rstrip()}")
        self.stands = shell.run("pwd", LONG_PATIENCE)[1].strip()
        return True


def mistakes(block):
    """What is wrong with what is said before a block."""
    words = {"not checked", "not run", "needs", "any order", "file", "from"}
    for word, value in block.said.items():
        if word not in words:
            yield f"{block}: nobody knows <!-- {word} -->; there are {', '.join(sorted(words))}"
        elif not value and word != "any order":
            yield f"{block}: <!-- {word}: --> needs a word after the colon"
    if block.said.get("needs", "slurm") not in ("slurm", "pbs"):
        yield f"{block}: nobody has {block.said['needs']}; there are slurm and pbs"
    if block.language == "" and re.search(r"^\$ ", block.text, re.M):
        yield f"{block}: commands stand in a `console` block"


def stands_in(text, whole):
    """Do the lines of a text stand in another, one after the other? Both may be indented as a whole."""
    lines, there = text.rstrip().splitlines(), whole.splitlines()

    def flush(part):
        margin = min((len(line) - len(line.lstrip()) for line in part if line.strip()), default=0)
        return [line[margin:].rstrip() for line in part]
    return any(flush(there[at:at + len(lines)]) == flush(lines) for at in range(len(there) - len(lines) + 1))
