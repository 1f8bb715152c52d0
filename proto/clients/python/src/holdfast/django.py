"""Locks for Django, and cache.lock() of django-redis.

    HOLDFAST = {"addresses": "broker-1:4653,broker-2:4653", "keep": 30}

in the settings are the arguments of holdfast.connect(). The connection begins
with the first lock of the process.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, TypeVar, cast

from django.conf import settings

from .api import LockArgs
from .once import Once
from .threads import Lock
from .wire import Text

if TYPE_CHECKING:
    from typing_extensions import Unpack

F = TypeVar("F", bound=Callable[..., Any])

#: The client of this process: client().watch(...), client().shared(...).
client = Once(lambda: settings.HOLDFAST)


def lock(*names: Text, **args: Unpack[LockArgs]) -> Lock:
    """An exclusive lock, as of Holdfast.lock()."""
    return client().lock(*names, **args)


def locked(name: str, *, skip: bool = False,
           **args: Unpack[LockArgs]) -> Callable[[F], F]:
    """A decorator, as of Holdfast.locked()."""
    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*values: Any, **keys: Any) -> Any:
            return client().locked(name, skip=skip, **args)(function)(
                *values, **keys)
        return cast(F, run)
    return decorate


def __getattr__(name: str) -> Any:
    if name == "CacheClient":  # it needs django-redis
        from .django_cache import CacheClient
        return CacheClient
    raise AttributeError(name)
