"""forked.py WORLD FOLDER PROGRAM ARGUMENT...: main() of a program of Python's on so many ranks, as torchrun starts them, but for
imports: they have one in common. What a rank prints is in FOLDER/log.RANK. Ends with the first rank that fails."""

import importlib.util
import os
import pathlib
import sys
import traceback

import torch._dynamo  # noqa: F401  optimizers want it


def run(main, rank, log):
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        main()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


world, folder, program = int(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
sys.argv = sys.argv[3:]
sys.path.insert(0, str(program.parent))
spec = importlib.util.spec_from_file_location(program.stem, program)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for rank in range(world):
    with open(folder / f"log.{rank}", "w") as log:
        if os.fork() == 0:
            run(module.main, rank, log)
sys.exit(any(os.wait()[1] for _ in range(world)))
