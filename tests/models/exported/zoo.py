"""Models as people write them, made small: what export.py exports, and Python and C++ train side by side.

ZOO: name -> Model. LOSES: those that an export makes others. REFUSED: those that lockstep does not take.
"""

import dataclasses
import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree


@dataclasses.dataclass
class Model:
    make: Callable        # -> the module; random weights are drawn
    batch: Callable       # (n, generator) -> the arguments of forward
    shapes: tuple = None  # torch.export's dynamic_shapes; without it the first size of each tensor may change
    needs: str = ""       # a package beside torch
    twin: str = ""        # why only a second export, made after eval(), evaluates as Python does
    draws: bool = False   # lockstep says so itself
    module: str = ""      # why ep.module(), and not the module that was exported, is what training is compared with

    @property
    def missing(self):
        return bool(self.needs) and importlib.util.find_spec(self.needs) is None

    def dynamic_shapes(self, arguments):
        def of(leaf):
            return {0: Dim.DYNAMIC} if isinstance(leaf, torch.Tensor) else None
        return self.shapes or pytree.tree_map(of, arguments)


def images(channels, side):
    return lambda n, generator: (torch.randn(n, channels, side, side, generator=generator),)


def vectors(*sizes):
    return lambda n, generator: (torch.randn(n, *sizes, generator=generator),)


def tokens(words, length):
    return lambda n, generator: (torch.randint(words, (n, length), generator=generator),)


# Plain nets, and what people do with parameters and buffers


def mlp():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))


def float64():
    return nn.Sequential(nn.Linear(6, 16), nn.Softplus(), nn.LayerNorm(16), nn.Linear(16, 2)).double()


def doubles(n, generator):
    return (torch.randn(n, 6, generator=generator, dtype=torch.float64),)


class MultiIo(nn.Module):
    """A dict, a number and a None in, a dict with a tuple out."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 16), nn.Linear(6, 16)
        self.classes, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, sides, scale: float, mask=None):
        hidden = F.silu(self.left(sides["left"]) + self.right(sides["right"]) * scale)
        if mask is not None:
            hidden = hidden * mask
        return {"classes": self.classes(hidden), "values": (self.value(hidden), hidden.mean(1))}


def sides(n, generator):
    return {"left": torch.randn(n, 8, generator=generator), "right": torch.randn(n, 6, generator=generator)}, 0.5, None


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.hidden = nn.Embedding(40, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words):
        return self.head(torch.tanh(self.hidden(self.embedding(words))))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(10, 16), nn.ReLU()), nn.Linear(16, 3)
        self.body.requires_grad_(False)

    def forward(self, x):
        return self.head(self.body(x))


class Buffers(nn.Module):
    """A counter and a moving mean that forward changes, a buffer that no state_dict holds, and constants."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("scale", torch.full((6,), 2.0), persistent=False)
        self.shift = torch.arange(1.0, 7.0)

    def forward(self, x):
        self.seen += x.shape[0]
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.layer(x - self.mean) * self.scale + self.shift + torch.tensor(0.25)


class Shapes(nn.Module):
    """Sizes are computed with, and reach factories, views, paddings and a divisor."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 8)

    def forward(self, x):
        n, length = x.shape[:2]
        y = self.layer(x).view(-1, 4, 2).sum(1) / n
        y = y.repeat_interleave(2, 0).narrow(0, 0, n * length)
        ramp = torch.arange(n * length, device=x.device).float().unsqueeze(1) / (2 * n + 1)
        wide = torch.zeros(n * length, 2 + length % 3, dtype=x.dtype)
        wide[:, :2] = y * ramp
        grown = F.pad(wide, (0, 1)).sum(1).view(n, length) * torch.sym_sqrt(torch.sym_float(n))
        return grown + torch.full((n, length), torch.sym_max(n, 3))


class Nonzero(nn.Module):
    """A size that depends on the data."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y, chosen = self.layer(x), (x[:, 0] > 0).nonzero().squeeze(1)
        return torch.cat([y[chosen].sum(0, keepdim=True), y.mean(0, keepdim=True)])


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.warm, self.cold = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.warm(x).relu(), lambda x: self.cold(x).sigmoid(), (x,))


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.low(x).relu()
        return self.high(hidden.float())


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.Linear(32, 8)), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False))


def weight_norm():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 3))


def spectral_norm():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 3))


class TrainFlag(nn.Module):
    """What is not dropout and no norm, and differs in training."""

    def __init__(self):
        super().__init__()
        self.layer, self.dropout = nn.Linear(4, 4), nn.Dropout(0.5)
        self.norm, self.still = nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        y = self.still(self.norm(self.dropout(self.layer(x))))
        return y * 2 if self.training else y


class OwnNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x):
        y = self.layer(x)
        return y + torch.randn_like(y) * 0.1 if self.training else y


class EinsumNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Parameter(torch.randn(4, 8, 6) * 0.1), nn.Parameter(torch.randn(6, 3))
        self.group, self.layer = nn.GroupNorm(2, 4), nn.LayerNorm([4, 6])

    def forward(self, x):
        return torch.einsum("bho,oc->bc", self.layer(self.group(torch.einsum("bi,hio->bho", x, self.inner))), self.outer)


# Images


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(16 * 7 * 7, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.view(x.size(0), -1))))


def cnn_bn_dropout():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout2d(0.2), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(16, 10))


class Joined(nn.Module):
    """What is computed in one here (relu with a pool of two or a linear layer), beside what only looks like that."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.in_place = nn.ReLU(inplace=True)
        self.one, self.two, self.three = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 5, bias=False)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(self.in_place(self.second(x)), 2)
        twice = F.relu(self.third(x))
        x = F.max_pool2d(twice, 2) + F.avg_pool2d(twice, 2)
        x = F.max_pool2d(F.relu(x), 2, stride=1)
        flat = x.flatten(1)
        both = flat.mul(1.0)
        part = both.view(-1, 2, 2)
        F.relu_(part)  # both changes with it
        linear = self.two(F.relu(self.one(both)))
        return self.three(F.relu_(linear + F.relu(linear)))


def instance_rrelu():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True, track_running_stats=True), nn.RReLU(), nn.AlphaDropout(0.1),
        nn.Conv2d(8, 8, 3), nn.FeatureAlphaDropout(0.1), nn.Flatten(), nn.Linear(8 * 4 * 4, 3))


def conv_norm(inputs, outputs, kernel=3, stride=1, groups=1, act=nn.ReLU):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), act())


def resnet18():
    """torchvision's without its two widest stages."""
    import torchvision
    model = torchvision.models.resnet18(num_classes=10)
    model.layer3, model.layer4, model.fc = nn.Identity(), nn.Identity(), nn.Linear(128, 10)
    return model


def vit():
    import torchvision
    return torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 64, dropout=0.1, num_classes=5)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = conv_norm(1, 8), conv_norm(8, 16), conv_norm(16, 32)
        self.grow = nn.ConvTranspose2d(32, 16, 2, 2)
        self.up2, self.up1, self.out = conv_norm(32, 16), conv_norm(24, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        y = self.grow(self.middle(F.max_pool2d(two, 2)))
        y = self.up2(torch.cat([y, two], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.up1(torch.cat([y, one], 1)))


# Sequences and speech


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.rnn = kind(16, 12, num_layers=2, batch_first=True, dropout=0.3, bidirectional=True)
        self.head = nn.Linear(24, 4)

    def forward(self, words):
        return self.head(self.rnn(self.embedding(words))[0][:, -1])


# Attention


class TransformerEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(60, 16), nn.Parameter(torch.randn(1, 10, 16) * 0.02)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True, activation="gelu")
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 3)

    def forward(self, words):
        return self.head(self.encoder(self.embedding(words) + self.position).mean(1))


class PaddedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)
        self.head = nn.Linear(16, 2)

    def forward(self, x, padded):
        return self.head(self.encoder(x, src_key_padding_mask=padded).mean(1))


def padded(n, generator):
    mask = torch.zeros(n, 7, dtype=torch.bool)
    mask[::2, 5:] = True
    return torch.randn(n, 7, 16, generator=generator), mask


class Mha(nn.Module):
    """The attention's weights are an output."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(16, 4, dropout=0.2, batch_first=True), nn.Linear(16, 2)

    def forward(self, x):
        y, weights = self.attention(x, x, x)
        return self.head(y.mean(1)), weights


class Sdpa(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        n, length, width = x.shape
        query, key, value = self.qkv(self.norm(x)).view(n, length, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(n, length, width))


def texts_of_two_lengths(n, generator):
    return (torch.randn(n, n + 4, 32, generator=generator),)


def turned(x, angles):
    """Rotary positions: pairs of numbers, turned by their place's angle."""
    one, two = x.chunk(2, -1)
    return torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], -1)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down, self.heads = nn.Linear(2 * width, width, bias=False), heads

    def forward(self, x, angles):
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(turned(query, angles), turned(key, angles), value, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(50, width), nn.ModuleList(LlamaBlock(width, heads) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-6), nn.Linear(width, 50, bias=False)
        half = width // heads // 2
        self.register_buffer("rates", 10000.0 ** (-torch.arange(half) / half), persistent=False)

    def forward(self, words):
        angles = torch.outer(torch.arange(words.shape[1], device=words.device), self.rates)
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x, angles)
        return self.head(self.norm(x))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification
        self.model = BertForSequenceClassification(BertConfig(
            vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=32, num_labels=3))

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


