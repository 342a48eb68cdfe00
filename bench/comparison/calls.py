"""What strace saw a rank do, counted: files opened, connections, bytes of log."""

import re

CALL = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(\(.*| resumed>.*)$")
RESULT = re.compile(r"\) += (-?\d+)(?: (E\w+))?")
PATH = re.compile(r'"((?:[^"\\]|\\.)*)"')
SYSTEM = ("/proc/", "/sys/", "/dev/")  # no file system of the site's is asked for these
TRACED = "trace=%file,connect,accept,accept4,write,writev"
COLUMNS = ("file calls", "opened", "libraries", "shm", "connected", "accepted", "log bytes")


def completed(lines):
    """(name, arguments, result, error) of each finished call; strace splits one where threads take turns."""
    begun = {}
    for line in lines:
        match = CALL.match(line)
        if not match:
            continue
        pid, name, rest = match.groups()
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>")
            continue
        if rest.startswith(" resumed>"):
            rest = begun.pop(pid, "") + rest.removeprefix(" resumed>")
        results = RESULT.findall(rest)
        if results:
            value, error = results[-1]
            yield name, rest, int(value), error


def named_file(arguments):
    """The path a call names, or '': an open descriptor, and a name under one, are no search of a file system."""
    path = PATH.search(arguments)
    named = path and (path[1].startswith("/") or (path[1] and not re.match(r"\(\d", arguments)))
    return path[1] if named else ""


def count_file(counts, name, arguments, result):
    path = named_file(arguments)
    opened = name in ("open", "openat") and result >= 0 and "O_DIRECTORY" not in arguments
    counts["shm"] += opened and path.startswith("/dev/shm/")
    if path and not path.startswith(SYSTEM):
        counts["file calls"] += 1
        counts["opened"] += opened
        counts["libraries"] += opened and ".so" in path


def count(lines):
    counts = dict.fromkeys(COLUMNS, 0)
    for name, arguments, result, error in completed(lines):
        if name == "connect":
            counts["connected"] += "AF_INET" in arguments and (result == 0 or error == "EINPROGRESS")
        elif name in ("accept", "accept4"):
            counts["accepted"] += result >= 0
        elif name in ("write", "writev"):
            counts["log bytes"] += max(result, 0) if arguments.startswith(("(1,", "(2,")) else 0
        else:
            count_file(counts, name, arguments, result)
    return counts
