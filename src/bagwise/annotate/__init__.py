"""A labelling budget: rows are plentiful, labels are dear, and a few are bought.

Open `project` first: it goes from a table to rows to label (`designs`, judged by `expected` before
any label is there), from filled-in lists (`imports`) to answers that are never lost (`store`), and
from labels to a model (`uses`, chosen by `selection`). `boosted_releases` buys in rounds, too: from
a custodian, who releases bags.
"""

from bagwise.annotate.boosted_releases import BoostedReleases, release_in_rounds
from bagwise.annotate.project import AnnotationProject

__all__ = ["AnnotationProject", "BoostedReleases", "release_in_rounds"]
