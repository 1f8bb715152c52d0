"""Tasks of Celery that run under a lock.

    app.conf.holdfast = {"addresses": "broker-1:4653", "keep": 30}

    @app.task(base=HoldfastTask, lock="stock-{0}", lock_busy="skip")
    def count(item): ...

`app.conf.holdfast` has the arguments of holdfast.connect().
"""

from __future__ import annotations

import contextvars
import inspect
from typing import Any, Callable, Optional

from celery import Task

from . import errors
from .api import LockArgs
from .once import Once
from .threads import Lock

_held: contextvars.ContextVar[Lock] = contextvars.ContextVar("holdfast")


def held() -> Lock:
    """The lock of the running task: its fence, and check()."""
    lock = _held.get(None)
    if lock is None:
        raise errors.UsageError("no task runs here, or it has no lock=")
    return lock


def _client(app: Any) -> Once:
    def options() -> Any:
        if "holdfast" not in app.conf:
            raise errors.UsageError("app.conf.holdfast is not set")
        return app.conf["holdfast"]
    once: Once = vars(app).setdefault("_holdfast", Once(options))
    return once


class HoldfastTask(Task):
    """A task with these options:

    lock: the name, which may have the arguments: "stock-{0}", "job-{day}".
        Without it the task runs without a lock.
    lock_wait: seconds that the worker waits for it. 0: not at all.
    lock_busy: what happens if the lock is held: "retry" puts the task back, as
        self.retry() does, "skip" ends it with None, "raise" fails it. Without
        a broker "skip" fails it too.
    lock_lost: what happens after the loss of the lock: "raise" fails the task
        with LockLost, "retry" runs it again.
    lock_options: other arguments of lock(), such as lease and note.
    """

    abstract = True
    lock: Optional[str] = None
    lock_wait: Optional[float] = 0
    lock_busy = "retry"
    lock_lost = "raise"
    lock_options: LockArgs = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for option, words in (("lock_busy", ("retry", "skip", "raise")),
                              ("lock_lost", ("raise", "retry"))):
            word = getattr(cls, option)
            if word not in words:
                raise errors.UsageError(
                    f"{option}={word!r}; use {', '.join(words)}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the task under its lock."""
        # A worker has pushed the request already.
        body = super().__call__ if self.request.called_directly else self.run
        if self.lock is None:
            return body(*args, **kwargs)
        options: LockArgs = {"wait": self.lock_wait, **self.lock_options}
        lock, began = None, False
        try:
            lock = _client(self.app)().lock(self._name(args, kwargs),
                                            **options)
            with lock:
                began = True
                return self._under(lock, body, args, kwargs)
        except (errors.Busy, errors.TimedOut, errors.Unavailable) as error:
            if began:  # it is the task's own
                raise
            if self.lock_busy == "retry":
                raise self.retry(exc=error) from error
            if self.lock_busy == "skip" and \
                    not isinstance(error, errors.Unavailable):
                return None
            raise
        except errors.LockLost as error:
            if lock is not None and lock.name in error.names and \
                    self.lock_lost == "retry":
                raise self.retry(exc=error) from error
            raise

    def _name(self, args: Any, kwargs: Any) -> str:
        bound = inspect.signature(self.run).bind(*args, **kwargs)
        bound.apply_defaults()
        assert self.lock is not None
        return self.lock.format(*bound.args, **{**bound.arguments, **kwargs})

    def _under(self, lock: Lock, body: Callable[..., Any], args: Any,
               kwargs: Any) -> Any:
        token = _held.set(lock)
        try:
            return body(*args, **kwargs)
        finally:
            _held.reset(token)
