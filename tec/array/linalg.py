"""The extension `linalg` of the array API standard: matrices are the last two dimensions, the others a batch.

On the CPU factors are LAPACK's, through NumPy, which reads the array's memory and whose result is the array's. On a device `cholesky`, `solve`, `inv`, `det` and
`slogdet` of real matrices run there (`factors`); `qr`, `svd`, `svdvals`, `eigh`, `eigvalsh`, `eig`, `eigvals`, `pinv`, `matrix_rank`, the norms by singular
values, and complex matrices go to the host's LAPACK: the matrices are copied there, the results back. Errors are ArrayValueError: a singular matrix, one that
is not positive definite, an iteration that does not end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import listed
from . import build, dtypes, factors
from .array import Array, node_of, pair
from .complexes import is_complex
from .creation import eye, tril
from .dtypes import DTypeLike
from .elementwise import abs as _abs
from .elementwise import log, multiply, pow, sign, sqrt
from .elsewhere import missing
from .errors import ArrayTypeError, ArrayValueError
from .factor_gradients import eigh_gradient, pinv_gradient, svd_gradient
from .host import on_host
from .manipulation import axes_of, axis_of, broadcast_to, concat, expand_dims, moveaxis, reshape
from .node import RECORDERS, Node
from .node import broadcast_shapes as common
from .products import matmul, matrix_transpose, tensordot, vecdot
from .pullbacks import summed_to
from .statistical import max as _max
from .statistical import min as _min
from .statistical import prod as _prod
from .statistical import sum as _sum
from .steps import apart
from .told import with_gradient

__all__ = [
    "cond", "lstsq", "multi_dot",
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
__dir__ = listed(__name__)


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """What `eig` gives."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Array
    S: Array
    Vh: Array


# ---- what the host's LAPACK does


def _matrix(name: str, x: Any, square: bool = False) -> Node:
    n = node_of(x)
    if n.dtype not in ("float32", "float64", "complex64", "complex128"):
        raise ArrayTypeError(f"{name} of {n.dtype}", hint='tec.array.astype(x, "float32") converts')
    if len(n.shape) < 2:
        raise ArrayValueError(f"{name} of an array of {len(n.shape)} dimensions", hint="a matrix has two")
    if square and n.shape[-1] != n.shape[-2]:
        raise ArrayValueError(f"{name} of matrices of shape {n.shape[-2:]}, which are not square")
    return n


