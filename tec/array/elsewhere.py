"""What PyTorch, JAX, Optax and NumPy call what stands elsewhere in `tec.array.nn`, `optim`, `linalg` and `fft`; for hints."""

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


def missing(module: str, name: str, there: Sequence[str]) -> AttributeError:
    """The error for a name that a module has not."""
    said = f"module {module!r} has no attribute {name!r}"
    found = _BY_NAME.get(name)
    if found is not None and not name.startswith("_"):
        return AttributeError(f"{said}: {found}")
    question = meant(name, there)
    return AttributeError(f"{said}: {question}" if question else said)
