"""Names of buffers as the runtime knows them: one each, in place where a function is nobody else's."""

import tec
from tec.codegen.signature import uniquely_named
from tec.ir import Alloc, Buffer
from tec.ir.visit import visit


def _function():
    """Two buffers called `part`, one a step."""

    def body(ins, outs):
        ib = tec.ir_builder.create()
        x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        for k in range(2):
            part = ib.allocate("float32", (4,), name="part", scope="local")
            with ib.for_range(0, 4) as i:
                part[i] = x[i] + float(k)
            with ib.for_range(0, 4) as i:
                y[i] = part[i]
        return ib.get()

    a = tec.placeholder((4,), name="a")
    b = tec.extern((4,), [a], body, dtype="float32", name="b")
    return tec.schedule.to_loops(tec.create_schedule(b.op), [a, b])


def _allocated(func) -> list[Buffer]:
    found: list[Buffer] = []
    visit(func.body, None, lambda s: found.append(s.buffer) if isinstance(s, Alloc) else None)
    return sorted(found, key=lambda b: b.name)


def test_a_copy_leaves_the_function_as_it_is():
    func = _function()
    named = uniquely_named(func)
    assert [b.name for b in _allocated(func)] == ["part", "part"]
    assert [b.name for b in _allocated(named)] == [b.data.name for b in _allocated(named)] == ["part", "part_1"]


def test_a_fresh_function_is_named_in_place():
    func = _function()
    assert uniquely_named(func, fresh=True) is func
    assert [b.data.name for b in _allocated(func)] == ["part", "part_1"]


def test_parameters_are_never_renamed_in_place():
    func = _function()
    func = func.__class__(
        func.name, (func.params[0], tec.decl_buffer((4,), "float32", name="a")), func.body, func.attrs
    )
    named = uniquely_named(func, fresh=True)
    assert named is not func and [p.name for p in func.params] == ["a", "a"] and named.params[1].name == "a_1"
