"""Reads a header of this house: the names that it declares for its users, with their `///` comments.

Not a C++ parser: it knows the forms that clang-format leaves in our headers. An inner namespace or a macro without a `///`
line is machinery and left out.
"""

import dataclasses
import re


@dataclasses.dataclass
class Name:
    """One declaration: what it is called, how it is written, what its comment promises."""
    name: str
    text: str
    kind: str  # class, enum, function, value, alias, macro
    comment: str = ""
    line: int = 0
    members: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Scope:
    kind: str    # namespace, class, enum, hidden
    open: bool   # are its declarations for users?
    names: list  # where they go
    functions_alone: bool = False


def promise(text):
    """The comment that opens a header, joined to one line; an example in it ends it."""
    lines = []
    for line in text.splitlines()[1 if text.startswith("#pragma once") else 0:]:
        if not line.startswith("//") or line == "//" or line.startswith("//   "):
            break
        lines.append(line[2:].strip())
    return " ".join(lines)


def first_sentence(text):
    return re.split(r"\.(?=\s|$)", text, maxsplit=1)[0]


def balanced(text, at, pair):
    """Where the bracket that opens at `at` is closed, plus one; strings and comments are stepped over."""
    depth = 0
    while at < len(text):
        at_next = skip_literal(text, at)
        if at_next != at:
            at = at_next
            continue
        depth += (text[at] == pair[0]) - (text[at] == pair[1])
        at += 1
        if depth == 0:
            return at
    raise ValueError(f"'{pair[0]}' is never closed")


def skip_literal(text, at):
    """Past a string, a character or a comment that begins at `at`; else `at` itself."""
    if text.startswith("//", at):
        return text.index("\n", at)
    if text.startswith("/*", at):
        return text.index("*/", at) + 2
    # 60'000 holds no character
    if text[at] == '"' or (text[at] == "'" and not text[at - 1].isalnum()):
        end = at + 1
        while text[end] != text[at]:
            end += 2 if text[end] == "\\" else 1
        return end + 1
    return at


def without_template(head):
    """The declaration without its `template <...>` and leading `requires`."""
    head = head.strip()
    while head.startswith("template"):
        head = head[balanced(head, head.index("<"), "<>"):].strip()
    if head.startswith("requires"):
        # up to the words that name the result: ours begin with auto or M
        head = re.sub(r"^requires.*?\)\s*(?=(auto|M)\b)", "", head, flags=re.S)
    return head


def top_level(head, character):
    """Where `character` stands outside all brackets, or -1."""
    at = 0
    while at < len(head):
        after = skip_literal(head, at)
        if after != at:
            at = after
        elif head[at] == character:
            return at
        elif head[at] in "([{":
            at = balanced(head, at, {"(": "()", "[": "[]", "{": "{}"}[head[at]])
        else:
            at += 1
    return -1


def initialisers(head):
    """Where a constructor's ` : member(...)` begins, or -1."""
    for match in re.finditer(r"\)\s*(noexcept\s*)?:(?!:)", head):
        if top_level(head[:match.end()], ":") == match.end() - 1:
            return match.end() - 1
    return -1


def classify(head):
    """(kind, name) of a declaration without its body."""
    bare = re.sub(r"\[\[.*?\]\]\s*", "", without_template(head))
    scoped = re.match(r"(class|struct|enum)\s+(?:class\s+)?([\w:]+)", bare)
    if scoped and "(" not in bare.split("{")[0]:
        return ("enum" if scoped[1] == "enum" else "class"), scoped[2]
    alias = re.match(r"using\s+(\w+)\s*=", bare)
    if alias:
        return "alias", alias[1]
    operator = re.search(r"\boperator\s*(.+?)\(", bare, re.S)
    if operator:
        return "function", "operator" + operator[1].strip()
    while (arguments := re.sub(r"<[^<>]*>", "", bare)) != bare:  # std::function<int(int)> is no function
        bare = arguments
    call = top_level(bare, "(")
    equals = top_level(bare, "=")
    if call >= 0 and (equals < 0 or call < equals):
        return "function", re.search(r"([~\w]+)\s*$", bare[:call])[1]
    value = re.search(r"(\w+)\s*$", re.split(r"[={]", bare)[0])
    if not value:
        raise ValueError(f"what does this declare? {head!r}")
    return "value", value[1]


