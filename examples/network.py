"""Train a PyTorch network on bags, with a loss that compares bag means.

Run it with ``python examples/network.py``. It writes nothing. Needs ``bagwise[torch]``.
"""

import copy

import numpy as np
import torch

import bagwise as bw

ROWS, BAG_SIZE, BATCH, EPOCHS, PATIENCE = 2_000, 10, 32, 200, 20


def curve(X: np.ndarray) -> np.ndarray:
    """Return the expected label of each row, a function that no line can fit."""
    return np.sin(2 * X[:, 0]) + X[:, 1] ** 2


def train(X: np.ndarray, bags: bw.Bags, labels: np.ndarray) -> torch.nn.Module:
    """Train on most bags, and keep the weights that predict the held-out bags best."""
    network = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 1), torch.nn.Flatten(0),
    ).double()  # fmt: skip
    criterion = bw.BagMeanLoss()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    members = [torch.tensor(X[bags.index == bag]) for bag in range(bags.n_bags)]
    targets = torch.tensor(labels)

    def loss_of(chosen: torch.Tensor) -> torch.Tensor:
        rows = [members[bag] for bag in chosen]
        index = torch.repeat_interleave(torch.tensor([len(one) for one in rows]))
        return criterion(network(torch.cat(rows)), index, targets[chosen])

    held_out, training = torch.randperm(bags.n_bags).split([40, bags.n_bags - 40])
    least, best, since = float("inf"), copy.deepcopy(network.state_dict()), 0
    for _ in range(EPOCHS):
        for batch in training[torch.randperm(len(training))].split(BATCH):
            optimizer.zero_grad()
            loss_of(batch).backward()
            optimizer.step()
        with torch.no_grad():
            loss = float(loss_of(held_out))
        since += 1
        if loss < least:
            least, best, since = loss, copy.deepcopy(network.state_dict()), 0
        if since == PATIENCE:
            break
    network.load_state_dict(best)
    return network


def main() -> None:
    """Put similar rows into bags, learn from their mean labels, and compare."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    X, unseen = rng.uniform(-2, 2, size=(2, ROWS, 2))
    y = curve(X) + rng.normal(scale=0.3, size=ROWS)
    bags = bw.make_bags(X, bag_size=BAG_SIZE, strategy="kmeans", seed=0)
    network = train(X, bags, bags.mean(y))  # the network sees only the means
    with torch.no_grad():
        predictions = network(torch.tensor(unseen)).numpy()
    error = np.mean((predictions - curve(unseen)) ** 2)
    print(f"{ROWS} rows in {len(bags)} bags; mean squared error on new rows: {error:.3f}")
    print(f"of the mean label of all rows: {np.var(curve(unseen)):.3f}")


if __name__ == "__main__":
    main()
