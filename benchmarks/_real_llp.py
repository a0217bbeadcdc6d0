"""llp-learn, the peer for classes: which of its classifiers run, on how many rows in a minute.

Each runs in a process of its own, so that one that takes too long can be stopped:
``python -m benchmarks._real_llp NAME TASK.npz ANSWER.npz``.

llp-learn 1.6 asks for numpy 1.24 and torch 2.0 and would replace what bagwise needs, so it is not
in the group `bench`. Install it apart, and name the place in PYTHONPATH:
``pip install --no-deps --target DIR llp-learn``.
"""

import importlib.util
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 60  # seconds for one fit, with the start of the process
CLASSIFIERS = ("EM, logistic", "alter-SVM", "DLLP", "LLPFC", "LLP-VAT", "MixBag")
_NETWORK = {"lr": 1e-3, "n_epochs": 20, "model_type": "simple-mlp", "n_jobs": 0, "random_state": 0}


def is_installed() -> bool:
    """Whether llp-learn can be found."""
    return importlib.util.find_spec("llp_learn") is not None


def run(
    name: str, X: Any, bags: Any, shares: Any, held_out: Any, *, limit: float = LIMIT
) -> tuple[Any, str]:
    """Return scores of the held-out rows, or None and why there are none.

    Parameters
    ----------
    X, held_out : (n, d), (t, d) floats
        Standardised.
    bags : (n,) integers
    shares : (m,) floats
        Share of ones in each bag.
    """
    with tempfile.TemporaryDirectory() as place:
        task, answer = Path(place) / "task.npz", Path(place) / "answer.npz"
        np.savez(task, X=X, bags=bags, shares=shares, held_out=held_out)
        command = [sys.executable, "-m", "benchmarks._real_llp", name, str(task), str(answer)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return None, f"stopped after {limit:g} s"
        if done.returncode:
            return None, done.stderr.strip().splitlines()[-1]
        return np.load(answer)["scores"], ""


def _linear(classifier: Any) -> Callable[[Any], Any]:
    model = classifier.model
    if hasattr(model, "predict_proba"):
        return lambda X: model.predict_proba(X)[:, 1]
    scores: Callable[[Any], Any] = model.decision_function
    return scores


def _network(classifier: Any) -> Callable[[Any], Any]:
    import torch

    def chances(X: Any) -> Any:
        classifier.model.eval()
        with torch.no_grad():
            return torch.softmax(classifier.model(torch.as_tensor(X)), dim=1)[:, 1].numpy()

    return chances


def _classifier(name: str) -> tuple[Any, Callable[[Any], Callable[[Any], Any]]]:
    """Return a classifier, and how to read scores from it once it is fitted."""
    if name == "EM, logistic":
        from llp_learn.em import EM
        from sklearn.linear_model import LogisticRegression

        return EM(LogisticRegression(), init_y="random", random_state=0), _linear
    if name == "alter-SVM":
        from llp_learn.alter import alterSVM

        return alterSVM(random_state=0), _linear
    _stand_in_for_torchvision()
    if name == "DLLP":
        from llp_learn.dllp import DLLP

        return DLLP(**_NETWORK), _network
    if name == "LLPFC":
        from llp_learn.llpfc import LLPFC

        return LLPFC(**_NETWORK), _network
    if name == "LLP-VAT":
        from llp_learn.llpvat import LLPVAT

        return LLPVAT(xi=1e-6, eps=6.0, ip=1, **_NETWORK), _network
    from llp_learn.mixbag import MixBag

    options = {"consistency": "none", "choice": "uniform", "confidence_interval": 0.005}
    return MixBag(**options, **_NETWORK), _network


def _stand_in_for_torchvision() -> None:
    # llp-learn imports resnet18 for images, does not list torchvision among what it needs, and
    # does not touch it for tables.
    if importlib.util.find_spec("torchvision") is None:
        models = types.ModuleType("torchvision.models")
        models.resnet18 = None  # type: ignore[attr-defined]
        sys.modules |= {"torchvision": types.ModuleType("torchvision"), models.__name__: models}


def main() -> None:
    """Fit one classifier to a task, and write its scores."""
    name, task, answer = sys.argv[1:]
    given = np.load(task)
    classifier, reader = _classifier(name)
    kind = np.float32 if reader is _network else np.float64
    shares = given["shares"].astype(kind)
    classifier.fit(given["X"].astype(kind), given["bags"], shares)
    scores = np.asarray(reader(classifier)(given["held_out"].astype(kind)), dtype=np.float64)
    if not np.isfinite(scores).all():
        raise SystemExit("scores are not finite")
    np.savez(answer, scores=scores)


if __name__ == "__main__":
    main()
