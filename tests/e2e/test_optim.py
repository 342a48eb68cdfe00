"""Optimizers, clipping, the gradient scaler and schedules against Python's own, to the bit."""

import copy
import io
import math

import pytest

pytestmark = pytest.mark.about("optim")

torch = pytest.importorskip("torch", reason="needs Python's torch to compare with")

STEPS = 40
SHAPES = [(5, 7), (7,), (3, 2, 3, 3), (), (1000,)]
CLASSES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
SCHEDULES = {"step": "StepLR", "cosine": "CosineAnnealingLR", "one_cycle": "OneCycleLR", "warmup": "LinearLR",
             "plateau": "ReduceLROnPlateau"}

OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.1},
    "sgd momentum": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
    "sgd nesterov": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True},
    "sgd nesterov decay": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
    "sgd decay": {"name": "sgd", "lr": 0.3, "weight_decay": 1e-3},
    "sgd momentum decay": {"name": "sgd", "lr": 0.03, "momentum": 0.85, "weight_decay": 1e-3},
    "adam": {"name": "adam", "lr": 1e-3},
    "adam betas": {"name": "adam", "lr": 2e-3, "beta1": 0.85, "beta2": 0.95, "eps": 1e-6},
    "adam decay": {"name": "adam", "lr": 1e-3, "weight_decay": 0.01},
    "adamw": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
    "adamw strong": {"name": "adamw", "lr": 3e-2, "weight_decay": 0.3},
    "adamw none": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.0},
}

SCHEDULE_CASES = {
    "step": {"name": "step", "step_size": 3, "gamma": 0.3},
    "cosine": {"name": "cosine", "T_max": 17, "eta_min": 1e-5},
    "cosine resolved": {"name": "cosine"},
    "warmup": {"name": "warmup", "start_factor": 0.05, "total_iters": 13},
    "warmup default": {"name": "warmup"},
    "warmup down": {"name": "warmup", "start_factor": 0.9, "end_factor": 0.2, "total_iters": 10},
    "one_cycle": {"name": "one_cycle", "max_lr": 0.3},
    "one_cycle linear": {"name": "one_cycle", "max_lr": 0.3, "anneal_strategy": "linear", "pct_start": 0.4},
    "one_cycle three": {"name": "one_cycle", "max_lr": 0.1, "three_phase": True, "div_factor": 10.0},
    "one_cycle still": {"name": "one_cycle", "max_lr": 0.1, "cycle_momentum": False, "final_div_factor": 100.0},
    "one_cycle longer": {"name": "one_cycle", "max_lr": 0.1, "total_steps": 100},
    "linear_warmup": {"name": "linear_warmup", "warmup_steps": 7},
    "linear_warmup none": {"name": "linear_warmup", "total_steps": 77},
    "linear_warmup alone": {"name": "linear_warmup", "warmup_steps": 1000},
    "plateau": {"name": "plateau", "patience": 2, "factor": 0.5},
    "plateau max abs": {"name": "plateau", "mode": "max", "threshold_mode": "abs", "threshold": 0.05, "patience": 1,
                        "cooldown": 2, "min_lr": 1e-3},
}


@pytest.fixture
def cpp(build_dir, run, tmp_path):
    """cpp(cases) -> results of tests/optim/peer.cpp, one process for all."""
    def ask(cases):
        asked, answered = tmp_path / "asked.pt", tmp_path / "answered.pt"
        torch.save(cases, asked)
        run(build_dir / "bin/test_optim", "--gtest_filter=Peer.*", check=True,
            env={"LOCKSTEP_PEER_IN": str(asked), "LOCKSTEP_PEER_OUT": str(answered)})
        return torch.load(answered, weights_only=True)
    return ask


def starts():
    generator = torch.Generator().manual_seed(3)
    params = [torch.randn(shape, generator=generator) for shape in SHAPES]
    grads = []
    for step in range(STEPS):
        grads.append([torch.randn(shape, generator=generator) * 10 ** (step % 5 - 3) for shape in SHAPES])
        grads[-1][step % len(SHAPES)] = None  # a branch that was not used
    return params, grads


def python_optimizer(settings, params, **more):
    keys = {key: value for key, value in settings.items() if key not in ("name", "beta1", "beta2")}
    if "beta1" in settings:
        keys["betas"] = (settings["beta1"], settings["beta2"])
    return CLASSES[settings["name"]](params, **keys, **more)


def train(optimizer, params, grads, clip=0.0, scaler=None):
    norms, scales = [], []
    for step in grads:
        for param, grad in zip(params, step):
            param.grad = None if grad is None else grad.clone()
        if scaler:
            scaler.scale(torch.zeros(()))
            scaler.unscale_(optimizer)
        if clip:
            norms.append(torch.nn.utils.clip_grad_norm_(params, clip))
        if scaler:
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        else:
            optimizer.step()
    return norms, scales


