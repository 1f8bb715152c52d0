"""Faults, and a planner that draws from them.

A fault is a function (chaos, seconds) that does harm at once and returns its
undoing, or None. `chaos.excuse` says what the topology cannot promise under it
(checker.py). A round draws faults from the seed, at most one that changes
Redis, lets them act, heals, and asks for every lock.
"""

import contextlib
import os
import random
import resource
import shutil
import time

from harness import Client, ClientError, RedisError, slot_of

from world import key_of

FAULTS = {}  # name: (layer, topologies, inside only, function)
ALL = ("single", "cluster", "quorum")
FENCE_JUMP = 10.0  # s by which a new record begins ahead of the clock


def fault(name, layer, topologies=ALL, inside=False):
    def register(function):
        FAULTS[name] = (layer, topologies, inside, function)
        return function
    return register


class Chaos:
    """Rounds of faults in a World."""

    def __init__(self, world, seed, wanted=None):
        self.world = world
        self.random = random.Random(f"faults {seed}")
        self.moved = set()  # locks whose owner changes without any loss
        self.split = False  # two masters at once are possible in this round
        self.probe_events = []
        self.probe_number = 0
        self.names = [
            name for name, (_, topologies, inside, _) in FAULTS.items()
            if world.topology in topologies and
            (world.inside or not inside) and
            (wanted is None or any(name.startswith(w) for w in wanted))]

    # for the faults

    def excuse(self, cause, begin, end=None, locks=None, split=False):
        self.world.note("excuse", cause=cause, **{"from": begin},
                        to=time.monotonic() if end is None else end,
                        locks=locks, split=split)

    def locks_of(self, node):
        if self.world.topology == "quorum":
            return list(self.owners)
        return [lock for lock, (port, _) in self.owners.items()
                if port == node.port]

    def a_node(self):
        """A master mostly."""
        masters = self.world.masters()
        if self.random.random() < 0.2:
            return self.random.choice(self.world.nodes)
        return self.random.choice(masters)

    def a_broker(self):
        alive = [b for b in self.world.brokers
                 if b.running and b not in self.busy]
        broker = self.random.choice(alive or self.world.brokers)
        self.busy.append(broker)
        return broker

    # rounds

    def of_layer(self, layer):
        return [name for name in self.names if FAULTS[name][0] == layer]

    def plan(self):
        """(at, name, seconds) of a round, in order."""
        draw, plan = self.random, []
        lease = self.world.lease
        for layer, chance in (("redis", 0.75), ("broker", 0.55),
                              ("net", 0.55)):
            names = self.of_layer(layer)
            if names and draw.random() < chance:
                plan.append((draw.uniform(0.0, 1.5), draw.choice(names),
                             draw.uniform(0.1, 1.5 * lease)))
        names = self.of_layer("client")
        for _ in range(draw.randint(2, 6) if names else 0):
            plan.append((draw.uniform(0.0, 3.0), draw.choice(names),
                         draw.uniform(0.1, 1.5 * lease)))
        return sorted(plan)

    def round(self):
        """Harm, heal, probe."""
        world = self.world
        self.busy, self.moved, self.split = [], set(), False
        self.owners = world.owners()
        begin = time.monotonic()
        undo = []  # (when, name, function)
        todo = self.plan()
        while todo or undo:
            now = time.monotonic() - begin
            while todo and todo[0][0] <= now:
                _, name, seconds = todo.pop(0)
                back = self.harm(name, seconds)
                if back:
                    undo.append((now + seconds, name, back))
            for entry in [e for e in undo if e[0] <= now]:
                undo.remove(entry)
                with self.attempt(f"undo {entry[1]}"):
                    entry[2]()
            world.sleep(0.02)
        self.heal(begin)

    def harm(self, name, seconds):
        """Only what could be done counts."""
        begin = time.monotonic()
        with self.attempt(name):
            back = FAULTS[name][3](self, seconds)
            self.world.count(name, begin=begin, seconds=round(seconds, 3))
            return back
        return None

    @contextlib.contextmanager
    def attempt(self, what):
        """A fault that could not be made is told and no finding."""
        try:
            yield
        except (OSError, RedisError, RuntimeError) as error:
            self.world.note("failed", what=what, error=repr(error))

    def heal(self, begin):
        world = self.world
        try:
            world.heal()
        except AssertionError as error:
            world.broken(f"not healed: {error}")
            return
        now = time.monotonic()
        owners = world.owners()
        changed = [lock for lock in world.locks
                   if owners[lock] != self.owners[lock] and
                   lock not in self.moved]
        if changed:
            self.excuse("failover", begin, now, changed, split=self.split)
            world.count("(failovers that may have lost writes)")
        world.note("heal", until=now + world.lease + 25)
        self.probe(now)
        world.sleep(self.random.uniform(0.2, 1.0))

    def probe(self, begin):
        """Asks for every lock; the probe is a client like the others."""
        world = self.world
        bound = world.lease + 25
        self.probe_number += 1
        conn, left = self.probe_number, dict(enumerate(world.locks, 1))

        def note(kind, at, **more):
            self.probe_events.append({"t": at, "e": kind, **more})

        with Client(world.brokers[conn % len(world.brokers)].address) as client:
            asked = time.monotonic()
            for tag, lock in left.items():
                note("ask", asked, conn=conn, tag=tag, verb="LOCK", lock=lock)
            client.send("\n".join(f"{tag} LOCK {lock}"
                                  for tag, lock in left.items()))
            while left and time.monotonic() < begin + bound:
                world.tick()
                with contextlib.suppress(ClientError):
                    self.probe_reply(client.line(0.05), client, conn, left,
                                     asked, begin, note)
                if client.closed_by_peer:
                    break
        for lock in left.values():
            world.note("probe", lock=lock, to=None, **{"from": begin})

    def probe_reply(self, reply, client, conn, left, asked, begin, note):
        if not reply.tag.isdigit() or int(reply.tag) not in left:
            return
        tag, now = int(reply.tag), time.monotonic()
        lock = left[tag]
        note("final", now, conn=conn, tag=tag, ok=reply.ok, code=reply.code,
             **({"fence": reply.fence, "count": 1} if reply.ok else {}))
        if not reply.ok:  # asks again under another tag
            del left[tag]
            left[tag + 1000] = lock
            note("ask", now, conn=conn, tag=tag + 1000, verb="LOCK", lock=lock)
            client.send(f"{tag + 1000} LOCK {lock}")
            return
        hold = conn * 100000 + tag
        until = asked + reply.ttl_ms / 1000
        if now < until and tag < 1000:
            note("begin", now, hold=hold, lock=lock, fence=reply.fence,
                 until=until)
            note("end", time.monotonic(), hold=hold, why="unlock")
        client.send(f"9{tag} UNLOCK {lock}")
        self.world.note("probe", lock=lock, to=now, **{"from": begin})
        del left[tag]


