"""The layout of a lock's record, from lua/layout.py."""

import os
import sys

from .broker import TREE

sys.path.insert(0, os.path.join(TREE, "lua"))

from layout import RECORDS  # noqa: E402

# Offsets of the fields of the head, and of those of the first ticket.
HEAD_AT = RECORDS["HEAD"].at
FIRST_AT = {field: RECORDS["HEAD"].size + at
            for field, at in RECORDS["TICKET"].at.items()}
FIRST_WORDS_AT = RECORDS["HEAD"].size + RECORDS["TICKET"].size
