"""What a learner keeps: a row-level model, and its coefficients."""
