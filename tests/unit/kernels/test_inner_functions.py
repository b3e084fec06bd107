"""Functions and lambdas that are defined within a kernel: inlined, with the names around them as they are when they are called."""

import numpy as np
import pytest

import tec


@tec.kernel
def powers(out, x, n):
    def power(v, count=3):
        r = 1.0
        for _ in range(count):
            r *= v
            if r > 1e6:
                return -1.0
        return r

    i = tec.grid_idx(1)
    if i < len(x):
        out[i] = power(x[i]) + power(x[i], count=n)


@tec.kernel
def runge_kutta(y, steps, dt):
    i = tec.grid_idx(1)
    rate = y[i]
    f = lambda t, v: rate - 2.0 * v + t  # noqa: E731
    v, t = y[i], 0.0
    for _ in range(steps):
        k1 = f(t, v)
        k2 = f(t + dt, v + dt * k1)
        v += dt / 2 * (k1 + k2)
        t += dt
    y[i] = v


@tec.kernel
def late(out, n):
    """A name is read when the function is called, a default when it is defined."""
    a = 1
    now = lambda x, a=a: 10 * a + x  # noqa: E731
    later = lambda x: 10 * a + x  # noqa: E731
    a = 2
    out[0], out[1] = now(5), later(5)
    for k in range(n):
        a += 1
        out[2] += later(k)

    def twice(f, x):
        def once(y):
            return f(y)

        return once(once(x))

    out[3] = twice(lambda q: q * q + n, 2)


DEVICES = [lambda: tec.cpu(), lambda: tec.rocm_emu("gfx1100", check="all")]


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "gfx1100"])
def test_inner_functions(device):
    dev = device()
    x = np.array([0.5, 2.0, 3.0, 500.0], np.float32)
    out = tec.nd.zeros((4,), "float32", dev)
    powers.launch(4)(out, tec.nd.array(x, dev), 2)
    np.testing.assert_allclose(out.numpy(), [0.375, 12, 36, -1 + 25e4])

    y = np.linspace(0, 1, 4, dtype=np.float32)
    held = tec.nd.array(y, dev)
    runge_kutta[1, 4](held, 5, 0.1)
    want, t = y.copy(), 0.0
    for _ in range(5):
        k1 = y - 2 * want + t
        want, t = want + 0.05 * (k1 + y - 2 * (want + 0.1 * k1) + t + 0.1), t + 0.1
    np.testing.assert_allclose(held.numpy(), want, rtol=1e-5)

    counts = tec.nd.zeros((4,), "int32", dev)
    late[1, 1](counts, 3)
    assert counts.numpy().tolist() == [15, 25, sum(10 * (3 + k) + k for k in range(3)), 7 * 7 + 3]


def weighted(x, first, *rest, scale=1.0):
    s = first * x
    for c in rest:
        s = s * x + c
    return s * scale + len(rest)


@tec.kernel
def any_number(out, x):
    i = tec.grid_idx(1)
    both = lambda *v: v[0] + v[-1]  # noqa: E731
    if i < len(x):
        out[i] = weighted(x[i], 2.0) + weighted(x[i], 1.0, 2.0, 3.0, scale=0.5) + both(x[i], 7.0, 1.0)


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "gfx1100"])
def test_functions_of_any_number_of_arguments(device):
    dev = device()
    x = np.array([0.5, 2.0, -3.0], np.float32)
    out = tec.nd.zeros((3,), "float32", dev)
    any_number.launch(3)(out, tec.nd.array(x, dev))
    np.testing.assert_allclose(out.numpy(), [weighted(v, 2) + weighted(v, 1, 2, 3, scale=0.5) + v + 1 for v in x])
