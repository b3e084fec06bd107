"""Layers, losses and products of Liger-Kernel, unsloth and aiter; see `triton_libraries`."""
# ruff: noqa: E731

from __future__ import annotations

import torch
import torch.nn.functional as F

from .triton_libraries import R, case, grads, module


@case
def liger_rms_norm():
    x, w = R(4, 7, 96), R(96)
    m = module("liger_kernel.ops.rms_norm")
    return grads(lambda x, w: m.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False), x, w), grads(
        lambda x, w: F.rms_norm(x, (96,), w, 1e-6), x, w
    )


@case
def liger_layer_norm():
    x, w, b = R(4, 7, 96), R(96), R(96)
    m = module("liger_kernel.ops.layer_norm")
    return grads(lambda x, w, b: m.LigerLayerNormFunction.apply(x, w, b, 1e-6), x, w, b), grads(
        lambda x, w, b: F.layer_norm(x, (96,), w, b, 1e-6), x, w, b
    )


@case
def liger_softmax():
    x = R(5, 333)
    m = module("liger_kernel.ops.softmax")
    return grads(lambda x: m.LigerSoftmaxFunction.apply(x), x), grads(lambda x: F.softmax(x, -1), x)


@case
def liger_swiglu():
    a, b = R(3, 5, 65), R(3, 5, 65)
    m = module("liger_kernel.ops.swiglu")
    return grads(lambda a, b: m.LigerSiLUMulFunction.apply(a, b), a, b), grads(lambda a, b: F.silu(a) * b, a, b)


@case
def liger_geglu():
    a, b = R(3, 5, 65), R(3, 5, 65)
    m = module("liger_kernel.ops.geglu")
    return grads(lambda a, b: m.LigerGELUMulFunction.apply(a, b), a, b), grads(
        lambda a, b: F.gelu(a, approximate="tanh") * b, a, b
    )


@case
def liger_cross_entropy():
    x = R(9, 301)
    t = torch.randint(0, 301, (9,))
    m = module("liger_kernel.ops.cross_entropy")
    return grads(
        lambda x: m.LigerCrossEntropyFunction.apply(x, t, None, -100, 0.0, 0.1, "mean", None, False), x
    ), grads(lambda x: F.cross_entropy(x, t, label_smoothing=0.1), x)


@case
def liger_fused_linear_cross_entropy():
    x, w = R(16, 32), R(77, 32)
    t = torch.randint(0, 77, (16,))
    m = module("liger_kernel.ops.fused_linear_cross_entropy")
    return grads(lambda x, w: m.LigerFusedLinearCrossEntropyFunction.apply(x, w, t)[0], x, w), grads(
        lambda x, w: F.cross_entropy(x @ w.T, t), x, w
    )


@case
def liger_kl_div():
    x, y = F.log_softmax(R(6, 100), -1), F.softmax(R(6, 100), -1)
    m = module("liger_kernel.ops.kl_div")
    return grads(lambda x: m.LigerKLDivLossFunction.apply(x, y, "batchmean", False, 1e-10), x), grads(
        lambda x: F.kl_div(x, y, reduction="batchmean"), x
    )


@case
def liger_jsd():
    x, y = F.log_softmax(R(6, 100), -1), F.log_softmax(R(6, 100), -1)
    m = module("liger_kernel.ops.jsd")

    def ref(x):
        p, q = y.exp(), x.exp()
        mm = (p + q) / 2
        return (
            0.5 * F.kl_div(mm.log(), y, log_target=True, reduction="sum")
            + 0.5 * F.kl_div(mm.log(), x, log_target=True, reduction="sum")
        ) / 6

    return grads(lambda x: m.LigerJSDFunction.apply(x, y, None, 0.5, -100), x), grads(ref, x)


@case
def liger_tvd():
    x, y = F.softmax(R(6, 100), -1), F.softmax(R(6, 100), -1)
    m = module("liger_kernel.ops.tvd")
    return [m.LigerTVDLossFunction.apply(x, y, None, "batchmean", -100)], [0.5 * (x - y).abs().sum() / 6]


