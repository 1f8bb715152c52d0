"""Child processes that cannot outlive the one that started them.

Each has PR_SET_PDEATHSIG=SIGKILL, a session of its own and its output in a
file. They are ended by their ids: TERM, and KILL after a bound; at the latest
by atexit, or by the kernel. The kernel's signal follows the thread that
forked: one thread forks all, and lives as long as we do.
"""

import atexit
import concurrent.futures
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time

PR_SET_PDEATHSIG = 1
TEMP_PREFIX = "holdfast-test-"

_libc = ctypes.CDLL(None, use_errno=True)
_live = []
_folders = []
_spawner = None
_spawner_pid = None


def die_with_parent(signum=signal.SIGKILL, parent=None):
    """Has the kernel send `signum` to this process when its parent ends."""
    if _libc.prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
        os._exit(126)
    if parent is not None and os.getppid() != parent:
        os._exit(126)


def _spawn(argv, **options):
    global _spawner, _spawner_pid
    parent = os.getpid()
    if _spawner_pid != parent:
        _spawner = concurrent.futures.ThreadPoolExecutor(1, "spawner")
        _spawner_pid = parent

    def prepare():
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        die_with_parent(signal.SIGKILL, parent)

    return _spawner.submit(subprocess.Popen, argv, preexec_fn=prepare,
                           start_new_session=True, **options).result()


def wait_until(condition, timeout=10.0, what="a condition", step=0.005):
    """Asks `condition` until it is true; its value. AssertionError if late."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {timeout:g} s")
        time.sleep(step)


def temp_folder():
    """A new folder, removed at exit; its name tells whose it is."""
    path = tempfile.mkdtemp(prefix=f"{TEMP_PREFIX}{os.getpid()}-")
    _folders.append((os.getpid(), path))
    return path


def remove_folder(path):
    shutil.rmtree(path, ignore_errors=True)
    _folders[:] = [entry for entry in _folders if entry[1] != path]


def sweep_folders():
    """Removes what killed test runs left in the folder for temporary files."""
    root = tempfile.gettempdir()
    for name in os.listdir(root):
        owner = name[len(TEMP_PREFIX):].split("-")[0]
        if not name.startswith(TEMP_PREFIX) or not owner.isdigit():
            continue
        if not os.path.exists(f"/proc/{owner}"):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)


def _stat(pid):
    """State, parent, group ... of a process; X if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8",
                  errors="replace") as file:
            return file.read().rpartition(")")[2].split() or ["X", "", ""]
    except OSError:
        return ["X", "", ""]


def process_state(pid):
    return _stat(pid)[0]


def is_running(pid):
    """Whether a process runs (a zombie does not)."""
    return process_state(pid) not in "ZX"


def group_running(group):
    """The processes of a group that run; a zombie may wait for init long."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if is_running(pid) and
            _stat(pid)[2] == str(group)]


def children_of(pid):
    """The processes that one has started, by any of its threads."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children",
                  encoding="ascii") as file:
            found += [int(word) for word in file.read().split()]
    return found


class Process:
    """One child. `log_path` None: our output. `stdout` has its output in
    place of the log. `pass_fds`: what it inherits."""

    def __init__(self, argv, log_path=None, env=None, cwd=None, name=None,
                 stdin=subprocess.DEVNULL, stdout=None, pass_fds=()):
        self.name = name or os.path.basename(argv[0])
        self.argv = list(argv)
        self.log_path = log_path
        self.asked_to_end = False
        with contextlib.ExitStack() as stack:
            out = None
            if log_path is not None:
                out = stack.enter_context(open(log_path, "ab"))
            self.popen = _spawn(self.argv, stdin=stdin, stdout=stdout or out,
                                stderr=out, env=env, cwd=cwd, pass_fds=pass_fds)
        _live.append((os.getpid(), self))

    @property
    def pid(self):
        return self.popen.pid

    @property
    def returncode(self):
        """The exit status, negative for a signal; None while it runs."""
        return self.popen.poll()

    @property
    def running(self):
        return self.popen.poll() is None

    def signal(self, signum):
        if self.running:
            self.popen.send_signal(signum)

    def pause(self):
        """SIGSTOP; returns when the process stands still."""
        if self.running:
            self.popen.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid,
                      os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        self.signal(signal.SIGCONT)

    def wait(self, timeout=10.0):
        """Its exit status; AssertionError where it does not end."""
        try:
            status = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} (pid {self.pid}) did not end within "
                f"{timeout:g} s") from None
        self._forget()
        return status

    def stop(self, timeout=10.0):
        """TERM, after `timeout` KILL; the exit status."""
        self.asked_to_end = True
        if self.running:
            self.popen.send_signal(signal.SIGTERM)
            self.popen.send_signal(signal.SIGCONT)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self._kill_group()
        self.popen.wait()
        self._forget()
        return self.popen.returncode

    def kill(self):
        """SIGKILL, for it and what it started in its session's group."""
        self.asked_to_end = True
        if self.running:
            self._kill_group()
        self.popen.wait()
        self._forget()
        return self.popen.returncode

    def _kill_group(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _forget(self):
        _live[:] = [entry for entry in _live if entry[1] is not self]

    def log(self):
        if self.log_path is None:
            return ""
        try:
            with open(self.log_path, encoding="utf-8",
                      errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def log_tail(self, lines=40):
        return "\n".join(self.log().splitlines()[-lines:])

    def wait_log(self, text, timeout=10.0):
        """Waits until the output has `text`."""
        wait_until(lambda: text in self.log() or not self.running, timeout,
                   f"'{text}' in the output of {self.name}")
        if text not in self.log():
            raise AssertionError(f"{self.name} ended without '{text}':\n"
                                 f"{self.log_tail()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@atexit.register
def end_all():
    """Kills what still runs and removes the folders; of this process only."""
    own = os.getpid()
    for pid, process in list(_live):
        if pid == own:
            with contextlib.suppress(Exception):
                process.kill()
    for pid, path in list(_folders):
        if pid == own:
            remove_folder(path)
