"""Remedies that errors of several operators share."""

# Of what a graph holds and tec cannot take in.
LEFT_TO_TORCH = 'torch.compile(module, backend="tec") leaves such a call to torch, and tec_torch.report() names it'

# Of an operator that is compiled for known sizes alone.
FIX_THE_SIZE = "a number for this size: in shapes= or in the exported program, or torch.compile(..., dynamic=False)"

# Of indices by a mask: how many elements they give depends on values.
KEEP_THE_SHAPE = f"torch.where(mask, x, other) has the shape of x; {LEFT_TO_TORCH}"

# Of a type that an operator has no meaning for.
OTHER_TYPE = "convert it before: x.to(torch.float32), or an integer type"