def _host(name: str, function: Callable[..., Any], *nodes: Node) -> Any:
    """`on_host`, whose failures are those of the function called `name`."""

    def told(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except np.linalg.LinAlgError as e:
            hint = "tec.array.linalg.pinv(x) has one" if "ingular" in str(e) else None
            raise ArrayValueError(f"{name}: {str(e)[0].lower()}{str(e)[1:]}", hint=hint) from None

    return on_host(name, told, *nodes, batched=True)


def _stays(n: Node) -> bool:
    """Whether a device factors it by itself."""
    return n.device.driver is not None and not is_complex(n) and n.size > 0


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """L with x = L L^H, or with `upper` U with x = U^H U. The upper triangle of x is not read. Raises ArrayValueError where x is not positive definite."""
    n = _matrix("cholesky", x, square=True)
    made = tril(Array(apart(factors.cholesky, n))) if _stays(n) else _host("cholesky", np.linalg.cholesky, n)
    made = with_gradient(made, (n,), _cholesky_gradient, cholesky)
    if not upper:
        return made
    return Array(build.unary("conj", made.mT._node)) if is_complex(n) else made.mT


def _cholesky_gradient(g: Array, low: Array, x: Array) -> tuple[Array]:
    """I. Murray, "Differentiation of the Cholesky decomposition", arXiv 1602.07527, section 2."""
    inside = tril(low.mT @ g)
    half = inside - eye(low.shape[-1], dtype=low.dtype, device=low.device) * inside * 0.5
    back = inv(low)
    made = back.mT @ half @ back
    return ((made + made.mT) * 0.5,)


def det(x: Array, /) -> Array:
    """The determinant; 0 of a singular matrix."""
    n = _matrix("det", x, square=True)
    if not _stays(n):
        made = _host("det", np.linalg.det, n)
    else:
        diagonals, signs = apart(factors.determinants, n)
        made = _prod(Array(diagonals), axis=-1) * Array(signs)
    return with_gradient(made, (n,), lambda g, y, a: (reshape(g * y, (*y.shape, 1, 1)) * inv(a).mT,), det)


def slogdet(x: Array, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its size: 0 and -inf of a singular matrix."""
    n = _matrix("slogdet", x, square=True)
    if not _stays(n):
        first, size = _host("slogdet", lambda a: tuple(np.linalg.slogdet(a)), n)
    else:
        diagonals, signs = apart(factors.determinants, n)
        d = Array(diagonals)
        first, size = _prod(sign(d), axis=-1) * Array(signs), _sum(log(_abs(d)), axis=-1)
    first = with_gradient(first, (n,), lambda g, y, a: (None,), lambda a: slogdet(a).sign)
    size = with_gradient(
        size, (n,), lambda g, y, a: (reshape(g, (*y.shape, 1, 1)) * inv(a).mT,), lambda a: slogdet(a).logabsdet
    )
    return SlogdetResult(first, size)


def inv(x: Array, /) -> Array:
    """The inverse. Raises ArrayValueError where there is none."""
    n = _matrix("inv", x, square=True)
    if not _stays(n):
        made = _host("inv", np.linalg.inv, n)
    else:
        ones = eye(n.shape[-1], dtype=n.dtype, device=n.device)
        made = Array(apart(factors.solved, n, build.broadcast_to(ones._node, n.shape)))
    return with_gradient(made, (n,), lambda g, y, a: (-(y.mT @ g @ y.mT),), inv)


def solve(x1: Array, x2: Array, /) -> Array:
    """X with x1 X = x2. x2 of one dimension is one right-hand side. Raises ArrayValueError where x1 is singular."""
    node_of(x1), node_of(x2)
    a, b = pair(x1, x2)
    build.one_device((a, b))
    a = _matrix("solve", Array(a), square=True)
    if not b.shape:
        raise ArrayValueError("solve with a right-hand side of 0 dimensions")
    one = len(b.shape) == 1
    if b.shape[-1 if one else -2] != a.shape[-1]:
        raise ArrayValueError(f"solve of shapes {a.shape} and {b.shape}")
    if one:
        b = build.reshape(b, (*b.shape, 1))
    batch = common([a.shape[:-2], b.shape[:-2]])
    if batch is None:
        raise ArrayValueError(f"solve of shapes {a.shape} and {b.shape}: the batches do not broadcast")
    shape = (*batch, *b.shape[-2:])
    if 0 in shape or 0 in a.shape:
        made = build.full(0, shape, a.dtype, a.device)
    elif _stays(a):
        a = build.broadcast_to(a, (*batch, *a.shape[-2:]))
        made = apart(factors.solved, a, build.broadcast_to(b, shape))
    else:
        made = _host("solve", np.linalg.solve, a, b)._node
    made = with_gradient(Array(made), (a, b), _solve_gradient, solve)._node
    return Array(build.reshape(made, made.shape[:-1]) if one else made)


def _solve_gradient(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    by_b = solve(a.mT, g)
    return summed_to(-(by_b @ y.mT), a.shape), summed_to(by_b, b.shape)


# ---- their gradients, of real matrices (`factor_gradients`): those by each factor are added


def _of_factors(name: str, made: Any, n: Node, gradient: Any, function: Callable[[Array], Any]) -> list[Array]:
    """Factors that tell their gradients: gradient(weights of each factor or None, the factors) gives that by the matrix."""

    def pull_by(k: int) -> Callable[..., tuple[Array]]:
        def pull(g: Array, y: Array, x: Array) -> tuple[Array]:
            if gradient is None:
                raise ArrayTypeError(
                    f"no gradient through {name} of this shape",
                    hint='full_matrices=False, mode="reduced", or more rows than columns',
                )
            factors = function(x) if RECORDERS else made
            return (gradient([g if i == k else None for i in range(len(factors))], *factors),)

        return pull

    return [with_gradient(v, (n,), pull_by(k), lambda a, k=k: function(a)[k]) for k, v in enumerate(made)]


def _qr_gradient(g: Sequence[Array | None], q: Array, r: Array) -> Array:
    by_q, by_r = g
    m = r @ by_r.mT if by_r is not None else -(by_q.mT @ q)  # type: ignore[union-attr]
    low = tril(m)
    both = low + low.mT - eye(m.shape[-1], dtype=m.dtype, device=m.device) * m
    right = q @ both if by_q is None else by_q + q @ both
    return solve(r, right.mT).mT


def qr(x: Array, /, *, mode: str = "reduced") -> QRResult:
    """Q R = x, with orthonormal columns of Q. mode: "reduced" or "complete"."""
    if mode not in ("reduced", "complete"):
        raise ArrayValueError(f"qr(mode={mode!r})", hint='"reduced" or "complete"')
    n = _matrix("qr", x)
    made = QRResult(*_host("qr", lambda a: tuple(np.linalg.qr(a, mode=mode)), n))  # type: ignore[call-overload]
    if not RECORDERS:
        return made
    square = n.shape[-2] >= n.shape[-1] and (mode == "reduced" or n.shape[-2] == n.shape[-1])
    return QRResult(*_of_factors("qr", made, n, _qr_gradient if square else None, lambda a: qr(a, mode=mode)))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """U diag(S) Vh = x, S falling."""
    n = _matrix("svd", x)
    made = SVDResult(*_host("svd", lambda a: tuple(np.linalg.svd(a, full_matrices=full_matrices)), n))
    if not RECORDERS:
        return made
    thin = not full_matrices or n.shape[-1] == n.shape[-2]
    return SVDResult(
        *_of_factors("svd", made, n, svd_gradient if thin else None, lambda a: svd(a, full_matrices=full_matrices))
    )


def svdvals(x: Array, /) -> Array:
    """The singular values, falling."""
    if RECORDERS:
        return svd(x, full_matrices=False).S
    return _host("svdvals", lambda a: np.linalg.svd(a, compute_uv=False), _matrix("svdvals", x))  # type: ignore[no-any-return]


def eigh(x: Array, /) -> EighResult:
    """Eigenvalues, rising, and eigenvectors (columns) of symmetric or Hermitian matrices, whose lower triangle is read."""
    n = _matrix("eigh", x, square=True)
    made = EighResult(*_host("eigh", lambda a: tuple(np.linalg.eigh(a)), n))
    return EighResult(*_of_factors("eigh", made, n, eigh_gradient, eigh)) if RECORDERS else made


def eigvalsh(x: Array, /) -> Array:
    """Eigenvalues, rising, of symmetric or Hermitian matrices."""
    if RECORDERS:
        return eigh(x).eigenvalues
    return _host("eigvalsh", np.linalg.eigvalsh, _matrix("eigvalsh", x, square=True))  # type: ignore[no-any-return]


def _as_complex(made: Any) -> Any:
    wide = np.result_type(made.dtype, np.complex64)
    return made.astype(wide, copy=False)


def eig(x: Array, /) -> EigResult:
    """Eigenvalues and eigenvectors (columns) of any square matrices; both complex."""
    n = _matrix("eig", x, square=True)
    return EigResult(*_host("eig", lambda a: tuple(_as_complex(m) for m in np.linalg.eig(a)), n))


def eigvals(x: Array, /) -> Array:
    """Eigenvalues of any square matrices; complex."""
    n = _matrix("eigvals", x, square=True)
    return _host("eigvals", lambda a: _as_complex(np.linalg.eigvals(a)), n)  # type: ignore[no-any-return]


def _tolerance(n: Node, given: Any) -> Any:
    if given is None:
        return max(n.shape[-2:]) * dtypes.finfo(n.dtype).eps
    return given.numpy() if type(given) is Array else given


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """The pseudo-inverse, by singular values; those below rtol times the largest count as 0 (default: the larger extent times eps)."""
    n = _matrix("pinv", x)
    if 0 in n.shape:
        return Array(build.full(0, (*n.shape[:-2], n.shape[-1], n.shape[-2]), n.dtype, n.device))
    limit = _tolerance(n, rtol)
    made: Array = _host("pinv", lambda a: np.linalg.pinv(a, rcond=limit), n)
    return with_gradient(made, (n,), pinv_gradient, lambda a: pinv(a, rtol=rtol))


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """How many singular values are above rtol times the largest (default: the larger extent times eps)."""
    n = _matrix("matrix_rank", x)
    values = svdvals(x)
    if not values.shape[-1]:
        return Array(build.full(0, n.shape[:-2], dtypes.int64, n.device))
    limit = _tolerance(n, None) if rtol is None else rtol
    if type(limit) is Array:
        limit = expand_dims(limit, -1)
    above = values > _max(values, axis=-1, keepdims=True) * limit
    return _sum(Array(build.cast(above._node, dtypes.int64)), axis=-1)


# ---- what is an expression


def matrix_power(x: Array, n: int, /) -> Array:
    """The n-th power of square matrices; negative ones of the inverse."""
    _matrix("matrix_power", x, square=True)
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        return broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape)
    made: Array | None = None
    square = x
    while n:
        if n & 1:
            made = square if made is None else matmul(made, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    assert made is not None
    return made if made is not x else Array(build.unary("identity", x._node))


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonal of the last two dimensions, `offset` columns to the right."""
    n = node_of(x)
    if len(n.shape) < 2:
        raise ArrayValueError(f"the diagonal of an array of {len(n.shape)} dimensions")
    rows, columns = n.shape[-2:]
    row, column = max(0, -offset), max(0, offset)
    count = max(0, min(rows - row, columns - column))
    lead = n.shape[:-2]
    if not count or 0 in n.shape:
        return Array(build.full(0, (*lead, count), n.dtype, n.device))
    flat = build.reshape(n, (*lead, rows * columns))
    d = len(lead)
    starts = (0,) * d + (row * columns + column,)
    return Array(build.slices(flat, starts, (1,) * d + (columns + 1 if count > 1 else 1,), (*lead, count)))


def trace(x: Array, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """The sum of a diagonal, of integers in 64 bits unless `dtype` says another type."""
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1: Array, x2: Array, /) -> Array:
    """All products of the elements of two vectors."""
    if len(node_of(x1).shape) != 1 or len(node_of(x2).shape) != 1:
        raise ArrayValueError(f"outer of shapes {x1.shape} and {x2.shape}", hint="vectors have one dimension")
    return multiply(expand_dims(x1, 1), expand_dims(x2, 0))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements along `axis`, which is negative; others broadcast."""
    node_of(x1), node_of(x2)
    a, b = (Array(n) for n in pair(x1, x2))
    least = min(a.ndim, b.ndim)
    if not -least <= axis < 0 or a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ArrayValueError(
            f"cross of shapes {x1.shape} and {x2.shape} along axis {axis}", hint="three elements; -1 is the last axis"
        )

    def part(x: Array, k: int) -> Array:
        return x[(Ellipsis, slice(k, k + 1), *(slice(None),) * (-axis - 1))]

    p, q = ([part(x, k) for k in range(3)] for x in (a, b))
    rows = [p[i] * q[j] - p[j] * q[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return concat(rows, axis=axis)


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices: "fro", "nuc", 1, 2, inf or the negative of a number."""
    n = _matrix("matrix_norm", x)
    size = _abs(x)
    if ord == "fro":
        made = sqrt(_sum(size * size, axis=(-2, -1)))
    elif ord in ("nuc", 2, -2):
        values = svdvals(x)
        made = _sum(values, axis=-1) if ord == "nuc" else (_max if ord == 2 else _min)(values, axis=-1)
    elif ord in (1, -1, np.inf, -np.inf):
        sums = _sum(size, axis=-2 if ord in (1, -1) else -1)
        made = (_max if ord > 0 else _min)(sums, axis=-1)
    else:
        raise ArrayValueError(f"matrix_norm(ord={ord!r})", hint='"fro", "nuc", 1, 2, inf, or the negative of a number')
    return reshape(made, (*n.shape[:-2], 1, 1)) if keepdims else made


def vector_norm(x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The norm along `axis` (one or several, all for None): (sum of |x|^ord)^(1/ord), the largest for inf, the smallest for -inf, how many are not 0 for 0."""
    n = node_of(x)
    if not (dtypes.is_float(n.dtype) or is_complex(n)):
        raise ArrayTypeError(f"vector_norm of {n.dtype}", hint='tec.array.astype(x, "float32") converts')
    if not isinstance(ord, (int, float, np.number)):
        raise ArrayValueError(f"vector_norm(ord={ord!r})", hint="a number, inf or -inf")
    axes = axes_of(axis, len(n.shape))
    size = _abs(x)
    if ord == np.inf:
        return _max(size, axis=axes, keepdims=keepdims)
    if ord == -np.inf:
        return _min(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return _sum(Array(build.cast((size != 0)._node, size.dtype)), axis=axes, keepdims=keepdims)
    if ord == 1:
        return _sum(size, axis=axes, keepdims=keepdims)
    if ord == 2:
        return sqrt(_sum(size * size, axis=axes, keepdims=keepdims))
    return pow(_sum(pow(size, float(ord)), axis=axes, keepdims=keepdims), 1.0 / float(ord))


def norm(x: Array, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """NumPy's name for both: without `ord` that of all elements; else of vectors along an axis, of matrices along two."""
    n = node_of(x)
    if dtypes.is_int(n.dtype):
        x = Array(build.cast(n, dtypes.DEFAULT_FLOAT))
    axes = axes_of(axis, x.ndim)
    if ord is None or len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ArrayValueError(
            f"norm(ord={ord!r}) along {len(axes)} axes", hint="of vectors along one, of matrices along two"
        )
    a, b = axes if axis is None else (axis_of(k, x.ndim) for k in axis)  # rows first: their order counts
    made = matrix_norm(moveaxis(x, (a, b), (-2, -1)), ord=ord)
    return reshape(made, tuple(1 if k in axes else n for k, n in enumerate(x.shape))) if keepdims else made


# ---- NumPy's, beyond the standard


def lstsq(a: Array, b: Array, rcond: float | None = None) -> tuple[Array, Array, int, Array]:
    """(x, residuals, rank, singular values) of the least squares of a x - b, for one matrix; computed on the host by LAPACK."""
    m, n = _matrix("lstsq", a), node_of(b)
    x, rest, rank, s = _host("lstsq", lambda p, q: np.linalg.lstsq(p, q, rcond=rcond), m, n)
    return x, rest, int(rank), s


def cond(x: Array, p: Any = None) -> Array:
    """The condition number: by the singular values, or for another `p` by the matrix norms of x and its inverse."""
    if p is None or p == 2:
        s = svdvals(x)
        made: Array = s[..., 0] / s[..., -1]
        return made
    return multiply(matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p))


def multi_dot(arrays: Any) -> Array:
    """The product of several matrices (vectors at the ends), in the order of the fewest multiplications."""
    given = list(arrays)
    if not given:
        raise ArrayValueError("multi_dot of no arrays", hint="one or more")
    if any(x.ndim not in (1, 2) or (x.ndim == 1 and 0 < i < len(given) - 1) for i, x in enumerate(given)):
        raise ArrayValueError("multi_dot takes matrices, and vectors at the ends")
    rows = [x.shape[0] if x.ndim == 2 else 1 if i == 0 else x.shape[0] for i, x in enumerate(given)]
    extents = [*rows, given[-1].shape[1] if given[-1].ndim == 2 else 1]

    @cache
    def cost(i: int, j: int) -> tuple[int, int]:
        """(multiplications of the product of i to j, the last one of its first part)."""
        if i == j:
            return 0, i
        return min(
            (cost(i, k)[0] + cost(k + 1, j)[0] + extents[i] * extents[k + 1] * extents[j + 1], k) for k in range(i, j)
        )

    def product(i: int, j: int) -> Array:
        k = cost(i, j)[1]
        return given[i] if i == j else matmul(product(i, k), product(k + 1, j))

    return product(0, len(given) - 1)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, __all__)
