"""Releases of bags that stay as they are, while the noise on their labels is drawn again.

Making bags is most of the work of a release, and where bags come from features alone they are the
same whatever the noise.
"""

from dataclasses import replace

import bagwise as bw
from bagwise._types import FloatArray
from bagwise.privacy.noise import noisy_bag_labels
from bagwise.rng import NoiseSource


def can_be_redrawn(release: bw.Release) -> bool:
    """Return whether only the noise on bag means was drawn from labels, in the table's order."""
    how, events = release.provenance, release.certificate.events
    alone = len(events) == 1 and events[0].hides == "bag means"
    return alone and how.scores == "none" and how.row_order == "kept"


def redrawn(release: bw.Release, labels: FloatArray, source: NoiseSource) -> bw.Release:
    """Return the release with fresh noise from `source`, of the kind and scale that it has.

    Parameters
    ----------
    release : Release
        Private means of bags without scores, made with ``keep_order=True``.
    labels : (n,) floats
        The true labels of the table, in its order.
    """
    if not can_be_redrawn(release):
        raise ValueError("only means of bags without scores, in the table's order, are redrawn.")
    certificate = release.certificate
    values = noisy_bag_labels(
        labels, release.bags, bounds=certificate.bounds, event=certificate.events[0], source=source
    )
    return replace(release, labels=values)
