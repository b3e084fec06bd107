"""sklearn's models through skl2onnx, and operators of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tec_onnx
from onnx import TensorProto, helper

import tec
from tests import seeds
from tests.thinned import thinned_rows

ort = pytest.importorskip("onnxruntime")
ML = "ai.onnx.ml"
ROWS, FEATURES = 120, 6


def both(model: Any, feeds: dict[str, Any]) -> tuple[Any, Any]:
    """What tec and ONNX Runtime give."""
    session = ort.InferenceSession(model.SerializeToString())
    return tec_onnx.backend.run_model(model, [feeds[i.name] for i in model.graph.input]), session.run(None, feeds)


def node(op: str, feeds: dict[str, Any], outputs: dict[str, int], **attrs: Any) -> Any:
    """A model of one operator."""
    n = helper.make_node(op, list(feeds), list(outputs), domain=ML, **attrs)
    ins = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    outs = [helper.make_tensor_value_info(k, t, None) for k, t in outputs.items()]
    opsets = [helper.make_opsetid(ML, 3), helper.make_opsetid("", 21)]
    return helper.make_model(helper.make_graph([n], "g", ins, outs), opset_imports=opsets, ir_version=10)


# ---- drawn trees

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def drawn_trees(rng: np.random.Generator) -> dict[str, list[Any]]:
    """Attributes of some trees of different depths, over small whole numbers, so that equal ones are met."""
    nodes: dict[str, list[Any]] = {
        f"nodes_{k}": []
        for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
                  "missing_value_tracks_true")
    }  # fmt: skip
    ends: list[tuple[int, int]] = []
    for tree in range(int(rng.integers(1, 5))):
        todo, used = [(0, 0)], 1
        while todo:
            k, depth = todo.pop()
            leaf = depth >= rng.integers(1, 6)
            yes, no = (0, 0) if leaf else (used, used + 1)
            mode, tracks = "LEAF" if leaf else str(rng.choice(MODES)), int(rng.integers(2))
            # A missing value differs from all: ONNX Runtime takes the true branch then, whatever the node says of missing values.
            tracks = 1 if mode == "BRANCH_NEQ" else tracks
            values = (tree, k, int(rng.integers(FEATURES)), float(rng.integers(-2, 3)), mode, yes, no, tracks)
            for column, v in zip(nodes.values(), values):
                column.append(v)
            if leaf:
                ends.append((tree, k))
            else:
                todo += [(yes, depth + 1), (no, depth + 1)]
                used += 2
    return {**nodes, "ends": ends}


def drawn_rows(rng: np.random.Generator) -> Any:
    x = rng.integers(-3, 4, (17, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("seed", seeds.some(2))
def test_drawn_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    attrs = drawn_trees(rng)
    ends = attrs.pop("ends")
    x = drawn_rows(rng)
    how = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
    wanted = [(t, k, target) for t, k in ends for target in range(2)]
    model = node(
        "TreeEnsembleRegressor", {"x": x}, {"y": TensorProto.FLOAT}, **attrs, n_targets=2,
        aggregate_function=how, base_values=[0.5, -1.0], target_treeids=[t for t, _, _ in wanted],
        target_nodeids=[k for _, k, _ in wanted], target_ids=[i for _, _, i in wanted],
        target_weights=[float(w) for w in rng.standard_normal(len(wanted))],
    )  # fmt: skip
    got, want = both(model, {"x": x})
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_score_for_two_classes(sign: float, post: str) -> None:
    """Weights that are all positive are chances, others are scores around 0."""
    rng = np.random.default_rng(1)
    attrs = drawn_trees(rng)
    ends = attrs.pop("ends")
    x = drawn_rows(rng)
    weights = [float(w) for w in np.abs(rng.standard_normal(len(ends))) * 0.3 * sign]
    model = node(
        "TreeEnsembleClassifier", {"x": x}, {"label": TensorProto.INT64, "y": TensorProto.FLOAT}, **attrs,
        class_treeids=[t for t, _ in ends], class_nodeids=[k for _, k in ends], class_ids=[0] * len(ends),
        class_weights=weights, classlabels_int64s=[3, 7], post_transform=post,
    )  # fmt: skip
    got, want = both(model, {"x": x})
    assert (got[0] == want[0]).all()
    np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-6)


def test_trees_that_do_not_fit_are_refused() -> None:
    x = np.zeros((2, 3), np.float32)

    def model(feature: int, yes: int) -> Any:
        return node(
            "TreeEnsembleRegressor", {"x": x}, {"y": TensorProto.FLOAT}, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
            nodes_featureids=[feature, 0, 0], nodes_values=[0.0] * 3, nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
            nodes_truenodeids=[1, yes, 0], nodes_falsenodeids=[2, 2, 0], target_treeids=[0], target_nodeids=[2],
            target_ids=[0], target_weights=[1.0],
        )  # fmt: skip

    with pytest.raises(tec.ImportModelError, match="feature 3 of 3"):
        tec_onnx.from_onnx(model(3, 2))
    with pytest.raises(tec.ImportModelError, match="cycle"):
        tec_onnx.from_onnx(model(0, 0))


# ---- other operators


@thinned_rows(3, "op, attrs", [
    ("Normalizer", {"norm": "L1"}),
    ("Normalizer", {"norm": "MAX"}),
    ("Scaler", {"offset": [1.0], "scale": [2.0]}),
    ("LinearRegressor", {"coefficients": [1.0] * 2 * FEATURES, "targets": 2, "post_transform": "SOFTMAX"}),
    ("Imputer", {"imputed_value_floats": [5.0], "replaced_value_float": 2.0}),
    ("FeatureVectorizer", {"inputdimensions": [FEATURES + 2]}),
    ("SVMRegressor", {"kernel_type": "POLY", "kernel_params": [0.5, 1.0, 3.0], "n_supports": 2, "rho": [0.25],
                      "support_vectors": [0.5] * 2 * FEATURES, "coefficients": [1.0, -2.0]}),
])  # fmt: skip
def test_node(op: str, attrs: dict[str, Any]) -> None:
    x = np.random.default_rng(2).integers(1, 4, (5, FEATURES)).astype(np.float32)
    got, want = both(node(op, {"x": x}, {"y": TensorProto.FLOAT}, **attrs), {"x": x})
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)


# ---- sklearn


def models() -> dict[str, Callable[[], Any]]:
    from sklearn import (
        calibration,
        cluster,
        decomposition,
        ensemble,
        impute,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        preprocessing,
        svm,
        tree,
    )  # fmt: skip
    from sklearn.pipeline import make_pipeline as pipe

    plain, soft = linear_model.LogisticRegression, {"voting": "soft", "flatten_transform": False}
    return {
        "linear": linear_model.LinearRegression,
        "logistic": plain,
        "ridge": linear_model.Ridge,
        "SVC": lambda: svm.SVC(probability=True),
        "SVR": svm.SVR,
        "linear SVC": svm.LinearSVC,
        "tree": tree.DecisionTreeClassifier,
        "forest": lambda: ensemble.RandomForestClassifier(9),
        "forest, regression": lambda: ensemble.RandomForestRegressor(9),
        "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=9),
        "nearest": neighbors.KNeighborsClassifier,
        "naive Bayes": naive_bayes.GaussianNB,
        "perceptron": lambda: neural_network.MLPClassifier((8,), max_iter=20),
        "isolation": lambda: ensemble.IsolationForest(n_estimators=5, random_state=0),
        "scaled": lambda: pipe(preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), plain()),
        "one hot": lambda: pipe(
            preprocessing.KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), linear_model.Ridge()
        ),
        "imputed": lambda: pipe(impute.SimpleImputer(), plain()),
        "components": lambda: pipe(decomposition.PCA(3), plain()),
        "means": lambda: cluster.KMeans(3, n_init=1),
        "voting": lambda: ensemble.VotingClassifier(
            [("a", plain()), ("b", tree.DecisionTreeClassifier(max_depth=3))], **soft
        ),
        "calibrated": lambda: calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2),
    }


NAMES = (
    "linear", "logistic", "ridge", "SVC", "SVR", "linear SVC", "tree", "forest", "forest, regression", "boosting", "nearest",
    "naive Bayes", "perceptron", "isolation", "scaled", "one hot", "imputed", "components", "means", "voting", "calibrated",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", seeds.some(2 if seeds.number() else 1))
def test_sklearn(seed: int) -> None:
    """A drawn kind of model predicts as sklearn does; texts as classes and maps of chances too."""
    skl2onnx = pytest.importorskip("skl2onnx")
    rng = np.random.default_rng(seed)
    name = str(rng.choice(NAMES))
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    number = x[:, 0] - 2 * x[:, 1] + rng.standard_normal(ROWS) * 0.1
    model = models()[name]()
    classifies = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    names = np.array(["blue", "green", "red"]) if rng.integers(2) and name not in _NUMBERS else np.arange(3)
    target = names[np.digitize(number, [-1, 1])] if classifies else number
    model.fit(x, target)
    maps = bool(rng.integers(2)) and hasattr(model, "predict_proba") and name not in _NUMBERS
    options = None if maps or not hasattr(model, "classes_") else {id(model): {"zipmap": False}}
    proto = skl2onnx.to_onnx(model, x[:1], options=options, target_opset={"": 21, ML: 3})
    got = tec_onnx.backend.run_model(proto, [x])
    want = model.predict(x)
    if np.asarray(want).dtype.kind == "f":
        np.testing.assert_allclose(got[0].reshape(-1), want, rtol=1e-4, atol=1e-4)
    else:
        assert (got[0].reshape(-1) == want).all()
    if hasattr(model, "predict_proba") and classifies:
        chances = [[row[k] for k in model.classes_.tolist()] for row in got[1]] if maps else got[1]
        np.testing.assert_allclose(chances, model.predict_proba(x), atol=1e-4)


def test_maps_of_chances_are_an_array_in_a_compiled_network() -> None:
    """ZipMap's rows keep the order of its labels; a session gives dicts."""
    x, labels = np.array([[1, -1], [0.5, 2], [3, 0]], "float32"), [9, 3, 5]
    scores = helper.make_node(
        "LinearClassifier", ["x"], ["label", "p"], domain=ML, coefficients=[1.0, -1.0, 0.5, 0.25, -0.5, 1.5],
        intercepts=[0.0, 0.5, 0.25], classlabels_ints=labels, post_transform="SOFTMAX")  # fmt: skip
    zipped = helper.make_node("ZipMap", ["p"], ["z"], domain=ML, classlabels_int64s=labels)
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    graph = helper.make_graph(
        [scores, zipped], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, [None]), helper.make_value_info("z", maps)])  # fmt: skip
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=9
    )
    label, chances = tec.compile(proto, "llvm").run({"x": x})
    want = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(label, want[0])
    np.testing.assert_allclose(chances, [[row[k] for k in labels] for row in want[1]], rtol=1e-5)
    (_, rows), (_, wanted) = tec_onnx.session(proto).run({"x": x}), want
    assert [sorted(r) for r in rows] == [sorted(r) for r in wanted]