# --- Redis ----------------------------------------------------------------

@fault("redis.kill", "redis")
def redis_kill(chaos, seconds):
    """SIGKILL; its file has all that it has answered."""
    node = chaos.a_node()
    chaos.world.expected_dead.add(node)
    node.kill()
    return node.spawn


@fault("redis.term", "redis")
def redis_term(chaos, seconds):
    node = chaos.a_node()
    chaos.world.expected_dead.add(node)
    node.stop()
    return node.spawn


@fault("redis.stop", "redis")
def redis_stop(chaos, seconds):
    """SIGSTOP: in a cluster it wakes up as a master that was replaced."""
    node = chaos.a_node()
    chaos.split = True
    node.pause()
    return node.resume


@fault("redis.script-flush", "redis")
def redis_script_flush(chaos, seconds):
    for node in chaos.world.nodes:
        node.command("SCRIPT", "FLUSH")


@fault("redis.client-kill", "redis")
def redis_client_kill(chaos, seconds):
    """All connections of the brokers end."""
    node = chaos.a_node()
    for kind in ("normal", "pubsub"):
        node.command("CLIENT", "KILL", "TYPE", kind)


@fault("redis.out-of-memory", "redis")
def redis_memory(chaos, seconds):
    node = chaos.a_node()
    node.command("CONFIG", "SET", "maxmemory", "100kb")
    return lambda: node.command("CONFIG", "SET", "maxmemory", "0")


@fault("redis.descriptors", "redis")
def redis_descriptors(chaos, seconds):
    node = chaos.a_node()
    back = few_descriptors(node.pid)
    for kind in ("normal", "pubsub"):
        node.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    return back


@fault("redis.disk-full", "redis", inside=True)
def redis_disk(chaos, seconds):
    """The disk of the append-only file is full: a master refuses writes."""
    node = chaos.a_node()
    if not chaos.world.mounted:
        raise RuntimeError("no disk of its own")
    path = os.path.join(node.dir, "ballast")
    stat = os.statvfs(node.dir)
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    with contextlib.suppress(OSError):
        os.posix_fallocate(file, 0, stat.f_bavail * stat.f_bsize)
    with contextlib.suppress(OSError):
        while os.write(file, bytes(4096)):
            pass
    os.close(file)
    # A replica ends itself where it cannot write.
    chaos.world.expected_dead.add(node)

    # Redis 7.0 may leave a torn file behind: it is written anew at the heal.
    chaos.world.torn.append(node)

    def back():
        os.unlink(path)
        if not node.running:
            shutil.rmtree(os.path.join(node.dir, "appendonlydir"),
                          ignore_errors=True)
            node.spawn()
    return back


