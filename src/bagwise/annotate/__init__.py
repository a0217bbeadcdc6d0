"""A labelling budget: rows are plentiful, labels are dear, and a few are bought.

Open `project` first: it goes from a table to rows to label (`designs`), from filled-in lists
(`imports`) to answers that are never lost (`store`), and from labels to a model (`fit`).
"""

from bagwise.annotate.project import AnnotationProject

__all__ = ["AnnotationProject"]