def masked_words(n, generator):
    mask = torch.ones(n, 11, dtype=torch.long)
    mask[:n // 2, 8:] = 0
    return torch.randint(99, (n, 11), generator=generator), mask


# Tables, pairs and graphs


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.each = nn.EmbeddingBag(80, 16, mode="mean"), nn.Embedding(80, 16, padding_idx=0)
        self.head = nn.Linear(32, 2)

    def forward(self, words):
        return self.head(torch.cat([self.bag(words), self.each(words).max(1).values], 1))


class Siamese(nn.Module):
    """One encoder, called twice: its norm counts two batches a step."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(9, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, one, other):
        one, other = self.encoder(one), self.encoder(other)
        return self.head((one - other).abs()), F.cosine_similarity(one, other)


def twins(n, generator):
    return torch.randn(n, 9, generator=generator), torch.randn(n, 9, generator=generator)


class GraphNet(nn.Module):
    """Means over each node's neighbors: edges are pairs of nodes."""

    def __init__(self):
        super().__init__()
        self.own, self.near, self.head = nn.Linear(5, 12), nn.Linear(5, 12), nn.Linear(12, 3)

    def forward(self, nodes, edges):
        start, end = edges[:, 0], edges[:, 1]
        sums = torch.zeros_like(nodes).index_add(0, end, nodes[start])
        count = torch.zeros_like(nodes[:, 0]).scatter_add(0, end, torch.ones_like(end, dtype=nodes.dtype)).clamp(min=1)
        return self.head(F.elu(self.own(nodes) + self.near(sums / count[:, None])))


def graphs(n, generator):
    return torch.randn(n, 5, generator=generator), torch.randint(n, (2 * n + 1, 2), generator=generator)


# What does not go all the way


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class CustomFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.outer(Sign.apply(self.inner(x)))


class CustomOp(nn.Module):
    """An operator that only the Python which defines it has."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)
        if not hasattr(torch.ops.zoo, "twice"):
            twice = torch.library.custom_op("zoo::twice", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
            twice.register_fake(torch.empty_like)
            twice.register_autograd(lambda ctx, gradient: gradient * 2)

    def forward(self, x):
        return torch.ops.zoo.twice(self.layer(x))


TWO_SIZES = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)

ZOO = {
    "mlp": Model(mlp, vectors(20)),
    "float64": Model(float64, doubles),
    "multi_io": Model(MultiIo, sides),
    "tied": Model(Tied, tokens(40, 7)),
    "frozen": Model(Frozen, vectors(10)),
    "buffers": Model(Buffers, vectors(6)),
    "shapes": Model(Shapes, vectors(5, 12)),
    "nonzero": Model(Nonzero, vectors(4)),
    "cond": Model(Cond, vectors(6)),
    "autocast": Model(Autocast, vectors(16)),
    "checkpointed": Model(Checkpointed, vectors(8)),
    "weight_norm": Model(weight_norm, vectors(8)),
    "spectral_norm": Model(spectral_norm, vectors(8), twin="it turns its vectors in training alone"),
    "train_flag": Model(TrainFlag, vectors(4), twin="it asks self.training"),
    "own_noise": Model(OwnNoise, vectors(4), twin="it asks self.training", draws=True),
    "einsum_norms": Model(EinsumNorms, vectors(8)),
    "simple_cnn": Model(SimpleCnn, images(1, 28)),
    "cnn_bn_dropout": Model(cnn_bn_dropout, images(3, 12)),
    "joined": Model(Joined, images(1, 16)),
    "instance_rrelu": Model(instance_rrelu, images(3, 8)),
    "resnet18": Model(resnet18, images(3, 32), needs="torchvision"),
    "vit": Model(vit, images(3, 32), needs="torchvision"),
    "unet": Model(UNet, images(1, 16)),
    "lstm": Model(lambda: Recurrent(nn.LSTM), tokens(50, 4)),
    "transformer_encoder": Model(TransformerEncoder, tokens(60, 10)),
    "padded_encoder": Model(PaddedEncoder, padded),
    "mha": Model(Mha, vectors(7, 16)),
    "sdpa": Model(Sdpa, texts_of_two_lengths, shapes=TWO_SIZES),
    "llama": Model(Llama, tokens(50, 8)),
    "bert": Model(Bert, masked_words, needs="transformers"),
    "embeddings": Model(Embeddings, tokens(80, 6)),
    "siamese": Model(Siamese, twins),
    "graph_net": Model(GraphNet, graphs),
}

LOSES = {
    "custom_function": Model(CustomFunction, vectors(4), module="export leaves out a Function's own backward"),
}

REFUSED = {
    "custom_op": Model(CustomOp, vectors(4)),
}
