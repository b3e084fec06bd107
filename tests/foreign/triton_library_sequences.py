"""Linear attention and what stands beside it, of flash-linear-attention; see `triton_libraries`."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .triton_libraries import R, case, grads, module


def fq(B=1, T=128, H=2, D=32):
    return [R(B, T, H, D) * 0.3 for _ in range(3)]


@case
def fla_chunk_linear_attn():
    chunk_linear_attn = module("fla.ops.linear_attn").chunk_linear_attn
    q, k, v = fq()

    def ref(q, k, v):
        a = torch.einsum("bthd,bshd->bhts", q, k) * 32**-0.5
        return torch.einsum("bhts,bshd->bthd", a.tril(), v)

    return grads(lambda q, k, v: chunk_linear_attn(q, k, v, normalize=False)[0], q, k, v), grads(ref, q, k, v)


@case
def fla_chunk_retention():
    chunk_retention = module("fla.ops.retention").chunk_retention
    q, k, v = fq()

    def ref(q, k, v):
        g = torch.log2(1 - 2.0 ** (-5 - torch.arange(2).float()))
        n = torch.arange(128)
        d = torch.exp2((n[:, None] - n[None]) * g[:, None, None]).tril()
        return torch.einsum("bhts,bshd->bthd", torch.einsum("bthd,bshd->bhts", q, k) * 32**-0.5 * d, v)

    return grads(lambda q, k, v: chunk_retention(q, k, v)[0], q, k, v), grads(ref, q, k, v)


def gla_ref(q, k, v, g):
    B, T, H, D = q.shape
    h = torch.zeros(B, H, D, D)
    o = []
    for t in range(T):
        h = h * g[:, t].exp()[..., None] + k[:, t][..., None] * v[:, t][..., None, :]
        o.append((q[:, t][..., None] * h).sum(-2) * D**-0.5)
    return torch.stack(o, 1)


@case
def fla_fused_recurrent_gla():
    fused_recurrent_gla = module("fla.ops.gla").fused_recurrent_gla
    q, k, v = fq(T=32)
    g = F.logsigmoid(R(1, 32, 2, 32))
    return grads(lambda q, k, v, g: fused_recurrent_gla(q, k, v, g)[0], q, k, v, g), grads(gla_ref, q, k, v, g)


@case
def fla_chunk_gla():
    chunk_gla = module("fla.ops.gla").chunk_gla
    q, k, v = fq()
    g = F.logsigmoid(R(1, 128, 2, 32)) / 4
    return grads(lambda q, k, v, g: chunk_gla(q, k, v, g)[0], q, k, v, g), grads(gla_ref, q, k, v, g)


@case
def fla_chunk_simple_gla():
    chunk_simple_gla = module("fla.ops.simple_gla").chunk_simple_gla
    q, k, v = fq()
    g = F.logsigmoid(R(1, 128, 2))
    return grads(lambda q, k, v, g: chunk_simple_gla(q, k, v, g)[0], q, k, v, g), grads(
        lambda q, k, v, g: gla_ref(q, k, v, g[..., None].expand(-1, -1, -1, 32)), q, k, v, g
    )


def delta_ref(q, k, v, b):
    B, T, H, D = q.shape
    h = torch.zeros(B, H, D, D)
    o = []
    for t in range(T):
        u = (v[:, t] - (h * k[:, t][..., None]).sum(-2)) * b[:, t][..., None]
        h = h + k[:, t][..., None] * u[..., None, :]
        o.append((q[:, t][..., None] * h).sum(-2) * D**-0.5)
    return torch.stack(o, 1)


@case
def fla_chunk_delta_rule():
    chunk_delta_rule = module("fla.ops.delta_rule").chunk_delta_rule
    q, k, v = fq()
    k = F.normalize(k, dim=-1)
    b = torch.sigmoid(R(1, 128, 2))
    return grads(
        lambda q, k, v, b: chunk_delta_rule(q.bfloat16(), k.bfloat16(), v.bfloat16(), b.bfloat16())[0].float(),
        q,
        k,
        v,
        b,
    )[:1], grads(delta_ref, q, k, v, b)[:1]


@case
def fla_fused_recurrent_delta_rule():
    fused_recurrent_delta_rule = module("fla.ops.delta_rule").fused_recurrent_delta_rule
    q, k, v = fq(T=32)
    k = F.normalize(k, dim=-1)
    b = torch.sigmoid(R(1, 32, 2))
    return grads(lambda q, k, v, b: fused_recurrent_delta_rule(q, k, v, b)[0], q, k, v, b), grads(delta_ref, q, k, v, b)


@case
def fla_gated_delta_rule():
    chunk_gated_delta_rule = module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    q, k, v = fq()
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    b = torch.sigmoid(R(1, 128, 2))
    g = F.logsigmoid(R(1, 128, 2))

    def ref(q, k, v, b, g):
        B, T, H, D = q.shape
        h = torch.zeros(B, H, D, D)
        o = []
        for t in range(T):
            h = h * g[:, t].exp()[..., None, None]
            u = (v[:, t] - (h * k[:, t][..., None]).sum(-2)) * b[:, t][..., None]
            h = h + k[:, t][..., None] * u[..., None, :]
            o.append((q[:, t][..., None] * h).sum(-2) * D**-0.5)
        return torch.stack(o, 1)

    return [chunk_gated_delta_rule(q.bfloat16(), k.bfloat16(), v.bfloat16(), g, b.bfloat16())[0].float()], [
        ref(q, k, v, b, g)
    ]


@case
def fla_hgrn():
    fused_recurrent_hgrn = module("fla.ops.hgrn").fused_recurrent_hgrn
    x, g = R(2, 32, 48), F.logsigmoid(R(2, 32, 48))

    def ref(x, g):
        h = torch.zeros(2, 48)
        o = []
        for t in range(32):
            h = h * g[:, t].exp() + x[:, t]
            o.append(h)
        return torch.stack(o, 1)

    return grads(lambda x, g: fused_recurrent_hgrn(x, g)[0], x, g), grads(ref, x, g)


@case
def fla_parallel_attn():
    parallel_attn = module("fla.ops.attn").parallel_attn
    q, k, v = fq()
    return grads(lambda q, k, v: parallel_attn(q, k, v), q, k, v), grads(
        lambda q, k, v: F.scaled_dot_product_attention(
            *[x.transpose(1, 2) for x in (q, k, v)], is_causal=True
        ).transpose(1, 2),
        q,
        k,
        v,
    )


@case
def fla_cumsum():
    chunk_local_cumsum = module("fla.ops.utils").chunk_local_cumsum
    chunk_global_cumsum = module("fla.ops.utils").chunk_global_cumsum
    g = R(1, 128, 2)
    return [chunk_local_cumsum(g, 64), chunk_global_cumsum(g)], [
        g.view(1, 2, 64, 2).cumsum(2).view(1, 128, 2),
        g.cumsum(1),
    ]


@case
def fla_rwkv6():
    from fla.ops.rwkv6 import fused_recurrent_rwkv6

    r, k, v = fq(T=32)
    w = -torch.exp(R(1, 32, 2, 32))
    u = R(2, 32)

    def ref(r, k, v, w, u):
        h = torch.zeros(1, 2, 32, 32)
        o = []
        for t in range(32):
            kv = k[:, t][..., None] * v[:, t][..., None, :]
            o.append(((h + u[None, ..., None] * kv) * r[:, t][..., None]).sum(-2) * 32**-0.5)
            h = h * w[:, t].exp()[..., None] + kv
        return torch.stack(o, 1)

    return [fused_recurrent_rwkv6(r, k, v, w, u)[0]], [ref(r, k, v, w, u)]


@case
def fla_l2norm():
    m = module("fla.modules.l2norm")
    x = R(6, 64)
    return grads(lambda x: m.l2norm(x), x), grads(lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6), x)


@case
def fla_layernorm():
    m = module("fla.modules.layernorm")
    x, w, b = R(6, 64), R(64), R(64)
    return grads(lambda x, w, b: m.layer_norm(x, w, b, None, 1e-5), x, w, b), grads(
        lambda x, w, b: F.layer_norm(x, (64,), w, b, 1e-5), x, w, b
    )


@case
def fla_rotary():
    m = module("fla.modules.rotary")
    x = R(2, 16, 4, 32)
    f = torch.outer(torch.arange(16).float(), 1 / (10000 ** (torch.arange(0, 32, 2) / 32)))
    c, s = f.cos(), f.sin()
    a, b = x[..., :16], x[..., 16:]
    C, S_ = c[None, :, None], s[None, :, None]
    return [m.rotary_embedding(x, c, s)], [torch.cat([a * C - b * S_, b * C + a * S_], -1)]


@case
def fla_swiglu():
    m = module("fla.modules.activations")
    a, b = R(6, 64), R(6, 64)
    return grads(m.swiglu, a, b), grads(lambda a, b: F.silu(a) * b, a, b)


@case
def fla_short_conv():
    m = module("fla.modules.convolution")
    x, w = R(2, 32, 16), R(16, 4)
    return [m.causal_conv1d(x, w, None, None, activation="silu")[0]], [
        F.silu(F.conv1d(x.transpose(1, 2), w[:, None], padding=3, groups=16)[..., :32].transpose(1, 2))
    ]


@case
def fla_token_shift():
    m = module("fla.modules.token_shift")
    x = R(2, 32, 16)
    return grads(m.token_shift, x), grads(lambda x: torch.cat([torch.zeros(2, 1, 16), x[:, :-1]], 1) - x, x)


@case
def fla_fused_cross_entropy():
    m = module("fla.modules.fused_cross_entropy")
    x = R(9, 77)
    t = torch.randint(0, 77, (9,))
    return grads(lambda x: m.cross_entropy_loss(x, t)[0].mean(), x), grads(lambda x: F.cross_entropy(x, t), x)
