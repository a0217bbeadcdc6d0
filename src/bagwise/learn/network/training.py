"""Train a network on mini-batches of whole bags.

This module imports PyTorch, so nothing imports it before a network is needed.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import StrategyError
from bagwise.families import Family, find_family
from bagwise.learn.bag_data import BagData
from bagwise.learn.network.loss import BagMeanLoss, means_of
from bagwise.show.stages import report_progress

_ROWS_AT_A_TIME = 65_536  # of a prediction: its memory does not grow with the table
_FEWEST_HELD_OUT = 20  # fewer bags say nothing about when to stop

LossOf = Callable[[torch.Tensor], torch.Tensor]


class RowNetwork(nn.Module):  # type: ignore[misc]
    """A network from features as they come to the linear predictor of each row.

    `body` sees standardised features and puts out numbers of usual size one.
    """

    def __init__(
        self,
        body: nn.Module,
        *,
        center: FloatArray,
        spread: FloatArray,
        offset: FloatArray,
        scale: float,
    ) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("center", torch.as_tensor(center))
        self.register_buffer("spread", torch.as_tensor(spread))
        self.register_buffer("offset", torch.as_tensor(offset))
        self.register_buffer("scale", torch.as_tensor(scale))
        self.double()  # so that a weight of two is the same as two rows

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return eta, (n,) or (n, classes), for rows X, (n, d)."""
        out = self.body((X - self.center) / self.spread)
        shape = (len(X), *self.offset.shape)
        if out.numel() != len(X) * self.offset.numel():
            wanted = "one number per row"
            if self.offset.ndim:
                wanted = f"{self.offset.numel()} numbers per row, one for each class"
            raise StrategyError(
                f"module must put out {wanted}, got shape {tuple(out.shape)} for {len(X)} rows."
            )
        return self.offset + self.scale * out.reshape(shape)


