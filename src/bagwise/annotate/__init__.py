"""Labelling budgets: rows are plentiful, labels are expensive, and only a few can be bought.

Start with `project`: it chooses the rows of a table to label, imports completed lists, stores all
answers (`store`), and fits a model to them (`fit`).
"""

from bagwise.annotate.project import AnnotationProject

__all__ = ["AnnotationProject"]
