"""The models of ``python -m bench.inductor``: functions with their inputs, small enough to compile in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["TRAINED", "Model", "image_operators", "models"]

Model = tuple[Callable[..., Any], tuple[Any, ...]]

# The names of the models that compute gradients.
TRAINED = frozenset({"training step", "dropout, trained"})

randn = torch.randn


# ---- Single operators and norms ----


def _rms_norm(x: Any, weight: Any) -> Any:
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * weight


def _operators() -> dict[str, Callable[[], Model]]:
    square = (1024, 1024)

    def cross_entropy() -> Model:
        return functional.cross_entropy, (randn(512, 4000), torch.randint(0, 4000, (512,)))

    def embedding() -> Model:
        return lambda i, w: functional.embedding(i, w) * 2.0, (torch.randint(0, 5000, (64, 128)), randn(5000, 128))

    def index_add() -> Model:
        given = torch.zeros(1000, 64), torch.randint(0, 1000, (4096,)), randn(4096, 64)
        return lambda x, i, s: x.index_add(0, i, s), given

    def layer_norm() -> Model:
        return lambda x, w, b: functional.layer_norm(x, (1024,), w, b), (randn(1024, 1024), randn(1024), randn(1024))

    return {
        "pointwise": lambda: (
            lambda x, y: torch.sigmoid(x) * y + torch.tanh(x) * 0.5,
            (randn(512, 1024), randn(512, 1024)),
        ),
        "gelu and bias": lambda: (lambda x, b: functional.gelu(x + b), (randn(square), randn(1024))),
        "softmax": lambda: (lambda x: torch.softmax(x, -1), (randn(1024, 1000),)),
        "layer norm": layer_norm,
        "rms norm, bf16": lambda: (_rms_norm, (randn(square).bfloat16(), randn(1024).bfloat16())),
        "sum over rows": lambda: (lambda x: x.sum(0), (randn(2048, 1024),)),
        "argmax": lambda: (lambda x: x.argmax(-1), (randn(1024, 1000),)),
        "cumsum": lambda: (lambda x: x.cumsum(-1), (randn(512, 1000),)),
        "transpose and add": lambda: (lambda x, y: x.t() + y, (randn(square), randn(square))),
        "cross entropy": cross_entropy,
        "dropout": lambda: (lambda x: functional.dropout(x, 0.1, training=True) * 2, (randn(square),)),
        "embedding": embedding,
        "index_add": index_add,
    }


# ---- Layers ----


def _mlp() -> Model:
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).eval(), (randn(128, 512),)


def _transformer() -> Model:
    return nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True), (randn(4, 128, 256),)


def _conv_block() -> Model:
    layers = [
        layer for width in (16, 32) for layer in (nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
    ]
    return nn.Sequential(*layers).eval(), (randn(4, 16, 56, 56),)


def _training() -> Model:
    net = nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.ReLU(), nn.Linear(512, 10))
    labels = torch.randint(0, 10, (128,))

    def step(x: Any) -> Any:
        net.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(net(x), labels)
        loss.backward()
        return loss

    return step, (randn(128, 256),)


# ---- Vision ----


def _resnet() -> Model:
    first, second = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.Conv2d(32, 32, 3, padding=1, bias=False)
    norms = nn.BatchNorm2d(32).eval(), nn.BatchNorm2d(32).eval()

    def block(x: Any) -> Any:
        y = functional.relu(norms[0](first(x)))
        y = functional.relu(norms[1](second(y)) + x)
        return functional.adaptive_avg_pool2d(functional.max_pool2d(y, 2), 1).flatten(1)

    return block, (randn(4, 32, 28, 28),)


def _vit() -> Model:
    patches = nn.Conv2d(3, 192, 16, stride=16)
    token, places = randn(1, 1, 192), randn(1, 50, 192)
    layer = nn.TransformerEncoderLayer(192, 3, 768, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    head = nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 100))

    def forward(x: Any) -> Any:
        rows = patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([token.expand(x.shape[0], -1, -1), rows], 1) + places
        return head(layer(rows)[:, 0])

    return forward, (randn(4, 3, 112, 112),)


def _unet() -> Model:
    down, up = nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.Conv2d(48, 16, 3, padding=1)
    norms = nn.GroupNorm(8, 32), nn.GroupNorm(8, 16)

    def block(x: Any) -> Any:
        low = functional.silu(norms[0](down(x)))
        wide = functional.interpolate(low, scale_factor=2.0, mode="nearest")
        return functional.silu(norms[1](up(torch.cat([wide, x], 1)))) + x

    return block, (randn(2, 16, 48, 48),)


# ---- Sequences ----


def _lstm() -> Model:
    steps, hidden = 12, 128
    enter, recur = nn.Linear(64, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)

    def scan(x: Any) -> Any:
        state, cell = x.new_zeros(x.shape[1], hidden), x.new_zeros(x.shape[1], hidden)
        for step in range(steps):
            i, f, g, o = (enter(x[step]) + recur(state)).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
        return state

    return scan, (randn(steps, 32, 64),)


def _mamba() -> Model:
    """A selective scan that runs step by step; its state has 16 elements for each channel."""
    steps, channels, states = 16, 256, 16
    rates, skip = -torch.exp(randn(channels, states)), randn(channels)

    def scan(x: Any, delta: Any, b: Any, c: Any) -> Any:
        delta = functional.softplus(delta)
        state = x.new_zeros(x.shape[0], channels, states)
        rows: list[Any] = []
        for step in range(steps):
            rate = delta[:, step, :, None]
            state = torch.exp(rate * rates) * state + rate * b[:, step, None, :] * x[:, step, :, None]
            rows.append((state * c[:, step, None, :]).sum(-1))
        return torch.stack(rows, 1) + x * skip

    shape = (4, steps, channels)
    return scan, (randn(shape), randn(shape), randn(4, steps, states), randn(4, steps, states))


def _decoder() -> Model:
    """One token of four sequences: its keys and values go into a cache, and attention reads 256 places of the cache."""
    heads, width, length = 8, 512, 256
    norm, qkv, out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def step(x: Any, keys: Any, values: Any, place: Any) -> Any:
        q, k, v = qkv(norm(x)).view(x.shape[0], 3, heads, width // heads).unbind(1)
        keys, values = keys.index_copy(2, place, k[:, :, None]), values.index_copy(2, place, v[:, :, None])
        scores = (q[:, :, None] * keys).sum(-1) / math.sqrt(width // heads)
        scores = scores.masked_fill(torch.arange(length) > place, -math.inf)
        return x + out((torch.softmax(scores, -1)[..., None] * values).sum(2).reshape(x.shape))

    cache = (4, heads, length, width // heads)
    return step, (randn(4, width), randn(cache), randn(cache), torch.tensor([200]))


def _rope() -> Model:
    angles = torch.arange(256)[:, None] / 10000 ** (torch.arange(32) / 32)
    cos, sin = angles.cos(), angles.sin()

    def rotate(q: Any, k: Any) -> Any:
        def turned(x: Any) -> Any:
            left, right = x.chunk(2, -1)
            return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

        return turned(q) * turned(k)

    return rotate, (randn(2, 8, 256, 64), randn(2, 8, 256, 64))


# ---- Tables and graphs ----


def _dlrm() -> Model:
    tables = [randn(2000, 32) for _ in range(6)]
    bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    top = nn.Sequential(nn.Linear(32 + 21, 64), nn.ReLU(), nn.Linear(64, 1))
    rows, columns = torch.tril_indices(7, 7, -1)

    def forward(dense: Any, places: Any) -> Any:
        x = bottom(dense)
        all_ = torch.stack([x, *(functional.embedding(places[i], table).sum(1) for i, table in enumerate(tables))], 1)
        pairs = (all_ @ all_.transpose(1, 2))[:, rows, columns]
        return torch.sigmoid(top(torch.cat([x, pairs], 1)))

    return forward, (randn(256, 13), torch.randint(0, 2000, (6, 256, 4)))


def _gnn() -> Model:
    nodes, edges, width = 1000, 6000, 64
    weight = nn.Linear(width, width)

    def layer(x: Any, source: Any, target: Any) -> Any:
        messages = functional.relu(weight(x))[source]
        sums = torch.zeros_like(x).index_add(0, target, messages)
        counts = torch.zeros(nodes).index_add(0, target, torch.ones(edges)).clamp(min=1)
        return functional.relu(sums / counts[:, None] + x)

    return layer, (randn(nodes, width), torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,)))


# ---- Training ----


def _norms() -> Model:
    group, batch = nn.GroupNorm(8, 64), nn.BatchNorm2d(64)  # its weights are used in training mode
    weight = randn(64)

    def forward(x: Any) -> Any:
        y = functional.silu(group(x)) + functional.batch_norm(x, None, None, batch.weight, batch.bias, training=True)
        return _rms_norm(y.permute(0, 2, 3, 1), weight)

    return forward, (randn(4, 64, 32, 32),)


def _adam() -> Model:
    def step(weights: Any, grads: Any, means: Any, squares: Any) -> Any:
        made = []
        for weight, grad, mean, square in zip(weights, grads, means, squares, strict=True):
            mean, square = mean.lerp(grad, 0.1), square * 0.999 + grad * grad * 0.001  # noqa: PLW2901
            made += [weight * 0.9999 - 1e-3 * (mean / 0.1) / ((square / 0.001).sqrt() + 1e-8), mean, square]
        return torch.cat([one.flatten() for one in made])

    shapes = ((256, 256), (256,), (512, 256), (512,))
    given = [[randn(shape) for shape in shapes] for _ in range(3)]
    return step, (*given, [randn(shape).abs() for shape in shapes])


def _dropout() -> Model:
    norm = nn.LayerNorm(512)

    def step(x: Any, branch: Any) -> Any:
        made = norm(x + functional.dropout(branch, 0.1, training=True))
        (gradient,) = torch.autograd.grad(made.square().mean(), branch)
        return gradient

    return step, (randn(256, 512), randn(256, 512).requires_grad_())


# ---- Quantized products ----


def _int8() -> Model:
    """A quantized product: each row is quantized by its own scale at run time, the weight has a scale a column."""
    weight, scales = torch.randint(-127, 128, (512, 512), dtype=torch.int8), torch.rand(512) / 64

    def product(x: Any) -> Any:
        scale = x.abs().amax(-1, keepdim=True) / 127
        rounded = torch.round(x / scale).clamp(-127, 127).to(torch.int8)
        return torch._int_mm(rounded, weight).float() * scale * scales  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]  # torch's only int8 product

    return product, (randn(64, 512),)


def _int4() -> Model:
    """A product whose weight has two 4-bit values in a byte, in groups of 64 with a scale and a zero point."""
    packed = torch.randint(0, 256, (512, 256), dtype=torch.uint8)
    scales, zeros = torch.rand(512, 8, 1) / 8, torch.randint(0, 16, (512, 8, 1)).float()

    def product(x: Any) -> Any:
        nibbles = torch.stack([packed & 15, packed >> 4], -1).view(512, 8, 64)
        return x @ ((nibbles.float() - zeros) * scales).view(512, 512).t()

    return product, (randn(16, 512),)


# ---- Choosing among a row ----


def _topk() -> Model:
    """Sampling a token: from the 50 likeliest tokens, those that have 90 % of the probability."""

    def sample(logits: Any, chance: Any) -> Any:
        kept, places = torch.topk(logits / 0.8, 50)
        chances = torch.softmax(kept, -1)
        sums = chances.cumsum(-1)
        chances = torch.where(sums - chances > 0.9, 0.0, chances)
        chances = chances / chances.sum(-1, keepdim=True)
        drawn = (chances.cumsum(-1) < chance).sum(-1, keepdim=True).clamp(max=49)
        return places.gather(-1, drawn)

    return sample, (randn(16, 8000), torch.rand(16, 1))


def _kthvalue() -> Model:
    return lambda x: x - torch.kthvalue(x * 2, 20, -1, keepdim=True).values, (randn(256, 300),)


def _median() -> Model:
    def spread(x: Any) -> Any:
        apart = (x - x.median(-1, keepdim=True).values).abs()
        return apart / (apart.median(-1, keepdim=True).values + 1e-6)

    return spread, (randn(256, 257),)


def models() -> dict[str, Callable[[], Model]]:
    """Return the functions that make a model and its inputs, by name."""
    return {
        **_operators(),
        "mlp": _mlp,
        "transformer layer": _transformer,
        "conv block": _conv_block,
        "training step": _training,
        "resnet block": _resnet,
        "vit": _vit,
        "unet block": _unet,
        "lstm": _lstm,
        "mamba": _mamba,
        "decoder with cache": _decoder,
        "rope": _rope,
        "dlrm": _dlrm,
        "gnn": _gnn,
        "norms": _norms,
        "adam": _adam,
        "dropout, trained": _dropout,
        "int8 product": _int8,
        "int4 product": _int4,
        "top-k sampling": _topk,
        "kthvalue": _kthvalue,
        "median": _median,
    }


def image_operators() -> dict[str, Callable[[], Model]]:
    """Return operators on pictures whose rows have 7 to 56 elements, by name."""

    def attention_windows(x: Any) -> Any:
        return x.view(4, 4, 7, 4, 7, 96).permute(0, 1, 3, 2, 4, 5).contiguous() * 2

    def heads(x: Any) -> Any:
        return x.view(8, 50, 3, 3, 64).permute(2, 0, 3, 1, 4).contiguous() * 2

    def scaled(x: Any, weight: Any, bias: Any) -> Any:
        return (x * weight[:, None, None] + bias[:, None, None]).relu()

    def of(operator: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Model]:
        return lambda: (operator, tuple(randn(shape) for shape in shapes))

    pool, grow, pad = functional.max_pool2d, functional.interpolate, functional.pad
    return {
        "max pool, 7": of(lambda x: pool(x, 2) + 1, (16, 64, 14, 14)),
        "max pool, 14": of(lambda x: pool(x, 2) * 2, (8, 64, 28, 28)),
        "max pool of 3, 28": of(lambda x: pool(x, 3, 2, 1) * 2, (4, 32, 56, 56)),
        "average pool": of(lambda x: functional.avg_pool2d(x, 2) * 2, (8, 64, 28, 28)),
        "average pool of 3": of(lambda x: functional.avg_pool2d(x, 3, 1, 1) * 2, (4, 64, 28, 28)),
        "means of pictures": of(lambda x: x.relu().mean((2, 3)), (16, 512, 7, 7)),
        "max pool, means, 7": of(lambda x: pool(x, 2).mean((2, 3)), (8, 128, 14, 14)),
        "max pool, means, 14": of(lambda x: pool(x, 2).mean((2, 3)), (4, 128, 28, 28)),
        "nearest": of(lambda x: grow(x, scale_factor=2) + 1, (4, 32, 28, 28)),
        "bilinear": of(lambda x: grow(x, scale_factor=2, mode="bilinear") + 1, (4, 16, 28, 28)),
        "pixel shuffle": of(lambda x: functional.pixel_shuffle(x, 2) * 2, (4, 64, 28, 28)),
        "pixel unshuffle": of(lambda x: functional.pixel_unshuffle(x, 2) * 2, (4, 16, 56, 56)),
        "scale and bias, 28": of(scaled, (8, 64, 28, 28), (64,), (64,)),
        "scale and bias, 7": of(scaled, (16, 256, 7, 7), (256,), (256,)),
        "batch norm": of(lambda x: functional.batch_norm(x, None, None, training=True), (8, 64, 28, 28)),
        "group norm": of(lambda x, w, b: functional.group_norm(x, 8, w, b), (8, 64, 14, 14), (64,), (64,)),
        "pad": of(lambda x: pad(x, (1, 1, 1, 1)) * 2, (4, 64, 28, 28)),
        "reflecting pad": of(lambda x: pad(x, (1, 1, 1, 1), mode="reflect") * 2, (4, 64, 28, 28)),
        "windows": of(attention_windows, (4, 28, 28, 96)),
        "heads": of(heads, (8, 50, 576)),
        "glu": of(lambda x: functional.glu(x, 1) * 2, (8, 64, 28, 28)),
        "unfold": of(lambda x: functional.unfold(x, 3, padding=1) * 2, (2, 16, 28, 28)),
        "sums of channels": of(lambda x: (x * x).sum(1), (32, 64, 49)),
        "variances": of(lambda x: torch.var_mean(x, (0, 2, 3))[0], (8, 64, 14, 14)),
        "every second": of(lambda x: x[:, :, ::2, ::2] * 2 + x[:, :, 1::2, 1::2], (8, 64, 28, 28)),
        "joined channels": of(lambda x, y: torch.cat([x, y], 1) * 2, (8, 32, 14, 14), (8, 32, 14, 14)),
        "channels last": of(lambda x: x.permute(0, 2, 3, 1).contiguous() * 2, (8, 64, 14, 14)),
    }
