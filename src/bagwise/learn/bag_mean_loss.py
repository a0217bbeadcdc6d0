"""The bag loss for networks made with PyTorch."""

from bagwise.errors import BagsError, MissingExtraError, check_name

try:
    import torch
except ImportError:
    raise MissingExtraError("BagMeanLoss", "torch") from None

# From what a network puts out, eta, to the expected label: inverses of the links.
INVERSE_LINKS = {
    "gaussian": lambda eta: eta,
    "poisson": torch.exp,
    "bernoulli": torch.sigmoid,
}


CLASSES = "multinomial"


def means_of(predictions: torch.Tensor, family: str) -> torch.Tensor:
    """Return expected labels, (n,), or for classes their chances, (n, classes)."""
    if family == CLASSES:
        return torch.softmax(predictions, dim=1)
    return INVERSE_LINKS[family](predictions)


class BagMeanLoss(torch.nn.Module):  # type: ignore[misc]
    """Compare the mean prediction of each bag with the label of the bag.

    Parameters
    ----------
    family : {"gaussian", "poisson", "bernoulli", "multinomial"}
        The output of the network: the expected label itself, its logarithm, its log odds, or
        one score for each class, whose softmax gives the chances.

    Notes
    -----
    The loss is the mean over bags of ``(label - mean prediction of the bag)^2``, weighted by
    `bag_weight`. For every family the expected loss is smallest at the true expected labels, also
    if privacy noise has moved labels out of the range that the family allows: a mean of counts
    below zero is a label like any other. The likelihood does not have this property. With such
    labels it has no minimum, and a network can follow it to minus infinity.

    What the likelihood does have is efficiency, because it knows that a family's variance depends
    on the mean. Give one over the variance of each bag's label as `bag_weight` to get it back.

    Examples
    --------
    >>> loss = BagMeanLoss()
    >>> predictions = torch.tensor([1.0, 3.0, 5.0])       # two rows in the first bag
    >>> loss(predictions, torch.tensor([0, 0, 1]), torch.tensor([2.0, 8.0]))
    tensor(4.5000)
    """

    def __init__(self, family: str = "gaussian") -> None:
        super().__init__()
        check_name("family of a network", family, (*INVERSE_LINKS, CLASSES))
        self.family = family

    def forward(
        self,
        predictions: torch.Tensor,
        bag_index: torch.Tensor,
        bag_labels: torch.Tensor,
        bag_weight: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the weighted mean over bags of the squared error.

        Parameters
        ----------
        predictions : (n,) or (n, classes)
            What the network puts out for each row.
        bag_index : (n,) integers
            Bag of each row, 0 to m - 1; every bag has a row.
        bag_labels : (m,) or (m, classes)
        bag_weight : (m,) or (m, classes), optional
            All bags count the same without it.
        """
        means = bag_means(means_of(predictions, self.family), bag_index, len(bag_labels))
        squares = (bag_labels - means) ** 2
        if bag_weight is None:
            return squares.mean()
        weight = bag_weight if bag_weight.ndim == squares.ndim else bag_weight[:, None]
        return (weight * squares).sum() / weight.expand_as(squares).sum()

    def extra_repr(self) -> str:
        """Return the family, for the printed form of the module."""
        return f"family={self.family!r}"


def bag_means(values: torch.Tensor, bag_index: torch.Tensor, n_bags: int) -> torch.Tensor:
    """Average `values`, (n,) or (n, k), in each bag, so that gradients flow back to the rows.

    Examples
    --------
    >>> bag_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), 2)
    tensor([2., 5.])
    """
    if values.shape[:1] != bag_index.shape or values.ndim not in (1, 2) or values.shape[1:] == (1,):
        raise BagsError(
            "predictions and bag_index must be one number per row, got shapes "
            f"{tuple(values.shape)} and {tuple(bag_index.shape)}. Squeeze a column first."
        )
    sizes = torch.bincount(bag_index, minlength=n_bags)
    if sizes.numel() != n_bags or not sizes.all():
        raise BagsError(f"bag_index must name each of the {n_bags} bags, 0 to {n_bags - 1}.")
    sums = values.new_zeros((n_bags, *values.shape[1:])).index_add(0, bag_index, values)
    return sums / (sizes if values.ndim == 1 else sizes[:, None])
