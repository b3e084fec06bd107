"""tvm.autotvm: templates with a configuration, over tec.tuning. There is one search, which all of TVM's tuners stand for."""

from types import SimpleNamespace

from ..names import absent
from . import task
from .space import AnnotateEntity, OtherOptionEntity, ReorderEntity, SplitEntity
from .task import Task, Tuner, apply_history_best, get_config, log_to_file, nothing, progress_bar, template

measure_option = LocalBuilder = LocalRunner = nothing
tuner = SimpleNamespace(
    Tuner=Tuner, RandomTuner=Tuner, GridSearchTuner=Tuner, GATuner=Tuner, XGBTuner=Tuner, DropletTuner=Tuner
)
callback = SimpleNamespace(log_to_file=log_to_file, progress_bar=progress_bar)

__getattr__ = absent(__name__)
