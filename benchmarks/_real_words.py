"""Shares and tables as the pages of results write them."""

NOTHING = "–"


def percent(share: float | None, error: float | None = None) -> str:
    """Return a share in percent, with its standard error where there is one."""
    if share is None:
        return NOTHING
    if share < -9.995:
        return "< -999"
    digits = 1 if error is None or error < 0.1 else 0
    text = f"{100 * share:.{digits}f}"
    return text if error is None else f"{text} ± {100 * error:.{digits}f}"


def markdown(header: list[str], body: list[list[str]]) -> str:
    """Return a table; all columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *body])
