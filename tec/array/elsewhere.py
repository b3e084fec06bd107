"""What PyTorch, JAX, CuPy, Optax and NumPy call what `tec.array` and its parts `nn`, `optim`, `linalg` and `fft` have; for hints."""

from __future__ import annotations

from collections.abc import Sequence

from ..likeness import by_name, meant

_HERE = {
    "conv(x, weight, strides=..., padding=...), of any number of dimensions": "conv1d conv2d conv3d Conv1d Conv2d Conv3d conv_general_dilated",
    "max_pool(x, window)": "max_pool1d max_pool2d max_pool3d MaxPool2d",
    "avg_pool(x, window)": "avg_pool1d avg_pool2d avg_pool3d AvgPool2d adaptive_avg_pool2d",
    "x @ w.T + b": "linear Linear Dense dense",
    "w[labels], or tec.array.take(w, labels, axis=0)": "embedding Embedding",
    "x * (g.random(x.shape) > p) / (1 - p), g a tec.array.random.Generator": "dropout Dropout",
    "softmax(q @ k.mT / d**0.5) @ v": "scaled_dot_product_attention dot_product_attention",
    "(x - mean) / (var + eps) ** 0.5, with tec.array.mean and var over axis=(0, 2, 3)": "batch_norm BatchNorm2d group_norm instance_norm",
    "cross_entropy(logits, labels)": "nll_loss CrossEntropyLoss softmax_cross_entropy",
    "silu(x)": "swish", "mse_loss(x, y)": "MSELoss", "x / tec.array.linalg.vector_norm(x, axis=-1, keepdims=True)": "normalize",
    "tec.array.tanh(x)": "tanh", "tec.array.clip(x, 0.0, 6.0)": "relu6", "tec.array.where(x > 0, x, a)": "threshold",
    "a function of arrays: def f(params, x)": "Module Sequential Parameter", "SGD, Adam and AdamW": "RMSprop Adagrad Adadelta Adamax NAdam rmsprop adagrad lamb",
    "SGD(params, lr=...)": "sgd", "Adam(params, lr=...)": "adam", "AdamW(params, lr=...)": "adamw",
    "opt.lr = ..., between steps": "lr_scheduler StepLR CosineAnnealingLR exponential_decay",
    "np.linalg.tensorsolve(x.numpy(), y.numpy()), on the host": "tensorsolve", "np.linalg.tensorinv(x.numpy()), on the host": "tensorinv",
    "matrix_norm or vector_norm": "vecnorm", "solve(l, b)": "solve_triangular triangular_solve cho_solve", "eigh(x)": "symeig",
    "scipy.linalg of x.numpy(), on the host": "expm lu lu_factor schur logm sqrtm",
}  # fmt: skip
_BY_NAME = by_name(_HERE)