_NUMBERS = ("nearest", "voting", "calibrated", "means", "isolation", "linear SVC", "naive Bayes", "perceptron")


def test_encoders_of_numbers_are_compiled_as_one_module() -> None:
    """Not asked of the host: one module. A category that a strict encoder does not know fails the run."""
    x = np.array([[3.0], [9.0], [1.0], [4.0]], "float32")
    one_hot = node("OneHotEncoder", {"x": x}, {"y": TensorProto.FLOAT}, cats_int64s=[1, 3, 4, 9], zeros=0)
    net = tec.compile(one_hot, "llvm")
    np.testing.assert_array_equal(net.run({"x": x})[0][:, 0], np.eye(4, dtype="float32")[[1, 3, 0, 2]])
    with pytest.raises(tec.TecError, match="does not know"):
        net.run({"x": x + 1})

    x = np.array([3, 9.5, np.nan, 7, -1], "float32")
    model = node("LabelEncoder", {"x": x}, {"y": TensorProto.INT64}, keys_floats=[9.5, np.nan, 3.0], values_int64s=[2**40, -7, 5], default_int64=11)  # fmt: skip
    (got,) = tec.compile(model, "llvm").run({"x": x})
    assert got.dtype == np.int64 and got.tolist() == [5, 2**40, -7, 11, 11]
    model = node("LabelEncoder", {"x": x}, {"y": TensorProto.FLOAT}, keys_floats=[3.0, -1.0], values_floats=[0.25, np.inf], default_float=-2.0)  # fmt: skip
    (got,) = tec.compile(model, "llvm").run({"x": x})
    np.testing.assert_array_equal(got, ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0])
