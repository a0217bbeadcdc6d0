"""Theory beside the product: what the paper prints, next to what holds."""
