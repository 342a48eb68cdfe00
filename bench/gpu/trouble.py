"""A rank that dies or hangs, at two ranks: the other one ends soon after and names the rank at fault."""

import re
import signal
import subprocess
import time

import launch
import trained
from running import Wrong

TIMEOUT = 8    # launch.timeout
SOON = 12      # seconds after it, with NCCL's own delays
RUNS = ("data.batch_size=64", f"launch.timeout={TIMEOUT}", "train.epochs=1000", "checkpoint.every_epochs=0", "train.eval_every=0",
        "train.log_every=20")
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def begin(part, name, config, *sets, words=()):
    folder = part.folder / name
    folder.mkdir()
    told = (*RUNS, *sets, f"launch.device={part.here.kind}", "run.name=run")
    program = [part.here.program, "train", launch.ROOT / f"configs/{config}.yaml", *words, *(word for s in told for word in ("--set", s))]
    part.log.write(f"$ {' '.join(map(str, program))}\n".encode())
    part.log.flush()
    logs = [open(folder / f"rank{rank}.txt", "wb+") for rank in range(2)]
    return [subprocess.Popen(list(map(str, program)), env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             start_new_session=True) for env, log in zip(trained.ranks(2, part.here), logs)], logs


def said(log):
    log.seek(0)
    return log.read().decode(errors="replace")


def wait_for(part, what, condition):
    while not condition():
        if part.left() < 1:
            raise launch.TooSlow(f"{what} did not happen")
        time.sleep(0.05)


def ended_after(part, name, config, *sets, trouble="", words=()):
    """Seconds from the trouble until all ranks' ends but that of one that is stopped, their exit statuses, what they said."""
    processes, logs = begin(part, name, config, *sets, words=words)
    try:
        if trouble in SIGNALS:
            wait_for(part, "step 60", lambda: "Step [60/" in said(logs[0]) or processes[0].poll() is not None)
            processes[1].send_signal(SIGNALS[trouble])
        since = time.monotonic()
        waited = processes[:1] if trouble == "stopped" else processes
        wait_for(part, "the end", lambda: None not in [process.poll() for process in waited])
        return time.monotonic() - since, [process.returncode for process in waited], [said(log) for log in logs]
    finally:
        launch.end(processes)
        for log in logs:
            part.log.write(said(log).encode())
            log.close()


def error_in(text):
    return next((line for line in text.splitlines() if re.match(r"(\[rank \d+\] )?error: ", line)), "no error was printed")


def look(part, found, name, config, *sets, trouble, words=()):
    took, statuses, texts = ended_after(part, name, config, *sets, trouble=trouble, words=words)
    found[name] = f"{took:.1f} s, exit {statuses[0]}: {error_in(texts[0])[:200]}"
    if statuses[0] != 1 or "rank 1" not in error_in(texts[0]):
        raise Wrong(f"{name}: {found[name]}")
    most = {"killed": TIMEOUT - 1, "stopped": TIMEOUT + SOON, "skipped": TIMEOUT + SOON + 60}[trouble]  # the last from its start on
    if took > most:
        raise Wrong(f"{name}: it ended after {took:.1f} s, at most {most} s are allowed")


def picky(folder):
    """A model that one rank's batch does not suit, sooner or later."""
    import torch

    class Picky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls, self.most = torch.nn.Linear(784, 10), 0, -1e9

        def forward(self, x):
            mean = float(x.mean())
            self.calls += 1
            if self.calls > 30 and mean > self.most:
                raise RuntimeError("this batch is too bright")
            self.most = max(self.most, mean)
            return self.layer(x.flatten(1))
    torch.jit.script(Picky()).save(str(folder / "picky.pt"))
    return f"model.path={folder}/picky.pt"


def own_error(part, found):
    """It is said at once by the rank that has it, and the other does not wait."""
    name = "a rank's own error"
    took, statuses, texts = ended_after(part, name, "mnist", "model.name=torchscript", picky(part.folder))
    own = [text for text in texts if "this batch is too bright" in text]
    found[name] = f"{took:.1f} s, exit {statuses}: {' | '.join(error_in(text)[:120] for text in texts)}"
    if not own or statuses != [1, 1] or took > 60 + SOON:
        raise Wrong(f"{name}: {found[name]}")


def ends(part, found):
    look(part, found, "a rank is killed", "mnist", trouble="killed")
    look(part, found, "a rank is stopped", "mnist", trouble="stopped")
    look(part, found, "a rank skips a collective", "mnist", trouble="skipped", words=("--provoke", "skipped-collective"))
    if part.here.device == "cuda":
        look(part, found, "train.graph, a rank is killed", "mnist_gpu", trouble="killed")
        look(part, found, "train.graph, a rank is stopped", "mnist_gpu", trouble="stopped")
    own_error(part, found)
