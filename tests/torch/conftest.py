"""Tests of the PyTorch frontend: `make torch` runs them in an environment that has torch; elsewhere they are skipped."""

import pytest

try:
    import torch
except ModuleNotFoundError:
    collect_ignore_glob = ["test_*.py"]
else:

    @pytest.fixture(autouse=True)
    def fresh():
        """The same weights and examples in every test, and nothing that TorchDynamo kept of another."""
        torch.manual_seed(0)
        torch._dynamo.reset()
        yield
