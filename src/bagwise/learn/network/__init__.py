"""A neural network that learns from bags; needs the extra ``bagwise[torch]``."""