def leaves(params):
    return [param.clone().requires_grad_() for param in params]


def assert_same_bits(ours, theirs, what):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, (what, i)
        assert torch.equal(a.reshape(-1).view(torch.uint8), b.detach().reshape(-1).view(torch.uint8)), (what, i)


def assert_same_state(ours, theirs, what):
    assert ours["param_groups"] == theirs["param_groups"], what
    assert set(ours["state"]) == set(theirs["state"]), what
    for index, state in theirs["state"].items():
        assert set(ours["state"][index]) == set(state), what
        assert_same_bits([ours["state"][index][key] for key in state], list(state.values()), (what, index))


def test_optimizers_equal_pythons_to_the_bit(cpp, python):
    params, grads = starts()
    asked = {f"{name}|{clip}": {"optim": optim, "params": params, "grads": grads, "clip": clip}
             for name, optim in OPTIMIZERS.items() for clip in (0.0, 1.5)}
    answered = cpp(asked)
    for name, case in asked.items():
        ours = answered[name]
        for foreach in (None, True):
            trained = leaves(params)
            optimizer = python_optimizer(case["optim"], trained, foreach=foreach)
            norms, _ = train(optimizer, trained, grads, case["clip"])
            assert_same_bits(ours["params"], trained, name)
            assert_same_bits(ours["norms"], norms, name)
        # the default optimizer's own words, key by key
        state = python_optimizer(case["optim"], trained).state_dict()
        assert set(ours["state"]["param_groups"][0]) == set(state["param_groups"][0]), name


KINDS = {"bf16": [torch.bfloat16], "fp16": [torch.float16], "complex": [torch.complex64, torch.complex128],
         "mixed": [torch.bfloat16, torch.float32, torch.float16, torch.float64, torch.bfloat16]}


def cast(tensors, kind):
    """Each as the kind has it; a complex one's imaginary part is its real part's neighbor."""
    def one(tensor, dtype):
        return torch.complex(tensor, tensor.roll(1)).to(dtype) if dtype.is_complex else tensor.to(dtype)
    kinds = KINDS[kind]
    return [None if tensor is None else one(tensor, kinds[i % len(kinds)]) for i, tensor in enumerate(tensors)]


def test_parameters_of_each_type_equal_pythons_to_the_bit(cpp):
    params, grads = starts()
    asked = {}
    for kind in KINDS:
        own, steps = cast(params, kind), [cast(step, kind) for step in grads[:10]]
        every = [[torch.full_like(param, 0.5) if grad is None else grad for param, grad in zip(own, step)] for step in steps]
        for name in ("sgd momentum", "sgd nesterov decay", "adam decay", "adamw strong"):
            case = {"optim": {"eps": 1e-3, **OPTIMIZERS[name]}, "params": own}
            asked[f"{kind}|{name}"] = {**case, "grads": steps}
            asked[f"{kind}|{name}|clipped"] = {**case, "grads": steps, "clip": 1.5}
            if kind != "complex":  # Python's fused kernels take none
                asked[f"{kind}|{name}|fused"] = {**case, "grads": every, "fused": True}
    answered = cpp(asked)
    for name, case in asked.items():
        trained = leaves(case["params"])
        settings = {key: value for key, value in case["optim"].items() if key != "eps" or "adam" in name}
        more = {"fused": True, "lr": torch.tensor(settings.pop("lr"))} if "fused" in case else {}
        optimizer = python_optimizer(settings, trained, **more)
        norms, _ = train(optimizer, trained, case["grads"], case.get("clip", 0.0))
        assert all(param.isfinite().all() for param in trained), name
        assert_same_bits(answered[name]["norms"], norms, name)
        assert_same_bits(answered[name]["params"], trained, name)
        if "fused" not in case:
            assert_same_state({**answered[name]["state"], "param_groups": None},
                              {**optimizer.state_dict(), "param_groups": None}, name)


def test_fused_optimizers_equal_pythons_to_the_bit(cpp):
    """The way of a captured step: Python's fused=True, its rate a tensor, begun again and gone on with."""
    params, grads = starts()
    grads = [[torch.full(shape, 0.5) if grad is None else grad for shape, grad in zip(SHAPES, step)] for step in grads]
    half = STEPS // 2
    first = {name: {"optim": optim, "params": params, "grads": grads[:half], "fused": True}
             for name, optim in OPTIMIZERS.items()}
    begun = cpp(first)
    gone_on = cpp({name: {**case, "params": begun[name]["params"], "grads": grads[half:], "state": begun[name]["state"]}
                   for name, case in first.items()})
    for name, optim in OPTIMIZERS.items():
        trained = leaves(params)
        optimizer = python_optimizer({**optim, "lr": torch.tensor(optim["lr"])}, trained, fused=True)
        for ours, part in ((begun[name], grads[:half]), (gone_on[name], grads[half:])):
            train(optimizer, trained, part)
            assert_same_bits(ours["params"], trained, name)
            for index, state in optimizer.state_dict()["state"].items():
                if state.get("momentum_buffer", 0) is not None:
                    assert_same_bits([ours["state"]["state"][index][key] for key in state], list(state.values()), name)


