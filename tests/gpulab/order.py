"""What a pretended GPU does apart from numbers: order between streams, capture, random draws, devices, refusals.

Each check is a function; with LAB_STRICT=1 and LAB_DELAY_MS=5 those of `strict` are run as well.
"""
import os
import sys
import traceback

import torch
import torch.nn as nn

torch.set_num_threads(1)
STRICT = os.environ.get("LAB_STRICT") == "1"
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def strict(function):
    if STRICT:
        CHECKS.append(function)
    return function


def raises(part, call):
    try:
        call()
    except Exception as error:
        assert part in str(error), f"{part!r} is not in {error}"
        return str(error)
    raise AssertionError(f"nothing raised, expected {part!r}")


def refused_in_capture(call):
    graph = torch.cuda.CUDAGraph()
    def capture():
        with torch.cuda.graph(graph):
            call()
    try:
        capture()
    except Exception as error:
        text = str(error) + str(error.__context__)
        assert "captur" in text, text
        torch.cuda.synchronize()
        assert (torch.ones(3, device="cuda") * 2).sum().item() == 6
        return
    raise AssertionError("was captured")


# --- order
@strict
def another_stream_without_a_wait_reads_poison():
    side = torch.cuda.Stream()
    a = torch.ones(1000, device="cuda"); torch.cuda.synchronize()
    with torch.cuda.stream(side):
        b = a * 5
    got = (b * 1).sum()
    assert got.isnan().item()
    torch.cuda.synchronize()
    torch.cuda.current_stream().wait_stream(side)
    assert (b * 1).sum().item() == 5000


@strict
def with_a_wait_reads_what_was_written():
    side = torch.cuda.Stream()
    a = torch.ones(1000, device="cuda"); torch.cuda.synchronize()
    with torch.cuda.stream(side):
        b = a * 5
    torch.cuda.current_stream().wait_stream(side)
    assert (b * 1).sum().item() == 5000


@strict
def an_in_place_write_is_late():
    side = torch.cuda.Stream()
    a = torch.ones(1000, device="cuda"); torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a.mul_(5)
    assert (a * 1)[0].item() == 1
    torch.cuda.synchronize()
    assert (a * 1)[0].item() == 5