class Reader:
    def __init__(self, text):
        self.text = text + "\n"
        self.at = 0
        self.comment = []
        self.last = None  # the declaration before, for overloads and comments at a line's end
        self.gap = True   # has there been a blank line since?
        self.names = []
        self.scopes = [Scope("namespace", True, self.names)]

    def line_number(self):
        return self.text.count("\n", 0, self.at) + 1

    def read(self):
        while self.at < len(self.text):
            blank = re.compile(r"\s*").match(self.text, self.at)
            if blank[0].count("\n") > 1:
                self.comment, self.gap = [], True
            self.at = blank.end()
            if self.at < len(self.text):
                self.step(self.text[self.at:self.text.find("\n", self.at)])
        return self.names

    def step(self, line):
        if line.startswith("///") and not line.startswith("///<"):
            self.comment.append(line[3:].strip())
            self.at += len(line)
        elif line.startswith("//"):
            self.end_comment(line)
            self.at += len(line)
        elif line.startswith("#"):
            self.directive()
        elif line.startswith("}"):
            self.scopes.pop()
            self.at = re.compile(r"}\s*;?").match(self.text, self.at).end()
            self.comment, self.last = [], None
        elif access := re.match(r"(public|private|protected):", line):
            # what is protected is there for users who derive, but for data
            self.scopes[-1].open = access[1] != "private" and self.scopes[-2].open
            self.scopes[-1].functions_alone = access[1] == "protected"
            self.at += access.end()
            self.comment, self.last = [], None
        else:
            self.declaration()

    def end_comment(self, line):
        """A comment behind a declaration on its line, or one that such a comment goes on in."""
        begin = self.text.rfind("\n", 0, self.at) + 1
        behind = self.text[begin:self.at].strip() != ""
        column = self.at - begin
        if self.last and (behind or self.last.column == column):
            self.last.comment = (self.last.comment + " " + line[2:].strip("/< ")).strip()
            self.last.column = column

    def directive(self):
        end = self.text.find("\n", self.at)
        while self.text[end - 1] == "\\":
            end = self.text.find("\n", end + 1)
        macro = re.match(r"#define\s+(\w+\([^)]*\))", self.text[self.at:end])
        if macro and self.comment:
            self.add(Name(macro[1].split("(")[0], macro[1], "macro"))
        self.comment = []
        self.at = end

    def declaration(self):
        begin, at, text = self.at, self.at, self.text
        while True:
            after = skip_literal(text, at)
            if after != at:
                at = after
            elif text[at] in "([":
                at = balanced(text, at, "()" if text[at] == "(" else "[]")
            elif text[at] == ";":
                return self.finish(text[begin:at], at + 1)
            elif text[at] == "{":
                head = text[begin:at]
                if self.opens_scope(head, at):
                    return None
                end = balanced(text, at, "{}")
                started = initialisers(head)
                if classify(head)[0] == "function" and (started < 0 or head[-1] in " )\n"):
                    return self.finish(head, end)  # the body goes
                at = end
            else:
                at += 1

    def opens_scope(self, head, brace):
        head = head.strip()
        documented = bool(self.comment)
        if head.startswith("namespace"):
            title = head.removeprefix("namespace").strip()
            outer = title == "lockstep" or title == "c10d" or title.startswith("torch")
            opened = self.scopes[-1].open and title.startswith("lockstep") and "::" not in title
            if not outer and documented and self.scopes[-1].open:
                name = Name(title, f"namespace {title}", "namespace")
                self.add(name)
                self.scopes.append(Scope("namespace", True, name.members))
            else:
                self.scopes.append(Scope("namespace", opened, self.names))
        elif classify(head)[0] == "class" and top_level(head, "=") < 0:
            name = Name(classify(head)[1], head, "class")
            shown = self.scopes[-1].open and "::" not in classify(head)[1]  # std::tuple_size<...> is not ours
            if shown:
                self.add(name)
            self.scopes.append(Scope("class", shown and bool(re.search(r"\bstruct\b", without_template(head))), name.members))
        else:
            return False
        self.comment, self.last = [], None
        self.at = brace + 1
        return True

    def finish(self, head, end):
        cut = initialisers(head)
        head = head[:cut] if cut >= 0 else head
        bare = without_template(head)
        skipped = (head.startswith("template <>") or bare.startswith(("friend ", "static_assert", "typedef ")) or
                   re.match(r"(class|struct)\s+\w+$", bare.strip()) or "= delete" in head)
        if self.scopes[-1].open and not skipped:
            kind, name = classify(head)
            self.add(Name(name, head, kind))
        else:
            self.comment, self.last = [], None
        self.at = end

    def add(self, name):
        name.text = re.sub(r"\s*//[^\n]*", "", name.text)
        name.text = re.sub(r"\s+", " ", name.text).strip()
        name.line = self.line_number()
        name.column = -1
        names = self.scopes[-1].names
        name.comment = " ".join(self.comment)
        if not name.comment and names and names[-1] is self.last and not self.gap:
            overload = names[-1].name == name.name and name.kind == "function"
            if overload or self.scopes[-1].kind == "namespace":
                name.comment = names[-1].comment
        hidden = self.scopes[-1].functions_alone and name.kind not in ("function", "class")
        if name.kind == "macro":
            self.names.append(name)
        elif self.scopes[-1].open and not hidden:
            names.append(name)
        self.comment, self.last, self.gap = [], name, False


def quiet(owner, name):
    """Declarations that say all there is to say: what C++ itself asks for, and what the base promises."""
    special = name.name in (owner.name, "~" + owner.name) or name.name.startswith("operator")
    return special or re.search(r"\boverride\b|= default$|^using ", name.text) is not None


def read(text):
    """The header's names for users, in its order."""
    return Reader(text).read()