LIBTORCHS = {"torch.SGD": {"momentum": 0.9, "nesterov": True}, "torch.Adam": {"amsgrad": True},
             "torch.AdamW": {"betas": (0.8, 0.95)}, "torch.RMSprop": {"momentum": 0.5, "centered": True},
             "torch.Adagrad": {"lr_decay": 0.01}}


def libtorchs_twin(name, params):
    return getattr(torch.optim, name.removeprefix("torch."))(params, lr=1e-3, **LIBTORCHS[name])


def assert_close(ours, theirs, what):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-6, msg=lambda text: f"{what}: {text}")


def test_state_of_libtorchs_optimizers_goes_on_there_and_in_python(cpp):
    params, grads = starts()
    half = STEPS // 2
    cases = {name: {"optim": {"name": name, "lr": 1e-3}, "params": params, "grads": grads} for name in LIBTORCHS}
    whole = cpp(cases)
    begun = cpp({name: {**case, "grads": grads[:half]} for name, case in cases.items()})
    gone_on = cpp({name: {**case, "params": begun[name]["params"], "grads": grads[half:], "state": begun[name]["state"]}
                   for name, case in cases.items()})
    for name in LIBTORCHS:
        assert_same_bits(gone_on[name]["params"], whole[name]["params"], name)
        twin = leaves(begun[name]["params"])
        second = libtorchs_twin(name, twin)
        second.load_state_dict(begun[name]["state"])
        train(second, twin, grads[half:])
        assert_close(whole[name]["params"], twin, name)


def test_state_goes_from_python_into_libtorchs_optimizers(cpp):
    params, grads = starts()
    half = STEPS // 2
    asked, expected = {}, {}
    for name in LIBTORCHS:
        twin = leaves(params)
        optimizer = libtorchs_twin(name, twin)
        train(optimizer, twin, grads[:half])
        asked[name] = {"optim": {"name": name, "lr": 0.5}, "params": [param.detach().clone() for param in twin],
                       "grads": grads[half:], "state": copy.deepcopy(optimizer.state_dict())}
        train(optimizer, twin, grads[half:])
        expected[name] = twin
    answered = cpp(asked)
    for name, twin in expected.items():
        assert_close(answered[name]["params"], twin, name)


def test_grad_scaler_follows_pythons_rules(cpp, python):
    params, grads = starts()
    grads = [[None if grad is None else grad * 1024 for grad in step] for step in grads]
    for step in (4, 5, 17):
        next(grad for grad in grads[step] if grad is not None).view(-1)[0] = math.inf
    next(grad for grad in grads[23] if grad is not None).view(-1)[0] = math.nan
    optim = OPTIMIZERS["sgd momentum"]
    ours = cpp({"a": {"optim": optim, "params": params, "grads": grads, "scaler": True, "clip": 2.0}})["a"]
    trained = leaves(params)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    _, scales = train(python_optimizer(optim, trained), trained, grads, 2.0, scaler)
    assert ours["scales"] == scales and len(set(scales)) > 3
    assert_same_bits(ours["params"], trained, "scaler")
    assert ours["scaler"] == scaler.state_dict()
    scaler.load_state_dict(ours["scaler"])


def python_schedule(settings, optimizer, steps):
    keys = {key: value for key, value in settings.items() if key != "name"}
    if settings["name"] == "linear_warmup":
        transformers = pytest.importorskip("transformers")
        return transformers.get_linear_schedule_with_warmup(optimizer, keys.get("warmup_steps", 0), keys.get("total_steps", steps))
    if settings["name"] == "cosine":
        keys.setdefault("T_max", steps)
    if settings["name"] == "one_cycle":
        keys.setdefault("total_steps", steps)
    return getattr(torch.optim.lr_scheduler, SCHEDULES[settings["name"]])(optimizer, **keys)


