"""Programs of one part of the kit: side by side, into one log, within what is left of the part's time."""

import os
import subprocess
import sys
import time

import launch


class Wrong(Exception):
    """A part's programs ran, and what they gave is not right."""


class Part:
    """One that is running: its folder, its log, and how long it still may."""

    def __init__(self, here, folder, log, limit):
        self.here, self.folder, self.log, self.end = here, folder, log, time.monotonic() + limit

    def left(self):
        return self.end - time.monotonic()

    def run(self, words, name="", ranks=None, **env):
        """A program, or as many as `ranks` gives environments; what they printed. launch.Failed, launch.TooSlow."""
        environments = ranks or [launch.environment()]
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.log.write(f"$ {' '.join(map(str, words))}\n".encode())
        self.log.flush()
        begin, processes = self.log.tell(), []
        try:
            for own in environments:
                processes.append(subprocess.Popen([str(word) for word in words], env=own | env, cwd=folder, stdin=subprocess.DEVNULL,
                                                  stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True))
            launch.wait(processes, self.left(), lambda _: None)
        finally:
            launch.end(processes)
            said = self.said(begin)
        wrong = [process.returncode for process in processes if process.returncode]
        if wrong:
            raise launch.Failed(f"exit {wrong[0]}: {' '.join(map(str, words[:3]))} ...\n{said.strip()[-1500:]}")
        return said

    def said(self, begin):
        self.log.seek(0, os.SEEK_END)
        with open(self.log.name, "rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")

    def python(self, script, *words, **how):
        return self.run([sys.executable, "-B", script, *words], **how)
