"""What goes wrong with a bundle, said in two lines."""

import subprocess


class Wrong(Exception):
    def __init__(self, what, remedy=""):
        super().__init__(what)
        self.remedy = remedy


def output(*command, **how):
    """What a command prints; Wrong with its last words where it fails."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **how)
    except FileNotFoundError:
        raise Wrong(f"{command[0]} is not here", "scripts/bootstrap lists what is missing")
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise Wrong(f"{command[0]} failed: " + "\n  ".join(words[-12:]))
    return done.stdout