def reused(recorded):
    main, side = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(main):
        x = torch.full((100000,), 3.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y = x * 2
    if recorded:
        x.record_stream(side)
    place = x.data_ptr(); del x
    with torch.cuda.stream(main):
        z = torch.zeros(100000, device="cuda")
    torch.cuda.synchronize()
    return z.data_ptr() == place, y.sum().item(), z.sum().item()


@strict
def memory_that_is_reused_too_early_is_seen():
    same, y, z = reused(recorded=False)
    assert same and z == 0 and y != 600000, (same, y, z)


@strict
def recorded_memory_is_not_reused():
    same, y, z = reused(recorded=True)
    assert not same and z == 0 and y == 600000, (same, y, z)


@strict
def pinned_copies_are_late():
    p = torch.zeros(4).pin_memory()
    x = torch.ones(4, device="cuda")
    p.copy_(x, non_blocking=True)
    assert p.tolist() == [0] * 4
    torch.cuda.synchronize()
    assert p.tolist() == [1] * 4
    y = torch.zeros(4, device="cuda"); y.copy_(p, non_blocking=True); p.fill_(7)
    assert y.tolist() == [7] * 4   # overwritten too early


@check
def pageable_copies_are_staged():
    src = torch.ones(4); y = torch.zeros(4, device="cuda"); y.copy_(src, non_blocking=True); src.fill_(7)
    assert y.tolist() == [1] * 4


# --- capture
@check
def a_capture_changes_nothing_and_replays_read_afresh():
    a, b = torch.ones(5, device="cuda"), torch.zeros(5, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        b.add_(a)
        c = b * 2
    assert b.sum().item() == 0
    place = c.data_ptr()
    g.replay(); assert c.tolist() == [2] * 5
    a.fill_(3); g.replay(); assert c.tolist() == [8] * 5 and c.data_ptr() == place


@check
def random_draws_go_on_in_replays_as_they_would_eagerly():
    torch.cuda.manual_seed(5)
    eager = [torch.cat([torch.rand(3, device="cuda"), torch.randn(2, device="cuda")]) for _ in range(3)]
    after = torch.cuda.default_generators[0].get_offset()
    torch.cuda.manual_seed(5)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        r = torch.cat([torch.rand(3, device="cuda"), torch.randn(2, device="cuda")])
    torch.cuda.manual_seed(5)
    for expected in eager:
        g.replay()
        assert torch.equal(r, expected)
    assert torch.cuda.default_generators[0].get_offset() == after
    assert not torch.equal(eager[0], eager[1])


@check
def dropout_is_drawn_again():
    torch.manual_seed(1)
    d, x = nn.Dropout(0.5), torch.ones(200, device="cuda", requires_grad=True)
    a = d(x); b = d(x); assert not torch.equal(a, b)
    torch.manual_seed(1); assert torch.equal(d(x), a)
    a.sum().backward(); assert torch.equal(x.grad, a.detach())
    state = torch.cuda.get_rng_state(); c = d(x); torch.cuda.set_rng_state(state); assert torch.equal(c, d(x))
    gen = torch.Generator("cuda").manual_seed(3)
    one = torch.randperm(9, device="cuda", generator=gen); gen.manual_seed(3)
    assert torch.equal(one, torch.randperm(9, device="cuda", generator=gen))
    m = torch.multinomial(torch.ones(8, device="cuda"), 4); assert len(set(m.tolist())) == 4
    for kind in ("normal_", "exponential_", "geometric_", "cauchy_", "log_normal_", "bernoulli_", "random_"):
        t = torch.empty(50, device="cuda"); getattr(t, kind)(*([0.4] if kind == "geometric_" else [])); assert t.isfinite().all()


@check
def what_waits_for_the_host_is_not_captured():
    x = torch.ones(4, device="cuda")
    i = torch.tensor([0, 1])
    pinned = torch.ones(4).pin_memory()
    for call in (lambda: x.sum().item(), lambda: x.nonzero(), lambda: x[x > 0], lambda: torch.equal(x, x), lambda: x.cpu(),
                 lambda: x.masked_select(x > 0), lambda: x[i], lambda: x.unique(), lambda: torch.ones(4).to("cuda"),
                 lambda: x.copy_(pinned), lambda: torch.cuda.synchronize(), lambda: torch.bincount(x.long())):
        refused_in_capture(call)


@check
def a_pinned_copy_is_captured():
    p = torch.ones(4).pin_memory(); x = torch.zeros(4, device="cuda"); q = torch.zeros(4).pin_memory()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.copy_(p, non_blocking=True); y = x * 2; q.copy_(y, non_blocking=True)
    assert x.tolist() == [0] * 4 and q.tolist() == [0] * 4
    p.fill_(4); g.replay(); torch.cuda.synchronize()
    assert y.tolist() == [8] * 4 and q.tolist() == [8] * 4


@check
def graphs_with_amp_and_grad_scaler():
    net = nn.Linear(4, 4).cuda(); opt = torch.optim.SGD(net.parameters(), 0.1); scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    x = torch.ones(2, 4, device="cuda")
    before = net.weight.detach().clone()
    with torch.autocast("cuda", torch.float16):
        out = net(x)
    assert out.dtype == torch.float16
    scaler.scale(out.float().sum()).backward(); scaler.unscale_(opt); assert net.weight.grad.max().item() == 2.0
    scaler.step(opt); scaler.update()
    torch.testing.assert_close(net.weight, before - 0.2)
    net.weight.grad.fill_(float("inf")); scaler.scale(net(x).sum()).backward(); scaler.step(opt); scaler.update()
    assert scaler.get_scale() == 4.0
    torch.testing.assert_close(net.weight, before - 0.2)


# --- half precision
@check
def autocast_computes_in_half():
    torch.manual_seed(0)
    for kind in (torch.bfloat16, torch.float16):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8),
                            nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 2)).cuda()
        x = torch.randn(2, 3, 8, 8, device="cuda", requires_grad=True)
        with torch.autocast("cuda", kind):
            loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1], device="cuda"))
        loss.backward(); assert loss.isfinite().item() and x.grad.isfinite().all().item()
        for module, shape in ((nn.LSTM(4, 5), (3, 2, 4)), (nn.GRU(4, 5), (3, 2, 4)), (nn.ConvTranspose2d(4, 2, 3), (1, 4, 5, 5)),
                              (nn.MultiheadAttention(4, 2), (3, 2, 4)), (nn.RMSNorm(4), (3, 2, 4)), (nn.Conv1d(2, 3, 2), (3, 2, 4)),
                              (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)), (nn.AvgPool2d(2), (1, 2, 4, 4)), (nn.Softmax(-1), (2, 4)),
                              (nn.GroupNorm(2, 4), (2, 4, 3)), (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 4, 4)),
                              (nn.TransformerEncoderLayer(4, 2, 8), (3, 2, 4))):
            module = module.to("cuda", kind); y = torch.randn(shape, device="cuda", dtype=kind, requires_grad=True)
            out = module(y, y, y)[0] if isinstance(module, nn.MultiheadAttention) else module(y)
            out = out[0] if isinstance(out, tuple) else out
            assert out.dtype == kind
            out.float().square().sum().backward(); assert y.grad.isfinite().all().item()
            wide = module.float().cpu(); z = y.detach().float().cpu()
            if not isinstance(module, (nn.TransformerEncoderLayer,)):
                again = wide(z, z, z)[0] if isinstance(module, nn.MultiheadAttention) else wide(z)
                again = again[0] if isinstance(again, tuple) else again
                torch.testing.assert_close(out.float().cpu(), again, rtol=3e-2, atol=3e-2)
        a, b = torch.randn(3, 4, device="cuda", dtype=kind), torch.randn(4, 5, device="cuda", dtype=kind)
        torch.testing.assert_close(torch.mm(a, b, out_dtype=torch.float32), a.float() @ b.float())
        for op in (torch.cumsum, torch.sort, torch.topk, torch.logsumexp, torch.linalg.vector_norm, torch.cdist, torch.histc,
                   torch.erfinv, torch.linalg.norm, torch.median, torch.mode, torch.cumprod, torch.logcumsumexp):
            try:
                {torch.topk: lambda: op(a, 2), torch.cdist: lambda: op(a, a), torch.cumsum: lambda: op(a, 0), torch.cumprod: lambda: op(a, 0),
                 torch.logcumsumexp: lambda: op(a, 0), torch.logsumexp: lambda: op(a, 0)}.get(op, lambda: op(a))()
            except Exception as error:
                print("   half:", op.__name__, kind, str(error)[:120])


