"""A client that frameworks connect at its first use, once a process."""

from __future__ import annotations

import threading
from typing import Any, Callable, Mapping, Optional

from .threads import Holdfast, connect


class Once:
    """Call it for the client. `args` tells the arguments of connect()."""

    def __init__(self, args: Callable[[], Mapping[str, Any]]) -> None:
        self._args = args
        self._mutex = threading.Lock()
        self._client: Optional[Holdfast] = None

    def __call__(self) -> Holdfast:
        with self._mutex:
            if self._client is None:
                self._client = connect(**self._args())
            return self._client