class BagBatches:
    """Rows in the order of their bags, from which any set of bags can be taken at once."""

    def __init__(self, data: BagData, weight: FloatArray) -> None:
        self._rows = torch.from_numpy(data.X[np.argsort(data.bags.index, kind="stable")])
        self._sizes = torch.tensor(data.bags.sizes)
        self._starts = torch.cumsum(self._sizes, 0) - self._sizes
        self._labels = torch.from_numpy(data.labels)
        self._weight = torch.from_numpy(weight)

    def take(
        self, bags: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the rows of these bags, the bag of each row, and the bags' labels and weights."""
        sizes = self._sizes[bags]
        index = torch.repeat_interleave(torch.arange(len(bags)), sizes)
        place = torch.arange(len(index)) - (torch.cumsum(sizes, 0) - sizes)[index]
        rows = self._rows[self._starts[bags][index] + place]
        return rows, index, self._labels[bags], self._weight[bags]


@dataclass(frozen=True)
class Training:
    """What to train on, and how; `BaggedNetwork` explains the parameters."""

    data: BagData
    make_body: Callable[[int], nn.Module]
    criterion: BagMeanLoss
    epochs: int
    bags_per_batch: int
    learning_rate: float
    weight_decay: float
    validation_share: float
    patience: int
    seed: int

    def run(self, weight: FloatArray) -> tuple[RowNetwork, int]:
        """Fit to the bags with a weight above zero; return the network and the epochs it took."""
        # The first weights, the held-out bags, the order of bags and dropout follow from the
        # seed; PyTorch's own generator is left as it was.
        with torch.random.fork_rng(devices=[]), _one_thread():
            torch.manual_seed(self.seed)
            # The network first: its weights do not depend on the number of bags then.
            center, variance = _moments(self.data.labels, weight)
            network = self._make_network(center, variance)
            usable = torch.from_numpy(np.flatnonzero(_by_bag(weight)))
            usable = usable[torch.randperm(len(usable))]
            count = int(self.validation_share * len(usable))
            count = count if count >= _FEWEST_HELD_OUT else 0
            batches = BagBatches(self.data, weight / weight[weight > 0].mean())

            def loss_of(bags: torch.Tensor) -> torch.Tensor:
                rows, index, labels, bag_weight = batches.take(bags)
                # A batch counts by its weights, which are one on average over all bags; and the
                # loss is of usual size one, whatever the unit of the labels.
                share = bag_weight.mean() / variance
                return self.criterion(network(rows), index, labels, bag_weight) * share

            return network, self._improve(network, loss_of, usable[count:], usable[:count])

    def predict_bags(self, chosen: AnyArray, weight: FloatArray) -> FloatArray:
        """Fit to the bags in the mask, with weights; return the predicted mean of every bag."""
        network, _ = self.run(
            np.where(chosen if weight.ndim == 1 else chosen[:, None], weight, 0.0)
        )
        return self.data.bags.mean(predict_rows(network, self.data.X, family=self.criterion.family))

    def _make_network(self, center: FloatArray, variance: float) -> RowNetwork:
        """Start from the mean label, in units in which learning is easy."""
        data, family = self.data, find_family(self.criterion.family)
        scaler = StandardScaler().fit(data.X, sample_weight=data.bags.repeat(data.weight))
        return RowNetwork(
            self.make_body(data.X.shape[1]),
            center=scaler.mean_,
            spread=scaler.scale_,
            offset=_first_score(family, center),
            # The links of the other families make labels of any size from numbers of size one.
            scale=float(np.sqrt(variance)) if family.name == "gaussian" else 1.0,
        )

    def _improve(
        self, network: RowNetwork, loss_of: LossOf, training: torch.Tensor, held_out: torch.Tensor
    ) -> int:
        """Train until held-out bags stop getting better, and go back to where they were best."""
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        least, best_epoch, best = np.inf, 0, None
        for epoch in range(1, self.epochs + 1):
            network.train()
            for bags in training[torch.randperm(len(training))].split(self.bags_per_batch):
                optimizer.zero_grad()
                loss_of(bags).backward()
                optimizer.step()
            report_progress("training the network", epoch / self.epochs)
            if not len(held_out):
                continue
            loss = _loss_without_training(network, loss_of, held_out)
            if loss < least:
                least, best_epoch, best = loss, epoch, copy.deepcopy(network.state_dict())
            elif epoch - best_epoch >= self.patience:
                report_progress("training the network", 1.0)
                break
        if best is not None:
            network.load_state_dict(best)
        if not all(bool(values.isfinite().all()) for values in network.parameters()):
            raise StrategyError("training diverged. Choose a smaller learning_rate.")
        return epoch


def make_layers(n_features: int, hidden: Sequence[int], outputs: int = 1) -> nn.Module:
    """Build the usual network: linear layers with rectifiers between them."""
    widths = [n_features, *hidden]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def predict_rows(network: RowNetwork, X: FloatArray, *, family: str) -> FloatArray:
    """Return the expected label of each row, or the chances of its classes."""
    network.eval()
    with torch.no_grad():
        parts = torch.tensor(X).split(_ROWS_AT_A_TIME)
        means = [means_of(network(part), family) for part in parts]
    return np.asarray(torch.cat(means).numpy())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep PyTorch to one thread: on batches of this size, several wait more than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _loss_without_training(network: RowNetwork, loss_of: LossOf, bags: torch.Tensor) -> float:
    network.eval()
    with torch.no_grad():
        return float(loss_of(bags))


def _moments(labels: FloatArray, weight: FloatArray) -> tuple[FloatArray, float]:
    """Return mean and variance of the labels; a variance of one if they are all the same."""
    by_bag = _by_bag(weight)
    center = np.asarray(np.average(labels, axis=0, weights=by_bag))
    variance = float(np.mean(np.average((labels - center) ** 2, axis=0, weights=by_bag)))
    return center, variance if variance > 1e-24 * float(np.mean(center**2)) else 1.0


def _by_bag(weight: FloatArray) -> FloatArray:
    return weight if weight.ndim == 1 else np.asarray(weight.mean(axis=1))


def _first_score(family: Family, center: FloatArray) -> FloatArray:
    """Return what a network puts out for the mean label: a number, or one for each class."""
    inside = np.vectorize(family.interior, otypes=[np.float64])(center)
    return np.log(inside) if family.has_classes else np.asarray(family.predictor(inside))