@fault("redis.clock", "redis")
def redis_clock(chaos, seconds):
    """Set forward or back, and right again. It is excused as FLUSHALL is: one
    node of a quorum may be the one that a hold depends on."""
    if not chaos.world.clock_library:
        raise RuntimeError("no clock shim")
    node = chaos.a_node()
    size = chaos.random.choice([0.5, 2, 30, 3600])
    way = chaos.random.choice([1, -1])
    locks = chaos.locks_of(node)

    def move(offset):
        forward = offset > node.clock.offset
        begin = time.monotonic()
        node.clock.set(offset)
        if forward:
            chaos.excuse("clock set forward", begin, locks=locks)
    move(way * size)
    return lambda: move(0)


def refuse_fences_ahead(node, locks):
    """A new record begins ten seconds ahead of the clock. A fence beyond that,
    of a moved clock, is not protected from a loss of data."""
    for lock in locks:
        if node.fence_of(lock) > (time.time() + FENCE_JUMP) * 1e6:
            raise RuntimeError(f"the fence of {lock} is ahead of the clock")


@fault("redis.wipe", "redis", ("single", "quorum"))
def redis_wipe(chaos, seconds):
    """Killed, and started without its data; a quorum is not excused."""
    node = chaos.a_node()
    begin = time.monotonic()
    refuse_fences_ahead(node, chaos.world.locks)
    chaos.world.expected_dead.add(node)
    node.kill()
    shutil.rmtree(os.path.join(node.dir, "appendonlydir"), ignore_errors=True)

    def back():
        node.spawn()
        node.wait_ready()
        if chaos.world.topology == "single":
            chaos.excuse("data lost", begin)
    return back


@fault("redis.flushall", "redis")
def redis_flushall(chaos, seconds):
    node = chaos.random.choice(chaos.world.masters())
    begin = time.monotonic()
    locks = chaos.locks_of(node)
    refuse_fences_ahead(node, locks)
    node.command("FLUSHALL")
    chaos.excuse("FLUSHALL", begin, locks=locks)


@fault("failover.graceful", "redis", ("cluster",))
def failover_graceful(chaos, seconds):
    """The master waits for its replica: nothing is lost, nothing excused."""
    failover(chaos, "")


@fault("failover.force", "redis", ("cluster",))
def failover_force(chaos, seconds):
    chaos.split = True
    failover(chaos, "FORCE")


@fault("failover.takeover", "redis", ("cluster",))
def failover_takeover(chaos, seconds):
    chaos.split = True
    failover(chaos, "TAKEOVER")


@fault("failover.lossy", "redis", ("cluster",))
def failover_lossy(chaos, seconds):
    """A replica that has not heard its master for a while takes over."""
    master = chaos.random.choice(chaos.world.masters())
    replica = chaos.world.replica_of(master)
    if replica is None:
        raise RuntimeError("no replica")
    chaos.split = True
    replica.pause()
    chaos.world.sleep(min(seconds, 1.0))
    master.pause()
    replica.resume()
    replica.command("CLUSTER", "FAILOVER", "TAKEOVER")
    return master.resume


def failover(chaos, how):
    master = chaos.random.choice(chaos.world.masters())
    replica = chaos.world.replica_of(master)
    if replica is None:
        raise RuntimeError("no replica")
    if not how:
        chaos.moved.update(chaos.locks_of(master))
    replica.command("CLUSTER", "FAILOVER", *([how] if how else []))


@fault("slot.migrate", "redis", ("cluster",))
def slot_migrate(chaos, seconds):
    """Some slots move to other masters, under load; nothing is excused."""
    redis, moves = chaos.world.redis, []
    for lock in chaos.random.sample(chaos.world.locks, 3):
        source = redis.node_with_port(chaos.owners[lock][0])
        target = chaos.random.choice(
            [n for n in chaos.world.masters() if n is not source])
        # The epochs of the two change: those of all their locks do.
        chaos.moved.update(chaos.locks_of(source))
        chaos.moved.update(chaos.locks_of(target))
        moves.append(redis.begin_migration(slot_of(key_of(lock)), target))

    def back():
        for move in moves:
            redis.migrate_keys(move)
            redis.end_migration(move)
    return back


# --- brokers --------------------------------------------------------------

