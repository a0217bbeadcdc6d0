"""Generalised linear models from noisy linear answers about labels: one problem, one solver.

Whatever is known of the labels is a public linear map of them plus noise of a known law: means over
bags, or a few sums over all rows. Near a fit, both are linear models with known errors, so that one
solver (`solver`), one belief about slopes and one restricted likelihood (`shrinkage`), and one
estimate of uncertainty (`inference`) serve both. They differ in how sums over rows are made:
`problem` goes over parts of the bags, whose `units` (or `classes`) have the rows at hand, and
`statistic` has only some noisy sums.
"""