# What to write for a function or a type of a namespace.
OF_NAMESPACES = {
    "ndarray": "tec.array.Array", "get": "x.numpy() copies to the host", "cuda": "tec.cuda(0) is a device",
    "RawKernel": "@tec.kernel makes a kernel of a Python function", "ElementwiseKernel": "@tec.kernel, or an expression: it becomes one kernel",
    "ReductionKernel": "an expression with a reduction becomes one kernel", "fuse": "expressions are fused by themselves", "jit": "tec.array.jit compiles a function of arrays whole",
    "vectorize": "tec.vmap, or an expression", "grad": "tec.grad", "vmap": "tec.vmap", "lax": "if, for and while of Python are followed",
    "float": "tec.array.float32 or float64", "int": "tec.array.int32 or int64", "Tensor": "tec.array.asarray(x) makes an array", "tensor": "tec.array.asarray(x)", "from_numpy": "tec.array.asarray(x, device=dev)",
    "get_array_module": "x.__array_namespace__() is this module", "get_default_memory_pool": "dev.memory() and dev.empty_cache()",
    "get_default_pinned_memory_pool": "dev.memory() and dev.empty_cache()", "memset": "x[...] = 0 fills it", "no_grad": "nothing: tec.grad(f) makes gradients",
    "Stream": "dev.stream()", "synchronize": "x.block() or dev.sync()", "int_": "tec.array.int64", "float_": "tec.array.float64", "double": "tec.array.float64",
    "scatter_add": "tec.array.add.at(x, i, v)", "at": "x[i] = v, and tec.array.add.at(x, i, v)", "custom_vjp": "tec.custom_vjp", "custom_gradient": "tec.custom_vjp",
    "apply_along_axis": "tec.vmap",
    "r_": "tec.array.concat", "c_": "tec.array.stack(..., axis=1)", "lib": "x[i[:, None] + j] takes windows: i their starts, j the places in one", "special": "tec.erf and others are words of kernels and te; scipy.special of x.numpy()",
    "stop_gradient": "tec.stop_gradient(x)", "RawModule": "@tec.kernel makes a kernel of a Python function", "linalg_norm": "tec.array.linalg.norm", "device": "with dev:, or device=dev",
} | by_name({
    "tec.array.concat([x, y], axis=0)": "cat",
    "tec.array.asarray(x, device=dev)": "as_tensor device_put",
    "x.numpy()": "device_get",
    "tec.array.matmul(x, y), x @ y": "mm bmm mv",
    "c + x @ y": "addmm addmv baddbmm addbmm",
    "x + s * a * b": "addcmul", "x + s * a / b": "addcdiv", "x + w * (y - x)": "lerp",
    "tec.array.multiply": "mul", "tec.array.subtract": "sub", "tec.array.divide": "div", "tec.array.negative": "neg",
    "tec.array.equal": "eq", "tec.array.not_equal": "ne", "tec.array.less": "lt", "tec.array.less_equal": "le",
    "tec.array.greater": "gt", "tec.array.greater_equal": "ge",
    "tec.array.clip(x, low, high)": "clamp", "tec.array.maximum(x, low)": "clamp_min", "tec.array.minimum(x, high)": "clamp_max",
    "tec.array.moveaxis": "movedim", "tec.array.swapaxes": "swapdims", "tec.array.permute_dims(x, axes)": "permute",
    "tec.array.expand_dims(x, axis=k)": "unsqueeze", "x.T, x.mT": "t adjoint",
    "x.reshape(...), tec.array.ravel(x)": "flatten unflatten", "tec.array.reshape": "view",
    "x.size": "numel", "x.device": "get_device",
    "tec.array.split(x, parts)": "chunk tensor_split split_with_sizes", "tec.array.unstack(x, axis=k)": "unbind",
    "x[:, start:stop]": "narrow", "tec.array.take(x, indices, axis=k)": "index_select", "tec.array.take_along_axis(x, indices, axis=k)": "gather",
    "x[mask]": "masked_select", "tec.array.where(mask, value, x)": "masked_fill", "tec.array.put_along_axis(x, indices, values, axis=k)": "scatter",
    "tec.array.add.at(x, index, values)": "index_add scatter_reduce segment_sum", "x[index] = values": "index_put index_copy index_fill",
    "table[indices]": "embedding",
    "tec.array.searchsorted": "bucketize", "tec.array.histogram(x, bins, range)": "histc",
    "x[tec.array.argsort(x, descending=True)[:k]]": "topk top_k", "tec.array.partition(x, k)[k]": "kthvalue",
    "tec.array.maximum.accumulate(x)": "cummax", "tec.array.minimum.accumulate(x)": "cummin",
    "m + tec.array.log(tec.array.sum(tec.array.exp(x - m))), where m = tec.array.max(x)": "logsumexp",
    "tec.array.mean(x) and tec.array.std(x)": "std_mean", "tec.array.mean(x) and tec.array.var(x)": "var_mean",
    "1 / tec.array.sqrt(x)": "rsqrt", "x - tec.array.trunc(x)": "frac", "tec.array.copy(x)": "clone",
    "tec.array.repeat": "repeat_interleave", "tec.array.trapezoid": "trapz",
    "tec.array.linalg.vector_norm": "norm frobenius_norm", "tec.array.linalg.multi_dot": "chain_matmul", "tec.array.linalg.pinv": "pinverse",
    "tec.array.sqrt(tec.array.sum((x[:, None] - y) ** 2, axis=-1))": "cdist", "tec.array.linalg.vector_norm(x - y)": "dist pairwise_distance",
    "tec.array.vecdot(x, y), over the norms of both": "cosine_similarity",
    "tec.array.random.randn(*x.shape)": "randn_like", "tec.array.random.rand(*x.shape)": "rand_like", "tec.array.random.permutation(n)": "randperm",
    "tec.array.random.seed(n), or g = tec.array.random.Generator(n)": "manual_seed PRNGKey key",
    "nothing: a Generator goes on where it was, and another seed is another stream": "fold_in split", "-tec.array.log(1 - tec.array.random.rand(*shape))": "exponential",
    "tec.array.random.rand(*shape), or randn": "random_sample ranf truncated_normal", "np.random's on the host, and tec.array.asarray": "beta gamma poisson binomial multinomial geometric dirichlet",
    "tec.array.argmax(logits - tec.array.log(-tec.array.log(tec.array.random.rand(*logits.shape))), axis=-1)": "categorical",
    "tec.array.random.rand(*x.shape) < p": "bernoulli", "tec.array.where(tec.array.random.rand(*x.shape) < p, 0.0, x / (1 - p))": "dropout",
    "r * tec.array.exp(1j * angle)": "polar complex", "tec.array.stack([x.real, x.imag], axis=-1)": "view_as_real",
    "isinstance(x, tec.array.Array)": "is_tensor", "tec.array.isdtype(x.dtype, \"real floating\")": "is_floating_point",
    "with dev:": "set_default_device", "dtype=": "set_default_dtype",
    "nothing: tec.grad(f) makes gradients, and arrays carry none": "enable_grad set_grad_enabled inference_mode is_grad_enabled",
    "tec.stop_gradient(x)": "detach", "tec.hessian": "hessian", "tec.jacfwd": "jacfwd", "tec.jacrev": "jacrev",
    "tec.array.nn.conv(x, weight), of any number of dimensions": "conv1d conv2d conv3d convolution",
    "tec.array.nn.max_pool(x, window)": "max_pool1d max_pool2d max_pool3d", "tec.array.nn.avg_pool(x, window)": "avg_pool1d avg_pool2d avg_pool3d",
    "tec.array.mean(x, axis=(-2, -1))": "adaptive_avg_pool1d adaptive_avg_pool2d", "x @ weight.T + bias": "linear",
    "with tec.device_code(\"ir\"): shows what is compiled": "make_jaxpr",
    "tec.vmap, or tec.shard over devices": "pmap", "x.block()": "block_until_ready wait",
    "for and comprehensions over the dict or list": "tree_map tree_util", "for of Python": "while_loop fori_loop scan",
    "if of Python, or tec.array.where by elements": "cond", "nothing: gradients keep what they need": "checkpoint remat",
    "isinstance(x, tec.array.Array), for an array of CuPy too after tec.array.asarray(x)": "is_cupy",
})  # fmt: skip