def few_descriptors(pid):
    """As many as it has, and a few; returns what gives them back."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    count = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count + 1, before[1]))

    def back():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    return back


@fault("broker.kill", "broker")
def broker_kill(chaos, seconds):
    broker = chaos.a_broker()
    chaos.world.expected_dead.add(broker)
    broker.process.kill()
    return broker.spawn


@fault("broker.stop", "broker")
def broker_stop(chaos, seconds):
    broker = chaos.a_broker()
    broker.pause()
    return broker.resume


@fault("broker.term", "broker")
def broker_term(chaos, seconds, broker=None):
    """It drains; its exit status must be 0."""
    broker = broker or chaos.a_broker()
    chaos.world.expected_dead.add(broker)
    broker.terminate()

    def back():
        try:
            status = broker.process.wait(20)
        except AssertionError as error:
            chaos.world.broken(f"asked to stop: {error}")
            broker.process.kill()
            status = 0
        if status != 0:
            chaos.world.broken(f"{broker.name} asked to stop ended with "
                               f"{status}: {broker.process.log_tail(20)}")
        broker.spawn()
    return back


@fault("broker.term-unheard", "broker", inside=True)
def broker_term_unheard(chaos, seconds):
    """It drains while some clients cannot be told so."""
    group = chaos.random.choice(["clients0", "clients1", "clients2", "relay"])
    broker = chaos.a_broker()
    heal = cut(chaos, group, [broker.name], "both")
    start = broker_term(chaos, seconds, broker)

    def back():
        start()
        heal()
    return back


@fault("broker.descriptors", "broker")
def broker_descriptors(chaos, seconds):
    return few_descriptors(chaos.a_broker().pid)


@fault("broker.clock", "broker")
def broker_clock(chaos, seconds):
    """The wall clock of a broker; nothing may depend on it."""
    broker = chaos.a_broker()
    if not broker.clock.env:
        raise RuntimeError("no clock shim")
    broker.clock.set(chaos.random.choice([-3600, -5, 5, 3600, 86400 * 30]))
    return lambda: broker.clock.set(0)


# --- the network ----------------------------------------------------------

def cut(chaos, one, others, way=None):
    way = way or chaos.random.choice(["to", "from", "both"])
    means = chaos.random.choice(chaos.world.network.means)
    for other in others:
        if way in ("to", "both"):
            chaos.world.network.cut(one, other, means)
        if way in ("from", "both"):
            chaos.world.network.cut(other, one, means)
    return chaos.world.network.heal


@fault("cut.broker-redis", "net", inside=True)
def cut_broker_redis(chaos, seconds):
    broker = chaos.random.choice(chaos.world.brokers)
    names = [node.name for node in chaos.world.nodes]
    some = names if chaos.random.random() < 0.5 else \
        [chaos.random.choice(names)]
    return cut(chaos, broker.name, some)


@fault("cut.client-broker", "net", inside=True)
def cut_client_broker(chaos, seconds):
    names = [broker.name for broker in chaos.world.brokers]
    some = names if chaos.random.random() < 0.5 else \
        [chaos.random.choice(names)]
    group = chaos.random.choice(["clients0", "clients1", "clients2", "relay"])
    return cut(chaos, group, some)


@fault("cut.redis-redis", "redis", ("cluster",), inside=True)
def cut_redis(chaos, seconds):
    """One node away from the others, for brokers all or one are left."""
    chaos.split = True
    node = chaos.a_node()
    others = [n.name for n in chaos.world.nodes if n is not node]
    if chaos.random.random() < 0.5:
        others += [b.name for b in chaos.random.sample(chaos.world.brokers, 2)]
    return cut(chaos, node.name, others)


def relay_order(chaos, relay, **order):
    number = chaos.random.randrange(len(relay.ports))
    relay.order(number, **order)
    return lambda: relay.order(number)


@fault("relay.delay", "net")
def relay_delay(chaos, seconds):
    relay = chaos.random.choice(chaos.world.relays)
    most = chaos.random.choice([0.02, 0.2, 1.0])
    return relay_order(chaos, relay, delay=[most / 4, most])


@fault("relay.hold", "net")
def relay_hold(chaos, seconds):
    relay = chaos.random.choice(chaos.world.relays)
    way = chaos.random.choice(["up", "down", "both"])
    return relay_order(chaos, relay, hold=way)


@fault("relay.crumbs", "net")
def relay_crumbs(chaos, seconds):
    return relay_order(chaos, chaos.random.choice(chaos.world.relays),
                       crumbs=True)


# --- clients --------------------------------------------------------------

@fault("client.kill", "client")
def client_kill(chaos, seconds):
    worker = chaos.random.choice(chaos.world.workers)
    worker.kill()
    worker.start()


@fault("client.stop", "client")
def client_stop(chaos, seconds):
    worker = chaos.random.choice(chaos.world.workers)
    if worker.stopped:
        return None
    worker.process.pause()
    worker.stopped = True

    def back():
        worker.process.resume()
        worker.stopped = False
    return back