GROUPS = {
    "sgd": ({"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}, {"name": "sgd", "lr": 0.3}),
    "nesterov": ({"name": "sgd", "lr": 0.05, "momentum": 0.8, "nesterov": True},
                 {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 1e-2}),
    "adam": ({"name": "adam", "lr": 1e-3, "weight_decay": 0.01},
             {"name": "adam", "lr": 3e-2, "beta1": 0.8, "beta2": 0.99, "eps": 1e-7}),
    "adamw": ({"name": "adamw", "lr": 1e-3, "weight_decay": 0.1}, {"name": "adamw", "lr": 4e-3, "weight_decay": 0.0}),
}

SECOND = 3  # parameters of the first group; the rest are the second's


def python_groups(optims, params):
    groups = []
    for optim, members in zip(optims, (params[:SECOND], params[SECOND:]), strict=True):
        only = python_optimizer({"weight_decay": 0.0, **optim}, members)  # a group's options are whole
        groups.append({"params": members, **{key: only.param_groups[0][key] for key in only.defaults}})
    return CLASSES[optims[0]["name"]](groups)


def train_python_groups(optimizer, schedule, params, grads, metrics):
    rates, momenta = [], []
    for step, metric in zip(grads, metrics, strict=True):
        for group in optimizer.param_groups:
            rates.append(group["lr"])
            momenta.append(float(group["betas"][0] if "betas" in group else group["momentum"]))
        for param, grad in zip(params, step, strict=True):
            param.grad = None if grad is None else grad.clone()
        optimizer.step()
        schedule.step(metric) if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau) else schedule.step()
    return rates, momenta


def assert_same_training(ours, trained, optimizer, schedule, rates, momenta, name):
    assert list(map(repr, ours["rates"])) == list(map(repr, rates)), name
    assert list(map(repr, ours["momenta"])) == list(map(repr, momenta)), name
    assert_same_bits(ours["params"], trained, name)
    assert_same_state(ours["state"], optimizer.state_dict(), name)
    theirs = schedule.state_dict()
    assert ours["schedule"] == {key: value for key, value in theirs.items() if key in ours["schedule"]}, name


def grouped_cases(params, grads, metrics, **more):
    return {f"{optims}|{schedule}": {"groups": [{"optim": optim, "count": count} for optim, count in zip(
        GROUPS[optims], (SECOND, len(params) - SECOND), strict=True)], "schedule": SCHEDULE_CASES[schedule],
        "steps": STEPS, "params": params, "grads": grads, "metrics": metrics, **more}
        for optims in GROUPS for schedule in SCHEDULE_CASES}


def python_of(name, params):
    optims, schedule = name.split("|")
    trained = leaves(params)
    optimizer = python_groups(GROUPS[optims], trained)
    return trained, optimizer, python_schedule(SCHEDULE_CASES[schedule], optimizer, STEPS)


GROUP_METRICS = [2.0 + math.sin(i * i) / (1 + i) for i in range(STEPS)]


def test_groups_under_each_schedule_equal_pythons_to_the_bit(cpp):
    params, grads = starts()
    plain, broken = (grouped_cases(params, grads, GROUP_METRICS, break_at=stop) for stop in (-1, 13))
    answered = cpp({**plain, **{f"{name}|broken": case for name, case in broken.items()}})
    for name in plain:
        trained, optimizer, schedule = python_of(name, params)
        rates, momenta = train_python_groups(optimizer, schedule, trained, grads, GROUP_METRICS)
        one_peak = "one_cycle" in name
        assert (rates[0::2] == rates[1::2]) == one_peak, name
        for ours in (answered[name], answered[f"{name}|broken"]):
            assert_same_training(ours, trained, optimizer, schedule, rates, momenta, name)


def test_states_of_groups_go_to_python_and_back(cpp):
    params, grads = starts()
    half = STEPS // 2
    first = cpp(grouped_cases(params, grads[:half], GROUP_METRICS[:half]))
    asked, expected = {}, {}
    for name, case in grouped_cases(params, grads[half:], GROUP_METRICS[half:]).items():
        trained, optimizer, schedule = python_of(name, params)  # the whole way in Python
        train_python_groups(optimizer, schedule, trained, grads[:half], GROUP_METRICS[:half])
        torch.save([optimizer.state_dict(), schedule.state_dict()], buffer := io.BytesIO())
        asked[name] = {**case, "params": [param.detach().clone() for param in trained]}
        for group in asked[name]["groups"]:
            group["optim"] = {**group["optim"], "lr": 0.5}  # the states have another rate
        asked[name]["state"], asked[name]["schedule_state"] = torch.load(io.BytesIO(buffer.getvalue()))
        rates, momenta = train_python_groups(optimizer, schedule, trained, grads[half:], GROUP_METRICS[half:])
        expected[name] = trained, optimizer, schedule, rates, momenta

        resumed, second, further = python_of(name, first[name]["params"])  # the second half of lockstep's first
        second.load_state_dict(first[name]["state"])
        further.load_state_dict(first[name]["schedule"])
        train_python_groups(second, further, resumed, grads[half:], GROUP_METRICS[half:])
        assert_same_bits(resumed, trained, name)
    for name, ours in cpp(asked).items():
        assert_same_training(ours, *expected[name], name)
