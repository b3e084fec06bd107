"""Property tests here have fixed seeds at the gate, and no time limit an example: a busy machine is no failure."""

from hypothesis import settings

from tests import seeds

settings.register_profile("tec", deadline=None, derandomize=not seeds.number())
settings.load_profile("tec")