# --- devices and kinds of tensors
@check
def devices_are_not_mixed():
    a, b = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
    raises("same device", lambda: a + b); raises("same device", lambda: a + torch.ones(3)); raises("same device", lambda: a.add_(torch.ones(3)))
    raises("", lambda: torch.ones(3)[torch.tensor([0], device="cuda")])
    assert (a + torch.tensor(2.0)).tolist() == [3] * 3 and (a * torch.tensor(2, dtype=torch.int64)).dtype == torch.float32
    assert a[torch.tensor([0, 2])].tolist() == [1, 1]
    a[torch.tensor([1])] = 5.0; assert a.tolist() == [1, 5, 1]
    a.index_put_((torch.tensor([0]),), torch.tensor(9.0)); assert a.tolist() == [9, 5, 1]
    assert a.to("cuda:1").device.index == 1 and (a.to("cuda:1") + b).tolist() == [10, 6, 2]
    with torch.cuda.device(1):
        assert torch.ones(2, device="cuda").device.index == 1
    assert (a.to("cuda:1", dtype=torch.float64, non_blocking=True) * 2).tolist() == [18, 10, 2]
    raises("Expected a 'cuda' device type", lambda: torch.rand(2, device="cuda", generator=torch.Generator()))
    c = torch.randn(2, 3, device="cuda", dtype=torch.complex64)
    assert torch.equal(c.conj().resolve_conj().cpu(), c.cpu().conj()) and torch.equal(c.conj().cpu(), c.cpu().conj())
    assert torch.equal(c.conj().imag.cpu(), c.cpu().conj().imag) and torch.equal((c.H @ c).cpu(), c.cpu().H @ c.cpu())
    f = torch.randn(2, 3, 4, 5, device="cuda").to(memory_format=torch.channels_last)
    assert f.relu().is_contiguous(memory_format=torch.channels_last) and f.cpu().is_contiguous(memory_format=torch.channels_last)
    t = torch.randn(4, 6, device="cuda")[:, ::2].t(); u = t.cpu()
    assert torch.equal((t * 2 + t.exp()).cpu(), u * 2 + u.exp())
    o = torch.empty(0, device="cuda"); torch.add(t, 1, out=o); assert torch.equal(o.cpu(), u + 1)
    o = torch.empty(2, device="cuda"); torch.add(t, 1, out=o); assert torch.equal(o.cpu(), u + 1); del o
    n = torch.empty(0, dtype=torch.long, device="cuda"); torch.nonzero(t > 0, out=n); assert torch.equal(n.cpu(), (u > 0).nonzero())
    q = torch.zeros(3, device="cuda"); q[1:].add_(1); q.view(3, 1)[0] += 4; assert q.tolist() == [4, 1, 1]
    torch._foreach_copy_([q], [torch.arange(3.0)]); assert q.tolist() == [0, 1, 2]
    e = torch.ones(3, 1, device="cuda").expand(3, 4); assert (e + 1).sum().item() == 24
    w = q.chunk(3); torch._foreach_add_(list(w), 1); assert q.tolist() == [1, 2, 3]
    assert torch.cat([q, q]).numel() == 6 and torch.stack([q, q]).sum().item() == 12
    raises("negative", lambda: torch.empty(-1, device="cuda"))
    with torch.inference_mode():
        k = torch.ones(3, device="cuda"); k.add_(1); assert k.sum().item() == 6
    v = nn.utils.parameters_to_vector([q, q]); assert v.is_cuda
    s = torch.utils.checkpoint.checkpoint(lambda z: (z * z).sum(), q.requires_grad_(), use_reentrant=False) if hasattr(torch.utils, "checkpoint") else None
    assert torch.vmap(lambda z: z * 2)(t).shape == t.shape
    assert torch.func.grad(lambda z: (z ** 3).sum())(t).shape == t.shape


