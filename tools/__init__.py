"""Scripts for whoever works on bagwise; nothing here is installed."""
