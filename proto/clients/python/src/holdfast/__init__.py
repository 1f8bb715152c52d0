"""Holdfast: locks from a broker, for threads. holdfast.aio is for asyncio.

    import holdfast

    hf = holdfast.connect("broker-1:4653,broker-2:4653", keep=30)
    with hf.lock("stock/4711", wait=5) as lock:
        write(fence=lock.fence)
        lock.check()
"""

from .api import Canceller, ConnectArgs, Freed, LockArgs
from .errors import (Busy, Cancelled, Closed, Conflict, Deadlock, Denied,
                     HoldfastError, LockLost, NotHeld, ProtocolError, TimedOut,
                     Unavailable, UsageError)
from .model import Member
from .threads import Detached, Holdfast, Lock, Watching, connect

__version__ = "0.1.0"

__all__ = [
    "Busy", "Cancelled", "Canceller", "Closed", "Conflict", "ConnectArgs",
    "Deadlock", "Denied", "Detached", "Freed", "Holdfast", "HoldfastError",
    "Lock", "LockArgs", "LockLost", "Member", "NotHeld", "ProtocolError",
    "TimedOut", "Unavailable", "UsageError", "Watching", "connect",
]
