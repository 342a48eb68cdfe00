"""torch.distributed.init_process_group("lockstep"): gloo's results, summed in the memory that a node's ranks share.

Programs need not import this module. torch finds it by its entry point and calls register().
"""
import pathlib
import sys

TORCH = "@Libtorch_MINOR@"  # the version that the library was compiled against
_FOLDER = pathlib.Path(__file__).resolve().parent
_LIBRARIES = [folder / "liblockstep_python.so" for folder in (_FOLDER / "lib", _FOLDER.parents[1])]  # wheel, install


def register():
    """Makes the backend known to torch. Newer torchs call this when a program asks for the backend, older ones at import."""
    from torch import distributed
    if distributed.is_available() and "LOCKSTEP" not in distributed.Backend._plugins:
        distributed.Backend.register_backend("lockstep", _create, extended_api=True, devices=["cpu"])


def _create(options, _):
    """A group's backend for CPU tensors. Collective over the group."""
    import torch
    _load(torch)
    # a rank alone need not ask the others, which may have given the name of its group to another one
    store = options.store if options.group_size > 1 else torch.distributed.HashStore()
    carrier = torch.distributed.ProcessGroup(store, options.group_rank, options.group_size)  # the store for C++
    timeout = int(options.timeout.total_seconds() * 1000)
    torch.ops.lockstep_ddp.add_shared(carrier.boxed(), list(options.global_ranks_in_group), timeout)
    return carrier._get_backend(torch.device("cpu"))


def _load(torch):
    if hasattr(torch.ops.lockstep_ddp, "add_shared"):
        return
    if torch.__version__.split(".")[:2] != TORCH.split("."):
        raise RuntimeError(f"this lockstep was compiled against torch {TORCH}, but torch {torch.__version__} is installed\n"
                           f"  --> {pathlib.Path(torch.__file__).parent}\n"
                           f"  hint: run pip install 'torch=={TORCH}.*', or install the lockstep wheel for that torch")
    library = next((file for file in _LIBRARIES if file.exists()), None)
    if not library:
        raise RuntimeError(f"the installation of lockstep is incomplete: there is no {_LIBRARIES[0].name}\n  --> {_FOLDER}\n"
                           "  hint: install the wheel again: pip install --force-reinstall --no-deps lockstep_ddp-....whl\n"
                           "  or, in a build, run cmake --build BUILD --target lockstep_python")
    torch.ops.load_library(library)
    sys.excepthook = _announcing(sys.excepthook, torch.ops.lockstep_ddp.announce_end)


def _announcing(hook, announce_end):
    """Tells the other ranks why this one ends. Python takes seconds to exit, in which they would wait for it."""
    def announce(kind, error, trace):
        try:
            if not hasattr(sys, "ps1"):  # an interactive session continues
                announce_end(f"{kind.__name__}: {error}".partition("\n")[0].encode(errors="replace").decode())
        finally:
            hook(kind, error, trace)
    return announce
