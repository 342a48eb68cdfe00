"""What goes wrong with a bundle, said in two lines."""

import subprocess


class Wrong(Exception):
    def __init__(self, what, remedy=""):
        super().__init__(what)
        self.remedy = remedy


def output(*command, **how):
    """What a command prints; Wrong with its last words where it fails."""
    try:
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    except FileNotFoundError:
        raise Wrong(f"{command[0]} is not here", "scripts/bootstrap lists what is missing")
    with process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()  # a compiler ends its own programs, and takes its files with it
            raise
    if process.returncode != 0:
        words = (err or out).strip().splitlines()
        raise Wrong(f"{command[0]} failed: " + "\n  ".join(words[-12:]))
    return out
