"""Property tests here have fixed seeds, and no time limit an example: a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("tec", deadline=None, derandomize=True)
settings.load_profile("tec")
