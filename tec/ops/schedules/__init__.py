"""Schedules by structure: from the te tensors of one fused group of operators to a Schedule for a target.

`schedule_group(outputs, target) -> Schedule` looks at what the stages are (injective, reduction, matrix product, convolution, scan,
extern) and not at which operator they came from; computes that want a special template say so by their te `tag`
("matmul", "conv2d", "depthwise", "pool", "softmax"...) and `attrs`. One file a kind: cpu.py, gpu.py, matmul.py, conv.py.
"""
