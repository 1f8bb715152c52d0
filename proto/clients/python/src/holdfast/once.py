"""A client that frameworks connect at its first use, once a process."""

from __future__ import annotations

import concurrent.futures
import os
from typing import Any, Callable, Dict, Mapping

from .threads import Holdfast, connect


class Once:
    """Call it for the client. `args` tells the arguments of connect(). All who
    call meanwhile share one attempt, and its error."""

    def __init__(self, args: Callable[[], Mapping[str, Any]]) -> None:
        self._args = args
        self._attempts: Dict[int, concurrent.futures.Future[Holdfast]] = {}

    def __call__(self) -> Holdfast:
        own: concurrent.futures.Future[Holdfast] = concurrent.futures.Future()
        attempt = self._attempts.setdefault(os.getpid(), own)
        if attempt is own:
            try:
                own.set_result(connect(**self._args()))
            except BaseException as error:
                del self._attempts[os.getpid()]
                own.set_exception(error)
        return attempt.result()
