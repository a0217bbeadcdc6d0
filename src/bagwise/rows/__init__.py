"""The rows of a table: sources, engines, and reading.

Sources become an Arrow table or stay on disk (`sources`, `opening`). `table.Rows` are in memory,
`opening.SpilledRows` on disk: vectors with one number a row (labels, bags, an order) are in memory
with both, columns of features need not be. `parts.Parts` are rows that nobody holds as a whole.
"""
