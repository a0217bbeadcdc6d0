"""What was spent on one data set over time, in one file: charged before noise is drawn.

`store` is the file, `entries` what is written into it, `fingerprints` how tables and ids are known
again without being kept, `filters` whether what is asked for still fits, `ledger` the budget, and
`account` the dealings of one request with it.
"""

from bagwise.ledger.account import Account, open_account
from bagwise.ledger.ledger import Ledger

__all__ = ["Account", "Ledger", "open_account"]
