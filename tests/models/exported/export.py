"""export.py FOLDER NAME...: models of zoo.py, exported, and what Python's own training of them leaves.

FOLDER/NAME.pt2, FOLDER/NAME.eval.pt2   the model, and the same after eval()
FOLDER/NAME.data.pt                     inputs and targets of 20 steps, and inputs to evaluate
FOLDER/NAME.want.safetensors            "sgd.step3.output0", "adam.parameter.0.weight", ...

Prints a line a model: "NAME ok 0.8 s", "NAME skip: needs torchvision" or "NAME error: ...".
"""

import copy
import pathlib
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.utils import _pytree as pytree

from zoo import LOSES, REFUSED, ZOO

STEPS = 20
ALL = {**ZOO, **LOSES, **REFUSED}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
}


def drawn(entry):
    """The module with the weights that every process draws for it."""
    torch.manual_seed(1)
    return entry.make().train()


def tensors_of(output):
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def loss_of(outputs, targets):
    return sum(F.mse_loss(output.float(), target)
               for output, target in zip(outputs, targets, strict=True) if output.is_floating_point())


def make_data(module, entry):
    """[(arguments, targets) of each step], and arguments to evaluate. Batches are of two sizes."""
    generator = torch.Generator().manual_seed(11)
    batches, shapes = [entry.batch(8 if step % 5 else 6, generator) for step in range(STEPS)], []
    for arguments in batches[:2]:
        with torch.no_grad():
            shapes.append([output.shape for output in tensors_of(copy.deepcopy(module)(*arguments))])
    targets = [[torch.randn(shape, generator=generator) for shape in shapes[min(step % 5, 1)]] for step in range(STEPS)]
    return list(zip(batches, targets, strict=True)), entry.batch(5, generator)


def kept(tensors):
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}


def train(module, steps, optimizer, call=None, seed=7):
    """What the steps leave, by name. `call`: what stands around the module when it is called."""
    left, parameters = {}, dict(module.named_parameters())
    optimizer = OPTIMIZERS[optimizer]([parameter for parameter in parameters.values() if parameter.requires_grad])
    torch.manual_seed(seed)
    for number, (arguments, targets) in enumerate(steps):
        optimizer.zero_grad()
        outputs = tensors_of((call or module)(*arguments))
        loss = loss_of(outputs, targets)
        loss.backward()
        left.update({f"step{number}.output{i}": output for i, output in enumerate(outputs)})
        left[f"step{number}.loss"] = loss
        if number == 0:
            left.update({f"gradient.{name}": parameter.grad.clone()
                         for name, parameter in parameters.items() if parameter.grad is not None})
        optimizer.step()
    left["generator"] = torch.get_rng_state()
    left.update({f"parameter.{name}": parameter for name, parameter in parameters.items()})
    left.update({f"buffer.{name}": buffer for name, buffer in module.named_buffers()})
    return kept(left)


def evaluate(module, arguments):
    with torch.no_grad():
        left = {f"eval.output{i}": output for i, output in enumerate(tensors_of(module.eval()(*arguments)))}
    left.update({f"eval.buffer.{name}": buffer for name, buffer in module.named_buffers()})
    return kept(left)


def export(module, arguments, entry, path):
    program = torch.export.export(module, arguments, dynamic_shapes=entry.dynamic_shapes(arguments))
    torch.export.save(program, path)


def write_data(steps, evaluated, path):
    content = [{"inputs": pytree.tree_leaves(arguments), "targets": targets} for arguments, targets in steps]
    torch.save({"steps": content, "eval": pytree.tree_leaves(evaluated)}, path)


def write_want(module, steps, evaluated, entry, stem):
    want = {}
    for optimizer in OPTIMIZERS:
        trained = torch.export.load(f"{stem}.pt2").module() if entry.module else copy.deepcopy(module)
        left = train(trained, steps, optimizer)
        if not entry.module:
            left.update(evaluate(trained, evaluated))
        want.update({f"{optimizer}.{name}": tensor for name, tensor in left.items()})
    save_file(want, f"{stem}.want.safetensors")


def write_all(entry, stem):
    module = drawn(entry)
    steps, evaluated = make_data(module, entry)
    write_data(steps, evaluated, f"{stem}.data.pt")
    example, exported = steps[0][0], copy.deepcopy(module)
    export(exported, example, entry, f"{stem}.pt2")
    export(exported.eval(), example, entry, f"{stem}.eval.pt2")
    write_want(module, steps, evaluated, entry, stem)


def main(folder, *names):
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # what eval() takes in nn.TransformerEncoder: it has other bits
    warnings.filterwarnings("ignore")
    for name in names:
        entry, begin = ALL[name], time.monotonic()
        if entry.missing:
            print(f"{name} skip: needs {entry.needs}", flush=True)
            continue
        try:
            write_all(entry, pathlib.Path(folder) / name)
            print(f"{name} ok {time.monotonic() - begin:.1f} s", flush=True)
        except Exception as error:
            print(f"{name} error: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
