"""Compares torch.nn's modules and torch.optim's optimisers on a pretended GPU with the CPU: eagerly and in a CUDA graph.

LD_PRELOAD of the laboratory's libraries is the caller's. Names what failed; the end's code is the number of failures.
    modules.py [PART OF A NAME ...]
"""
import os
import sys
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
GPU = torch.device("cuda", 0)


class Last(nn.Module):
    """The sequence that a recurrent net returns, and its last state."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        out, state = self.net(x)
        states = state if isinstance(state, tuple) else (state,)
        return torch.cat([out.flatten()] + [s.flatten() for s in states])


class Call(nn.Module):
    def __init__(self, call, *modules):
        super().__init__()
        self.call, self.inner = call, nn.ModuleList(modules)

    def forward(self, *x):
        return self.call(*self.inner, *x)


def real(*shape):
    return lambda g: torch.randn(*shape, generator=g)


def whole(high, *shape):
    return lambda g: torch.randint(0, high, shape, generator=g)


# name, module, inputs; a third says what it cannot: "graph" needs the host
MODULES = [
    ("Linear", lambda: nn.Linear(7, 5), [real(4, 7)]),
    ("Bilinear", lambda: nn.Bilinear(3, 4, 5), [real(6, 3), real(6, 4)]),
    ("Conv1d", lambda: nn.Conv1d(3, 8, 3, padding=1), [real(2, 3, 9)]),
    ("Conv2d", lambda: nn.Conv2d(3, 8, 3, stride=2), [real(2, 3, 12, 12)]),
    ("Conv2d depthwise", lambda: nn.Conv2d(4, 4, 3, groups=4), [real(2, 4, 8, 8)]),
    ("Conv2d same", lambda: nn.Conv2d(4, 4, 3, padding="same", dilation=2), [real(2, 4, 8, 8)]),
    ("Conv2d channels last", lambda: nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
     [lambda g: torch.randn(2, 4, 8, 8, generator=g).contiguous(memory_format=torch.channels_last)]),
    ("Conv3d", lambda: nn.Conv3d(2, 3, 2), [real(1, 2, 4, 5, 6)]),
    ("ConvTranspose2d", lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), [real(2, 3, 5, 5)]),
    ("MaxPool2d", lambda: nn.MaxPool2d(2), [real(2, 3, 8, 8)]),
    ("AvgPool2d", lambda: nn.AvgPool2d(3, padding=1), [real(2, 3, 9, 9)]),
    ("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d((2, 3)), [real(2, 3, 8, 9)]),
    ("AdaptiveMaxPool1d", lambda: nn.AdaptiveMaxPool1d(3), [real(2, 3, 8)]),
    ("BatchNorm1d", lambda: nn.BatchNorm1d(5), [real(8, 5)]),
    ("BatchNorm2d", lambda: nn.BatchNorm2d(3), [real(4, 3, 6, 6)]),
    ("BatchNorm2d eval", lambda: nn.BatchNorm2d(3).eval(), [real(4, 3, 6, 6)]),
    ("GroupNorm", lambda: nn.GroupNorm(2, 6), [real(3, 6, 5)]),
    ("InstanceNorm2d", lambda: nn.InstanceNorm2d(3, affine=True), [real(2, 3, 5, 5)]),
    ("LayerNorm", lambda: nn.LayerNorm(6), [real(3, 4, 6)]),
    ("RMSNorm", lambda: nn.RMSNorm(6), [real(3, 4, 6)]),
    ("LocalResponseNorm", lambda: nn.LocalResponseNorm(2), [real(2, 4, 5, 5)]),
    ("Embedding", lambda: nn.Embedding(11, 4, padding_idx=2), [whole(11, 3, 5)]),
    ("EmbeddingBag", lambda: nn.EmbeddingBag(11, 4, mode="mean"), [whole(11, 3, 5)]),
    ("LSTM", lambda: Last(nn.LSTM(5, 7, num_layers=2)), [real(6, 3, 5)]),
    ("LSTM both ways", lambda: Last(nn.LSTM(5, 4, bidirectional=True, batch_first=True)), [real(3, 6, 5)]),
    ("LSTM no bias", lambda: Last(nn.LSTM(5, 4, bias=False)), [real(6, 3, 5)]),
    ("LSTM projected", lambda: Last(nn.LSTM(5, 6, proj_size=3)), [real(6, 3, 5)]),
    ("GRU", lambda: Last(nn.GRU(5, 7, num_layers=2)), [real(6, 3, 5)]),
    ("GRU both ways no bias", lambda: Last(nn.GRU(5, 4, bidirectional=True, bias=False)), [real(6, 3, 5)]),
    ("RNN tanh", lambda: Last(nn.RNN(5, 7)), [real(6, 3, 5)]),
    ("RNN relu", lambda: Last(nn.RNN(5, 7, nonlinearity="relu")), [real(6, 3, 5)]),
    ("LSTMCell", lambda: Call(lambda c, x: torch.cat(c(x)), nn.LSTMCell(5, 7)), [real(3, 5)]),
    ("GRUCell", lambda: Call(lambda c, x: c(x), nn.GRUCell(5, 7)), [real(3, 5)]),
    ("MultiheadAttention", lambda: Call(lambda a, x: a(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)),
     [real(2, 5, 8)]),
    ("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), [real(2, 5, 8)]),
    ("TransformerEncoderLayer eval", lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), [real(2, 5, 8)]),
    ("Transformer", lambda: nn.Transformer(8, 2, 1, 1, 16, dropout=0.0), [real(5, 2, 8), real(4, 2, 8)]),
    ("causal attention", lambda: Call(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
     [real(2, 2, 5, 4), real(2, 2, 5, 4), real(2, 2, 5, 4)]),
    ("cross_entropy", lambda: Call(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)), [real(6, 5), whole(5, 6)]),
    ("nll 2d", lambda: Call(lambda x, y: F.nll_loss(x.log_softmax(1), y)), [real(2, 5, 3, 3), whole(5, 2, 3, 3)]),
    ("ctc_loss", lambda: Call(lambda x, y: F.ctc_loss(x.log_softmax(2), y, (7, 7), (3, 2))), [real(7, 2, 5),
     lambda g: torch.randint(1, 5, (2, 3), generator=g)], "graph"),
    ("bce with logits", lambda: Call(lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid())), [real(6, 5), real(6, 5)]),
    ("smooth_l1", lambda: Call(F.smooth_l1_loss), [real(6, 5), real(6, 5)]),
    ("kl_div", lambda: Call(lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1))), [real(6, 5), real(6, 5)]),
    ("multi_margin", lambda: Call(F.multi_margin_loss), [real(6, 5), whole(5, 6)]),
    ("multilabel_margin", lambda: Call(F.multilabel_margin_loss), [real(6, 5), whole(5, 6, 5)]),
    ("triplet", lambda: Call(F.triplet_margin_loss), [real(4, 5), real(4, 5), real(4, 5)]),
    ("gelu silu mish", lambda: Call(lambda x: F.gelu(x) + F.silu(x) + F.mish(x) + F.elu(x) + F.softplus(x)), [real(4, 5)]),
    ("PReLU GLU", lambda: Call(lambda p, x: F.glu(p(x)), nn.PReLU()), [real(4, 6)]),
    ("softmax", lambda: Call(lambda x: x.softmax(-1) * x.log_softmax(0)), [real(4, 6)]),
    ("upsample bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), [real(1, 2, 4, 4)]),
    ("upsample bicubic", lambda: nn.Upsample(scale_factor=2, mode="bicubic"), [real(1, 2, 4, 4)]),
    ("PixelShuffle", lambda: nn.PixelShuffle(2), [real(1, 8, 3, 3)]),
    ("grid_sample", lambda: Call(lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False)), [real(1, 2, 5, 5), real(1, 4, 4, 2)]),
    ("affine_grid", lambda: Call(lambda t: F.affine_grid(t, (2, 1, 4, 4), align_corners=False)), [real(2, 2, 3)]),
    ("pad reflect", lambda: nn.ReflectionPad2d(2), [real(1, 2, 5, 5)]),
    ("unfold fold", lambda: Call(lambda x: F.fold(F.unfold(x, 2), (5, 5), 2)), [real(1, 2, 5, 5)]),
    ("gather scatter", lambda: Call(lambda x, i: x.gather(1, i).scatter_add(1, i, x)), [real(4, 6), whole(6, 4, 6)]),
    ("index", lambda: Call(lambda x, i: x[i] * x.index_select(0, i)), [real(6, 3), whole(6, 8)]),
    ("bucketize", lambda: Call(lambda x: x * torch.bucketize(x.detach(), torch.linspace(-1, 1, 5, device=x.device))), [real(4, 6)]),
    ("sort topk cumsum", lambda: Call(lambda x: x.sort(1)[0] + x.topk(6)[0].cumsum(1)), [real(4, 6)]),
    ("einsum", lambda: Call(lambda a, b: torch.einsum("bij,bjk->bik", a, b)), [real(2, 3, 4), real(2, 4, 5)]),
    ("fft", lambda: Call(lambda x: torch.fft.irfft(torch.fft.rfft(x).conj() * 2)), [real(4, 8)]),
    ("complex", lambda: Call(lambda x: torch.view_as_real(torch.view_as_complex(x).conj() * 1j).square()), [real(4, 2)]),
    ("norms", lambda: Call(lambda x: x.norm() + torch.linalg.vector_norm(x, 1) + x.var() + x.logsumexp(0).sum()), [real(4, 6)]),
    ("solve", lambda: Call(lambda x: torch.linalg.solve(x @ x.T + torch.eye(4, device=x.device), x)), [real(4, 4)], "graph"),
    ("cosine cdist", lambda: Call(lambda a, b: torch.cdist(a, b) + F.cosine_similarity(a, b)), [real(4, 6), real(4, 6)]),
]


def inputs_of(row, seed, device):
    generator = torch.Generator().manual_seed(seed)
    made = [make(generator).to(device) for make in row[2]]
    return [x.requires_grad_() if x.is_floating_point() else x for x in made]


def weighted(out):  # so that gradients differ from place to place
    return (out * torch.linspace(0.5, 1.5, out.numel(), device=out.device).view(out.shape)).sum()


def gradients(net, inputs):
    return [t.grad for t in list(net.parameters()) + inputs if t.grad is not None]


def forget(net, inputs):
    for t in list(net.parameters()) + inputs:
        t.grad = None


def made(row, device):
    torch.manual_seed(1)
    return row[1]().to(device)


def eager(row, device, seeds):
    net, results = made(row, device), []
    for seed in seeds:
        inputs = inputs_of(row, seed, device)
        out = net(*inputs)
        forget(net, inputs)
        weighted(out).backward()
        results.append([out.detach()] + [g.clone() for g in gradients(net, inputs)])
    return results[-1] + [b.float() for b in net.buffers()]


def captured(row, seeds):
    """One step for each seed, the first before the capture, the others by replays."""
    net, inputs = made(row, GPU), inputs_of(row, seeds[0], GPU)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        weighted(net(*inputs)).backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    forget(net, inputs)
    with torch.cuda.graph(graph):
        out = net(*inputs)
        weighted(out).backward()
    results = [out.detach()] + gradients(net, inputs)
    for seed in seeds[1:]:
        with torch.no_grad():
            for to, new in zip(inputs, inputs_of(row, seed, "cpu")):
                to.copy_(new)
        graph.replay()
    return results + [b.float() for b in net.buffers()]


def compare(got, expected):
    assert len(got) == len(expected), f"{len(got)} tensors for {len(expected)}"
    for i, (a, b) in enumerate(zip(got, expected)):
        assert a.device == GPU, f"tensor {i} is on {a.device}"
        torch.testing.assert_close(a.cpu(), b, rtol=2e-5, atol=2e-6, msg=lambda m, i=i: f"tensor {i}: {m}")


def try_module(row):
    expected = eager(row, "cpu", [2, 3, 4])
    compare(eager(row, GPU, [2, 3, 4]), expected)
    if "graph" not in row[3:]:
        compare(captured(row, [2, 3, 4]), expected)


O = torch.optim
# name, class, options of each, which ways of stepping there are
OPTIMISERS = [
    ("SGD", O.SGD, dict(lr=0.1), "plain foreach fused capture"),
    ("SGD momentum", O.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), "plain foreach fused capture"),
    ("Adam", O.Adam, dict(lr=0.01), "plain foreach fused capturable tensor_lr"),
    ("Adam amsgrad", O.Adam, dict(lr=0.01, amsgrad=True), "plain foreach fused capturable tensor_lr"),
    ("AdamW", O.AdamW, dict(lr=0.01, weight_decay=0.1), "plain foreach fused capturable tensor_lr"),
    ("Adagrad", O.Adagrad, dict(lr=0.01), "plain foreach"),
    ("RMSprop", O.RMSprop, dict(lr=0.01, momentum=0.5, centered=True), "plain foreach capturable"),
    ("Adadelta", O.Adadelta, dict(lr=0.5), "plain foreach capturable"),
    ("Adamax", O.Adamax, dict(lr=0.01), "plain foreach capturable"),
    ("NAdam", O.NAdam, dict(lr=0.01), "plain foreach capturable"),
    ("RAdam", O.RAdam, dict(lr=0.01), "plain foreach capturable"),
    ("ASGD", O.ASGD, dict(lr=0.01), "plain foreach capturable"),
    ("Rprop", O.Rprop, dict(lr=0.01), "plain foreach capturable"),
]
WAYS = {"plain": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True), "capture": {},
        "capturable": dict(capturable=True), "tensor_lr": dict(capturable=True, fused=True)}


def small_net(device):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)


def batch(step):
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(step))


def step_once(net, optimiser, x):
    optimiser.zero_grad(set_to_none=True)
    net(x).square().mean().backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimiser.step()
    return norm


def stepped(kind, options, device, steps):
    net = small_net(device)
    optimiser = kind(net.parameters(), **options)
    for step in range(steps):
        step_once(net, optimiser, batch(step).to(device))
    return [p.detach() for p in net.parameters()]


def stepped_in_graph(kind, options, steps):
    net, x = small_net(GPU), batch(0).to(GPU)
    optimiser = kind(net.parameters(), **options)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step_once(net, optimiser, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step_once(net, optimiser, x)
    for step in range(1, steps):
        x.copy_(batch(step))
        graph.replay()
    return [p.detach() for p in net.parameters()]


def try_optimiser(row, way):
    _, kind, options, _ = row
    expected = stepped(kind, dict(options, foreach=False), "cpu", 4)
    more = dict(options, **WAYS[way])
    if way == "tensor_lr":
        more["lr"] = torch.tensor(options["lr"], device=GPU)
    compare(stepped(kind, more, GPU, 4), expected)
    if way in ("capture", "capturable", "tensor_lr") or (way == "fused" and kind is not O.SGD):
        if way == "fused":
            more["capturable"] = True
        compare(stepped_in_graph(kind, more, 4), expected)


def cases():
    for row in MODULES:
        yield row[0], lambda row=row: try_module(row)
    for row in OPTIMISERS:
        for way in row[3].split():
            yield f"{row[0]} {way}", lambda row=row, way=way: try_optimiser(row, way)


def main():
    wanted, failed, count = sys.argv[1:], 0, 0
    for name, case in cases():
        if wanted and not any(part in name for part in wanted):
            continue
        count += 1
        try:
            case()
        except Exception as error:
            failed += 1
            print(f"FAILED {name}: {str(error)[:700]}")
            if os.environ.get("TRACE"):
                traceback.print_exc()
            torch.cuda.synchronize()
    print(f"{count - failed} of {count} as on the CPU")
    sys.exit(min(failed, 100))


main()