# What to write for an attribute of arrays.
OF_ARRAYS = {
    "get": "x.numpy()", "cpu": "x.to_device(tec.cpu())", "cuda": "x.to_device(tec.cuda(0))", "to": "x.to_device(dev), x.astype(dtype)",
    "unsqueeze": "tec.array.expand_dims(x, axis=k)", "view": "x.reshape(shape)", "permute": "x.transpose(axes)", "at": "x[i] = value assigns",
    "detach": "arrays carry no gradients: tec.grad(f) makes them", "backward": "tec.grad(f)", "grad": "tec.grad(f)", "data": "x.nd",
    "block_until_ready": "x.block()", "strides": "arrays are values: what lies in memory, x.nd knows", "flags": "x.nd", "base": "no two arrays share elements",
} | by_name({
    "x.astype(\"float32\")": "float", "x.astype(\"float16\")": "half", "x.astype(\"int64\")": "long", "x.astype(\"int32\")": "int",
    "x.astype(\"float64\")": "double", "x.astype(\"bool\")": "bool", "x.astype(dtype)": "type", "x.reshape(other.shape)": "view_as reshape_as",
    "x itself: arrays are contiguous": "contiguous is_contiguous", "x.ndim": "dim", "tec.array.broadcast_to(x, shape)": "expand expand_as",
    "nothing: tec.grad(f) makes gradients": "requires_grad requires_grad_ grad_fn zero_grad is_leaf retain_grad",
    "x.device": "is_cuda get_device", "x.size": "nelement",
    "x[...] = 0": "zero_", "x[...] = value": "fill_ copy_", "x = x + y: arrays are values": "add_ sub_ mul_ div_",
    "tec.array.random.rand(*shape)": "uniform_ normal_", "tec.array.sign(x)": "sgn", "tec.array.take_along_axis(x, indices, axis=k)": "take_along_dim",
    "tec.array.zeros(shape, dtype=x.dtype, device=x.device)": "new_zeros new_empty new_ones new_full new_tensor", "x.astype(y.dtype)": "type_as",
})  # fmt: skip

# Arguments that others name otherwise.
ARGUMENTS = by_name(
    {
        "axis": "dim dims",
        "keepdims": "keepdim",
        "descending": "largest",
        "correction": "unbiased",
        "static": "static_argnums static_argnames",
    }
)


def missing(module: str, name: str, there: Sequence[str]) -> AttributeError:
    """The error for a name that a module has not."""
    said = f"module {module!r} has no attribute {name!r}"
    found = _BY_NAME.get(name) or OF_NAMESPACES.get(name)
    if found is not None and not name.startswith("_"):
        return AttributeError(f"{said}: {found}")
    question = meant(name, there)
    return AttributeError(f"{said}: {question}" if question else said)
