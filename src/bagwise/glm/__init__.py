"""Generalised linear models from noisy linear answers about labels: one problem, one solver.

Whatever is known of the labels is a public linear map of them plus noise of a known law: means over
bags, or a few sums over all rows. Close to a fit both are a linear model with known errors, so that
one solver (`solver`), one belief about slopes and one restricted likelihood (`shrinkage`), and one
way to tell how sure a fit is (`inference`) serve both. What differs is how sums over rows are made:
`problem` and `classes` have the rows at hand, `parts` goes over parts of them, and `statistic`
knows nothing but some noisy sums.
"""
