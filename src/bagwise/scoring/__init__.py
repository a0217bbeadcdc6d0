"""How good a model is: openly, or under a budget."""
