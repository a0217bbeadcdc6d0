"""The bag loss in PyTorch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, StrategyError
from bagwise.families import find_family
from bagwise.learn.bag_mean_loss import INVERSE_LINKS, BagMeanLoss


def tensor(*values, dtype=None):
    return torch.tensor(values, dtype=dtype or torch.float64)


class TestBagMeanLoss:
    index = torch.tensor([0, 2, 1, 0])
    labels = tensor(1.0, 5.0, -2.0)

    def test_by_hand(self):
        # Bag means are 2, 5 and 3: squares of the errors are 1, 0 and 25.
        predictions = tensor(1.0, 3.0, 5.0, 3.0)
        loss = BagMeanLoss()(predictions, self.index, self.labels)
        assert float(loss) == pytest.approx(26 / 3)
        weight = tensor(2.0, 5.0, 1.0)
        loss = BagMeanLoss()(predictions, self.index, self.labels, weight)
        assert float(loss) == pytest.approx((2 * 1 + 25) / 8)

    @pytest.mark.parametrize("family", INVERSE_LINKS)
    def test_links_are_those_of_the_families(self, family):
        eta = np.array([-1.0, 0.3, 2.0, -0.4])
        mean = Bags(self.index.numpy()).mean(find_family(family).mean(eta))
        expected = np.mean((self.labels.numpy() - mean) ** 2)
        loss = BagMeanLoss(family)(torch.tensor(eta), self.index, self.labels)
        assert float(loss) == pytest.approx(expected)

    def test_single_rows_have_the_usual_squared_error(self):
        rng = torch.Generator().manual_seed(0)
        predictions, labels = torch.randn(2, 50, generator=rng)
        found = BagMeanLoss()(predictions, torch.arange(50), labels)
        torch.testing.assert_close(found, torch.nn.functional.mse_loss(predictions, labels))

    @pytest.mark.parametrize("family", INVERSE_LINKS)
    def test_gradients(self, family):
        rng = torch.Generator().manual_seed(0)
        index = torch.tensor([0, 1, 1, 3, 2, 2, 2, 0])
        draw = {"generator": rng, "dtype": torch.float64}
        predictions = torch.randn(8, **draw).requires_grad_()
        labels = torch.randn(4, **draw).requires_grad_()  # some outside the family's range
        weight = torch.rand(4, **draw).requires_grad_()

        def loss(predictions, labels, weight):
            return BagMeanLoss(family)(predictions, index, labels, weight)

        assert torch.autograd.gradcheck(loss, (predictions, labels, weight))

    def test_every_row_of_a_bag_gets_the_same_share_of_the_gradient(self):
        predictions = tensor(1.0, 3.0, 5.0, 3.0).requires_grad_()
        BagMeanLoss()(predictions, self.index, self.labels).backward()
        # Of bag 0: 2 * (2 - 1) / 3 bags / 2 rows for each.
        torch.testing.assert_close(predictions.grad, tensor(1 / 3, 10 / 3, 0, 1 / 3))

    def test_single_precision_stays_single(self):
        values = torch.ones(4, dtype=torch.float32)
        assert BagMeanLoss()(values, self.index, self.labels.float()).dtype == torch.float32

    @pytest.mark.parametrize(
        ("predictions", "index", "message"),
        [
            (torch.zeros(4, 1), [0, 0, 1, 2], r"got shapes \(4, 1\) and \(4,\)"),
            (torch.zeros(3), [0, 0, 1, 2], r"got shapes \(3,\) and \(4,\)"),
            (torch.zeros(4), [0, 0, 2, 2], "must name each of the 3 bags, 0 to 2"),
            (torch.zeros(4), [0, 1, 2, 3], "must name each of the 3 bags, 0 to 2"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, predictions, index, message):
        with pytest.raises(BagsError, match=message):
            BagMeanLoss()(predictions, torch.tensor(index), torch.zeros(3))

    def test_families(self):
        assert repr(BagMeanLoss("poisson")) == "BagMeanLoss(family='poisson')"
        with pytest.raises(StrategyError, match="unknown family of a network 'gamma'"):
            BagMeanLoss("gamma")

    def test_classes_by_hand(self):
        scores = torch.log(tensor([0.2, 0.8], [0.6, 0.4], [0.5, 0.5]))
        index, labels = torch.tensor([0, 0, 1]), tensor([0.5, 0.5], [1.0, 0.0])
        loss = BagMeanLoss("multinomial")
        # Bag means are (0.4, 0.6) and (0.5, 0.5).
        assert float(loss(scores, index, labels)) == pytest.approx((2 * 0.01 + 2 * 0.25) / 4)
        weight = tensor(3.0, 1.0)
        assert float(loss(scores, index, labels, weight)) == pytest.approx((0.06 + 0.5) / 8)
        each = tensor([3.0, 1.0], [0.0, 4.0])
        assert float(loss(scores, index, labels, each)) == pytest.approx((0.04 + 1.0) / 8)

    @pytest.mark.parametrize(
        ("family", "shape"),
        [("poisson", lambda x: np.abs(x) - 1), ("bernoulli", lambda x: 3 - 3 * np.abs(x))],
    )
    def test_expected_labels_are_found_from_noisy_labels_out_of_range(self, family, shape):
        rng, kind = np.random.default_rng(0), find_family(family)
        x = rng.uniform(-2, 2, size=3000)
        bags = Bags(np.argsort(np.argsort(x + rng.normal(size=3000))) // 10)
        labels = bags.mean(kind.sample(shape(x), phi=1.0, rng=rng)) + 0.2 * rng.normal(size=300)
        low, high = kind.label_range
        assert ((labels < low) | (labels > high)).any()
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Linear(1, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        ).double()
        optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
        rows, index = torch.tensor(x[:, None]), torch.tensor(bags.index)
        for _ in range(300):
            optimizer.zero_grad()
            BagMeanLoss(family)(network(rows).squeeze(1), index, torch.tensor(labels)).backward()
            optimizer.step()
        found = kind.mean(network(rows).detach().numpy()[:, 0])
        truth = kind.mean(shape(x))
        assert np.mean((found - truth) ** 2) < 0.15 * np.var(truth)


class TestWithoutTorch:
    def run(self, code):
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    def test_nothing_imports_it_before_it_is_used(self):
        code = "import sys, bagwise, bagwise.learn; print('torch' in sys.modules)"
        assert self.run(code).strip() == "False"

    def test_the_error_names_the_extra(self):
        code = """
import sys
import bagwise.learn
sys.modules["torch"] = None  # as if it were not installed
try:
    from bagwise.learn.bag_mean_loss import BagMeanLoss
except ImportError as error:
    print(error)
"""
        advice = 'needs an optional dependency: pip install "bagwise[torch]"'
        assert self.run(code).splitlines() == [f"BagMeanLoss {advice}"]