@case
def liger_group_norm():
    x, w, b = R(2, 6, 20), R(6), R(6)
    m = module("liger_kernel.ops.group_norm")
    return grads(lambda x, w, b: m.LigerGroupNormFunction.apply(x, w, b, 6, 3, 1e-5), x, w, b), grads(
        lambda x, w, b: F.group_norm(x, 3, w, b, 1e-5), x, w, b
    )


@case
def liger_sparsemax():
    x = R(5, 50)
    m = module("liger_kernel.ops.sparsemax")

    def ref(z):
        s, _ = torch.sort(z, -1, descending=True)
        c = s.cumsum(-1) - 1
        k = torch.arange(1, 51)
        sup = k * s > c
        n = sup.sum(-1, keepdim=True)
        tau = c.gather(-1, n - 1) / n
        return (z - tau).clamp(min=0)

    return grads(lambda x: m.LigerSparsemaxFunction.apply(x, -1), x), grads(ref, x)


@case
def liger_relu_squared():
    x = R(5, 50)
    m = module("liger_kernel.ops.relu_squared")
    return grads(lambda x: m.LigerReLUSquaredFunction.apply(x), x), grads(lambda x: F.relu(x) ** 2, x)


@case
def liger_rope():
    q, k = R(2, 4, 16, 32), R(2, 2, 16, 32)
    pos = torch.arange(16).float()
    inv = 1 / (10000 ** (torch.arange(0, 32, 2) / 32))
    f = torch.outer(pos, inv)
    e = torch.cat([f, f], -1)[None]
    c, s = e.cos(), e.sin()
    m = module("liger_kernel.ops.rope")
    rot = lambda x: torch.cat([-x[..., 16:], x[..., :16]], -1)
    r = m.LigerRopeFunction.apply(q.clone(), k.clone(), c, s)
    return list(r), [q * c + rot(q) * s, k * c + rot(k) * s]


@case
def liger_poly_norm():
    x, w, b = R(6, 64), R(3), R(1)[0]
    m = module("liger_kernel.ops.poly_norm")
    n = lambda t: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-6)
    return grads(lambda x, w, b: m.LigerPolyNormFunction.apply(x, w, b, 1e-6, False), x, w, b), grads(
        lambda x, w, b: w[0] * n(x**3) + w[1] * n(x**2) + w[2] * n(x) + b, x, w, b
    )


@case
def liger_fused_add_rms_norm():
    x, r, w = R(6, 96), R(6, 96), R(96)
    m = module("liger_kernel.ops.fused_add_rms_norm")
    return list(m.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 0.0, "llama", False)), [
        F.rms_norm(x + r, (96,), w, 1e-6),
        x + r,
    ]


@case
def liger_grpo_loss():
    m = module("liger_kernel.ops.grpo_loss")
    x = R(2, 9, 64)
    ids = torch.randint(0, 64, (2, 8))
    r = m.fused_selective_log_softmax(x, ids, 1.0)
    return [r], [F.log_softmax(x[:, :-1], -1).gather(-1, ids[..., None])[..., 0]]


@case
def unsloth_swiglu():
    e, g = R(2, 5, 96), R(2, 5, 96)
    m = module("unsloth.kernels.swiglu")
    return [m.swiglu_fg_kernel(e, g)], [F.silu(e) * g]


@case
def unsloth_geglu():
    e, g = R(2, 5, 96), R(2, 5, 96)
    m = module("unsloth.kernels.geglu")
    return [m.geglu_exact_forward_kernel(e, g), m.geglu_approx_forward_kernel(e, g)], [
        F.gelu(e) * g,
        F.gelu(e, approximate="tanh") * g,
    ]


@case
def unsloth_rms():
    x, w = R(2, 5, 96), R(96)
    m = module("unsloth.kernels.rms_layernorm")
    return grads(lambda x: m.Fast_RMS_Layernorm.apply(x, w, 1e-6, False), x), grads(
        lambda x: F.rms_norm(x, (96,), w, 1e-6), x
    )


