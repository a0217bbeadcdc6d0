"""Ledgers: what was spent on one data set over time, charged before noise is drawn.

`store` is the file and `entries` its contents. `fingerprints` recognise tables and ids without
storing them, `filters` decide whether a request fits, `ledger` is the budget, and `account`
connects a request with it.
"""

from bagwise.ledger.account import Account, open_account
from bagwise.ledger.ledger import Ledger

__all__ = ["Account", "Ledger", "open_account"]