@check
def what_is_not_imitated_says_so():
    text = raises("", lambda: torch.ops.aten._cudnn_init_dropout_state(0.5, True, 1, dtype=torch.uint8, device="cuda"))
    assert "_cudnn_init_dropout_state" in text, text
    raises("", lambda: nn.Embedding(5, 2, sparse=True).cuda()(torch.tensor([1], device="cuda")).sum().backward() or 1 / 0)


@check
def sync_debug_mode_tells_of_waits():
    x = torch.ones(3, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = x * 2 + 1
        raises("synchroniz", lambda: y.sum().item()); raises("synchroniz", lambda: x[x > 0]); raises("synchroniz", lambda: x.cpu())
    finally:
        torch.cuda.set_sync_debug_mode(0)


@check
def deterministic_mode_works():
    torch.use_deterministic_algorithms(True)
    try:
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)).cuda()
        nn.functional.cross_entropy(net(torch.randn(2, 1, 8, 8, device="cuda")), torch.tensor([0, 1], device="cuda")).backward()
        e = nn.Embedding(5, 3).cuda(); e(torch.tensor([1, 1, 2], device="cuda")).sum().backward()
        assert torch.empty(4, device="cuda").isnan().all().item()
        nn.LSTM(3, 4).cuda()(torch.randn(2, 2, 3, device="cuda"))[0].sum().backward()
        x = torch.zeros(4, device="cuda"); x.index_put_((torch.tensor([1, 1], device="cuda"),), torch.ones(2, device="cuda"), accumulate=True)
        assert x.tolist() == [0, 2, 0, 0]
    finally:
        torch.use_deterministic_algorithms(False)


@check
def sync_batch_norm_by_formula():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 5); w, b = torch.rand(3), torch.rand(3)
    X, W, B = x.cuda(), w.cuda(), b.cuda()
    mean, invstd = torch.batch_norm_stats(X, 1e-5)
    rm, rv = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
    m, i = torch.batch_norm_gather_stats_with_counts(X, mean[None], invstd[None], rm, rv, 0.1, 1e-5, torch.tensor([100.0], device="cuda"))
    out = torch.batch_norm_elemt(X, W, B, m, i, 1e-5)
    ref_m, ref_v = torch.zeros(3), torch.ones(3)
    xr = x.clone().requires_grad_(); wr = w.clone().requires_grad_(); br = b.clone().requires_grad_()
    ref = nn.functional.batch_norm(xr, ref_m, ref_v, wr, br, True, 0.1, 1e-5)
    torch.testing.assert_close(out.cpu(), ref.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rm.cpu(), ref_m); torch.testing.assert_close(rv.cpu(), ref_v)
    g = torch.randn_like(x); ref.backward(g); G = g.cuda()
    sdy, sdyx, gw, gb = torch.batch_norm_backward_reduce(G, X, m, i, W, True, True, True)
    gx = torch.batch_norm_backward_elemt(G, X, m, i, W, sdy, sdyx, torch.tensor([100], dtype=torch.int32, device="cuda"))
    for a, e in ((gx, xr.grad), (gw, wr.grad), (gb, br.grad)): torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5)


failed = 0
for one in CHECKS:
    if sys.argv[1:] and not any(part in one.__name__ for part in sys.argv[1:]): continue
    try:
        one(); print("ok    ", one.__name__, flush=True)
    except Exception as error:
        failed += 1
        print("FAILED", one.__name__, str(error)[:600], flush=True)
        if os.environ.get("TRACE"): traceback.print_exc()
        try: torch.cuda.synchronize()
        except Exception as e: print("   device:", e)
print("failed:", failed)
sys.exit(failed)
