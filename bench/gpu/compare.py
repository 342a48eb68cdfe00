"""compare.py OURS.pt THEIRS.pt: how far apart the parameters of two runs are, as JSON; of one file, its generators."""

import hashlib
import json
import sys

import torch


def model_of(file):
    return {name: value.cpu() for name, value in file["model"].items()}


def apart(one, other):
    if one.keys() != other.keys():
        return {"equal": False, "apart": None, "names": sorted(one.keys() ^ other.keys())}
    return {"equal": all(torch.equal(one[name], other[name]) for name in one),
            "apart": max((one[name].double() - other[name].double()).abs().max().item() for name in one)}


def scale_of(file):
    return file.get("scale", file.get("lockstep", {}).get("scaler", {}).get("scale"))


def generators(file):
    """Python's own generators take the states, and give them back."""
    states = {"cpu": file["lockstep"]["rng"][0]}
    torch.set_rng_state(states["cpu"])
    same = torch.equal(torch.get_rng_state(), states["cpu"])
    if "device_rng" in file["lockstep"]:
        states["cuda"] = file["lockstep"]["device_rng"][0]
        torch.cuda.set_rng_state(states["cuda"])
        same = same and torch.equal(torch.cuda.get_rng_state(), states["cuda"])
    digests = {name: hashlib.sha256(bytes(state.tolist())).hexdigest() for name, state in states.items()}
    return {"devices": sorted(states), "taken": same, "states": digests}


def main():
    files = [torch.load(path, weights_only=True, map_location="cpu") for path in sys.argv[1:]]
    if len(files) == 1:
        found = generators(files[0])
    else:
        found = apart(*map(model_of, files)) | {"scales": [scale_of(file) for file in files]}
    print("told:" + json.dumps(found))


main()
