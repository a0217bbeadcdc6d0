"""Shares as benchmarks print them."""


def percent(share: float | None, error: float | None = None) -> str:
    """Return a share in percent, with its standard error where there is one."""
    if share is None:
        return "–"
    if share < -9.995:
        return "< -999"
    digits = 1 if error is None or error < 0.1 else 0
    text = f"{100 * share:.{digits}f}"
    return text if error is None else f"{text} ± {100 * error:.{digits}f}"
