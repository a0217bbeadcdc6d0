"""Make text and numbers fit to print: text cannot control a terminal, numbers need no exponent."""

import re

# Control characters, marks that change the direction of text, other line ends, half characters.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str, *, keep: str = "") -> str:
    r"""Return text in which every control character is replaced by an escape.

    `keep` are characters to leave as they are, such as the ends of lines.

    >>> print(printable("rent\x1b[2J\u202e"), printable("one\ntwo"))
    rent\x1b[2J\u202e one\x0atwo
    """
    return _STEERING.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def figure(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, without an exponent where a reader wants none.

    >>> figure(28412.3), figure(286.4, 2), figure(0.0712, 2), figure(3e12)
    ('28,400', '290', '0.071', '3e+12')
    """
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}" if 10**digits <= abs(short) < 1e9 else f"{short:.{digits}g}"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