@case
def unsloth_layernorm():
    x, w, b = R(2, 5, 96), R(96), R(96)
    m = module("unsloth.kernels.layernorm")
    return grads(lambda x: m.Fast_Layernorm.apply(x, w, b, 1e-6), x), grads(
        lambda x: F.layer_norm(x, (96,), w, b, 1e-6), x
    )


@case
def unsloth_cross_entropy():
    x = R(2, 9, 301)
    t = torch.randint(0, 301, (2, 9))
    m = module("unsloth.kernels.cross_entropy_loss")
    return grads(lambda x: m.Fast_CrossEntropyLoss.apply(x.view(-1, 301), t.view(-1), 0, 0), x), grads(
        lambda x: F.cross_entropy(x.view(-1, 301), t.view(-1), reduction="none"), x
    )


@case
def unsloth_rope():
    m = module("unsloth.kernels.rope_embedding")
    q = R(2, 16, 4, 32)
    f = torch.outer(torch.arange(16).float(), 1 / (10000 ** (torch.arange(0, 32, 2) / 32)))
    e = torch.cat([f, f], -1)
    c, s = e.cos(), e.sin()
    rot = lambda x: torch.cat([-x[..., 16:], x[..., :16]], -1)
    return [m.Fast_RoPE_Embedding.apply(q.clone(), c, s)], [q * c[None, :, None] + rot(q) * s[None, :, None]]


@case
def aiter_softmax():
    k = module("aiter.ops.triton._triton_kernels.softmax")._softmax_kernel_online
    x = R(7, 333)
    y = torch.empty_like(x)
    k[(7,)](y, x, x.stride(0), y.stride(0), 333, 512, waves_per_eu=2, num_warps=8, num_stages=2)
    return [y], [F.softmax(x, -1)]


@case
def aiter_layernorm():
    m = module("aiter.ops.triton.normalization.norm")
    x, w, b = R(7, 320).half(), R(320).half(), R(320).half()
    return [m.layer_norm(x, w, b, 1e-5)], [F.layer_norm(x, (320,), w, b, 1e-5)]


@case
def aiter_rmsnorm():
    m = module("aiter.ops.triton.normalization.rmsnorm")
    x, w = R(7, 320).half(), R(320).half()
    return [m.rms_norm(x, w, 1e-5)], [F.rms_norm(x, (320,), w, 1e-5)]


@case
def aiter_rope():
    m = module("aiter.ops.triton.rope.rope")
    x = R(16, 2, 4, 32)
    f = torch.outer(torch.arange(16).float(), 1 / (10000 ** (torch.arange(0, 32, 2) / 32)))[:, None, None]
    fr = torch.cat([f, f], -1)
    rot = lambda x: torch.cat([-x[..., 16:], x[..., :16]], -1)
    return [m.rope_fwd(x, fr, 0, False, False)], [x * fr.cos() + rot(x) * fr.sin()]


@case
def aiter_gemm_a16w16():
    m = module("aiter.ops.triton.gemm.basic.gemm_a16w16")
    x, w = R(33, 128).bfloat16(), R(64, 128).bfloat16()
    c = {
        "BLOCK_SIZE_M": 32,
        "BLOCK_SIZE_N": 64,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": 1,
        "NUM_KSPLIT": 1,
        "SPLITK_BLOCK_SIZE": 128,
        "num_warps": 4,
        "num_stages": 2,
        "waves_per_eu": 2,
        "matrix_instr_nonkdim": 16,
        "cache_modifier": None,
        "kpack": 1,
    }
    return [m.gemm_a16w16(x, w, dtype=torch.bfloat16, config=c)], [x.float() @ w.float().T]


@case
def aiter_topk():
    m = module("aiter.ops.triton.topk")
    x = R(5, 256)
    v, i = m.topk(x, 8)
    a, b = torch.topk(x, 8)
    return [v, i], [a, b]
