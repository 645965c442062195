"""Clients at work while the server is killed, and a record of all that they are told.

    load.py ADDRESS INDEX SEED FILE

Several of these run at once; each has its INDEX. It reads commands, a line each, and answers every one:

    go      makes clients write, read and watch              -> "flowing", once some were answered
    pause   makes no more calls                              -> "paused", when all of them have ended
    audit   reads what there is, and lets watchers catch up  -> "audited N", with N writes acknowledged so far

It ends with its input. Calls that fail because the server is gone are made no second time; watchers go on after the
last revision that they were told. What is in FILE is described in records.lua; all of it is there after "audited".
"""

import asyncio
import os
import random
import sys
import zlib

import etcd3.etcdrpc as rpc
import grpc
import grpc.aio

import wire

SECONDS = 20  # within which an answer is there, or is taken for missing
CHANNELS = 4
WORKERS = 64
FLOWING = 30  # answers after which clients are at work
LONG, SHORT = 60, 2  # seconds that leases have
LEASES = 12  # that a process keeps
ALL = b"!", b"~"  # every key of ours is between
LOST = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 50),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
]


def brief(value):
    """A value as it is recorded: a long one by its beginning, its size and its checksum."""
    if len(value) <= 40:
        return value.decode()
    return "%s+%d+%d" % (value[:value.index(b"+")].decode(), len(value), zlib.crc32(value))


def kv_text(kv):
    return "%s,%s,%d,%d,%d,%d" % (kv.key.decode(), brief(kv.value), kv.create_revision, kv.mod_revision, kv.version,
                                  kv.lease)


def end_text(end):
    return end.decode() if end else "="


def put_op(key, value, lease=0):
    text = "p,%s,%s,%d" % (key.decode(), brief(value), lease)
    return text, rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def delete_op(key, end):
    text = "d,%s,%s" % (key.decode(), end_text(end))
    return text, rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key, range_end=end))


class Refused(Exception):
    """The server will not, and says why."""


class Lost(Exception):
    """Nobody knows what came of it."""


class Client:
    """Channels, and calls over them that are recorded."""

    def __init__(self, address, path):
        self.channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for _ in range(CHANNELS)]
        self.now = asyncio.get_running_loop().time
        self.file = open(path, "w")
        self.lines = []

    def record(self, line, *values):
        self.lines.append(line % values)

    def flush(self):
        self.lines.append("")
        self.file.write("\n".join(self.lines))
        self.file.flush()
        self.lines.clear()

    async def ask(self, at, path, request, response):
        """Returns when it was asked and answered, and the answer."""
        channel = self.channels[at % CHANNELS]
        asked = self.now()
        try:
            data = await channel.unary_unary("/etcdserverpb." + path)(request.SerializeToString(), timeout=SECONDS)
            return asked, self.now(), response.FromString(data)
        except grpc.aio.AioRpcError as error:
            if error.code() not in LOST:
                raise Refused(asked, self.now(), error.details()) from None
            raise Lost(asked, self.now()) from None

    async def ready(self, at):
        await asyncio.wait_for(self.channels[at % CHANNELS].channel_ready(), SECONDS)


class Watcher:
    """Where a range is watched from, next."""

    def __init__(self, name, key, end, flags=""):
        self.name, self.key, self.end, self.flags = name, key, end, flags
        self.next = 1

    def request(self, watch_id):
        fields = {"_1": self.key, "_3": self.next, "_7": watch_id}
        if self.end:
            fields["_2"] = self.end
        if "p" in self.flags:
            fields["_6"] = True
        if "u" in self.flags:
            fields["_5"] = rpc.WatchCreateRequest.NOPUT
        if "d" in self.flags:
            fields["_5"] = rpc.WatchCreateRequest.NODELETE
        return wire.field(1, wire.message(**fields))


class Watching:
    """A stream with some watchers on it, and another one when it breaks."""

    def __init__(self, client, at, watchers):
        self.client, self.at, self.watchers = client, at, watchers
        self.by_id = {}
        self.asked = {}  # those that the server has not answered yet: what it tells all others is not for them
        self.last_id = 0
        self.call = None
        self.sending = asyncio.Lock()
        self.advanced = asyncio.Event()
        self.task = asyncio.create_task(self.run())

    async def run(self):
        while True:
            try:
                await self.client.ready(self.at)
                await self.read()
            except grpc.aio.AioRpcError as error:
                self.call = None
                if error.code() not in LOST:
                    raise
            except asyncio.InvalidStateError:
                self.call = None

    async def read(self):
        self.by_id, self.asked = {}, {}
        channel = self.client.channels[self.at % CHANNELS]
        self.call = channel.stream_stream("/etcdserverpb.Watch/Watch")()
        for watcher in self.watchers:
            await self.open(watcher)
        while True:
            data = await self.call.read()
            if data is grpc.aio.EOF:
                return
            await self.take(rpc.WatchResponse.FromString(data))

    async def send(self, data):
        """One at a time, as gRPC wants it; nothing while there is no stream."""
        async with self.sending:
            if self.call:
                await self.call.write(data)

    async def open(self, watcher):
        self.last_id += 1
        self.asked[self.last_id] = watcher
        self.client.record("open %s %.6f %d %s %s %s", watcher.name, self.client.now(), watcher.next,
                           watcher.key.decode(), end_text(watcher.end), watcher.flags)
        await self.send(watcher.request(self.last_id))

    async def reopen(self, watch_id):
        """Another watcher in place of one, which may already have ended."""
        watcher, call = self.by_id.pop(watch_id), self.call
        await self.send(wire.field(2, wire.field(1, watch_id)))
        if self.call is call:  # else all of them are opened on another stream
            await self.open(watcher)

    async def take(self, response):
        record, now = self.client.record, self.client.now()
        if response.watch_id == -1:
            for watcher in self.by_id.values():
                record("progress %s %.6f %d", watcher.name, now, response.header.revision)
                watcher.next = max(watcher.next, response.header.revision + 1)
            self.advanced.set()
        if response.created and response.watch_id in self.asked:
            self.by_id[response.watch_id] = self.asked.pop(response.watch_id)
        watcher = self.by_id.get(response.watch_id)
        if not watcher:
            return
        if response.compact_revision:
            record("overtaken %s %.6f %d", watcher.name, now, response.compact_revision)
            watcher.next = response.compact_revision
            await self.reopen(response.watch_id)
        elif response.canceled:
            record("ended %s %.6f %s", watcher.name, now, response.cancel_reason)
        elif response.events:
            record("events %s %.6f %d%s", watcher.name, now, response.header.revision, groups_text(response.events))
            watcher.next = response.events[-1].kv.mod_revision + 1

    async def catch_up(self, revision):
        """Asks for progress until everything up to a revision has come."""
        while any(watcher.next <= revision for watcher in self.watchers):
            self.advanced.clear()
            try:
                await self.send(wire.field(3, b""))
                await asyncio.wait_for(self.advanced.wait(), 0.1)
            except (asyncio.TimeoutError, asyncio.InvalidStateError, grpc.aio.AioRpcError):
                pass  # it was asked while a watcher was behind, or the stream is a new one

    async def restart_some(self, rng):
        """Lets one of the watchers go on from where it is, in a new one."""
        if self.call and self.by_id:
            try:
                await self.reopen(rng.choice(list(self.by_id)))
            except (asyncio.InvalidStateError, grpc.aio.AioRpcError, KeyError):
                pass  # the stream is gone, and with it the watchers


def groups_text(events):
    words, last = [], 0
    for event in events:
        kv = event.kv
        if kv.mod_revision != last:
            last = kv.mod_revision
            words.append("|%d" % last)
        text = " d,%s,%d" % (kv.key.decode(), last) if event.type else " p," + kv_text(kv)
        words.append(text + ";" + kv_text(event.prev_kv) if event.prev_kv.mod_revision else text)
    return "".join(words)


class Load:
    def __init__(self, client, index, seed):
        self.client, self.index = client, index
        self.rng = random.Random("%d %d" % (seed, index))
        self.going = asyncio.Event()
        self.idle = asyncio.Event()
        self.busy = 0
        self.answers = 0
        self.flowing = asyncio.Event()
        self.writes = 0
        self.tags = 0
        self.seen = 1
        self.compacted = 1
        self.counters = {}  # key -> (revision, number), as last heard
        self.leases = []
        self.hashes = []  # revisions whose hash was asked for
        name = "w%d" % index
        self.main = Watcher(name, *ALL)
        self.streams = [
            Watching(client, 0, [self.main]),
            Watching(client, 1, [
                Watcher(name + "k", b"k/", b"k0", "p"),
                Watcher(name + "m", b"m/", b"m0"),
                Watcher(name + "c", b"c/%d" % index, b"", "p"),
                Watcher(name + "d", *ALL, "u"),
                Watcher(name + "l", b"l/", b"l0", "d"),
            ]),
        ]
        self.tasks = [asyncio.create_task(self.work(at)) for at in range(WORKERS)]
        self.tasks.append(asyncio.create_task(self.every(0.3, self.restart_watcher)))
        self.tasks.append(asyncio.create_task(self.every(0.2, self.hash)))
        if index == 0:
            self.tasks.append(asyncio.create_task(self.every(0.15, self.compact)))

    # Who calls, and when ---------------------------------------------------------------------------------------------

    async def attempt(self, at, step):
        """A step of a client, while clients are at work."""
        await self.going.wait()
        self.busy += 1
        try:
            await step(at)
            self.answers += 1
            if self.answers >= FLOWING:
                self.flowing.set()
            is_lost = False
        except Refused:
            is_lost = False
        except Lost:
            is_lost = True
        finally:
            self.busy -= 1
            if self.busy == 0:
                self.idle.set()
        if is_lost:
            await self.client.ready(at)

    async def work(self, at):
        steps = [self.put] * 40 + [self.multi] * 20 + [self.swap] * 20 + [self.delete] * 12 + [self.range] * 3
        steps += [self.grant, self.revoke, self.keep] + [self.put_leased] * 3
        while True:
            await self.attempt(at, self.rng.choice(steps))

    async def every(self, seconds, step):
        """A step now and then: what it does is rare, whatever the machine."""
        while True:
            await asyncio.sleep(self.rng.uniform(0, 2 * seconds))
            await self.attempt(self.rng.randrange(CHANNELS), step)

    # Writes ----------------------------------------------------------------------------------------------------------

    def tag(self):
        self.tags += 1
        return b"%d.%d" % (self.index, self.tags)

    def value(self):
        """A value like no other, now and then a large one."""
        tag = self.tag()
        return tag + b"+" + b"x" * self.rng.randrange(100, 9000) if self.rng.random() < 0.02 else tag

    def key(self, kind, n):
        return b"%s/%03d" % (kind, self.rng.randrange(n))

    async def write(self, at, ops, compare=None):
        """A transaction, or what one operation is without; returns the answer."""
        words = " ".join(text for text, _ in ops)
        only = ops[0][1]
        if compare:
            words = "i,%s,%d %s" % (compare.key.decode(), compare.mod_revision, words)
            read = rpc.RequestOp(request_range=rpc.RangeRequest(key=compare.key))
            call = "KV/Txn", rpc.TxnRequest(compare=[compare], success=[only], failure=[read]), rpc.TxnResponse
        elif len(ops) > 1:
            call = "KV/Txn", rpc.TxnRequest(success=[op for _, op in ops]), rpc.TxnResponse
        elif only.HasField("request_put"):
            call = "KV/Put", only.request_put, rpc.PutResponse
        else:
            call = "KV/DeleteRange", only.request_delete_range, rpc.DeleteRangeResponse
        try:
            asked, answered, answer = await self.client.ask(at, *call)
        except Refused as refusal:
            self.client.record("write %.6f %.6f refused 0 %s|%s", *refusal.args[:2], words, refusal.args[2])
            raise
        except Lost as loss:
            self.client.record("write %.6f %.6f lost 0 %s", *loss.args, words)
            raise
        outcome, found = "ok", ""
        if compare and not answer.succeeded:
            outcome = "unmet"
            found = "|".join([""] + [kv_text(kv) for kv in answer.responses[0].response_range.kvs])
        elif len(ops) == 1 and only.HasField("request_delete_range") and answer.deleted == 0:
            outcome = "idle"
        else:
            self.writes += 1
        self.client.record("write %.6f %.6f %s %d %s%s", asked, answered, outcome, answer.header.revision, words, found)
        self.seen = max(self.seen, answer.header.revision)
        return answer

    async def put(self, at):
        await self.write(at, [put_op(self.key(self.rng.choice([b"k", b"k", b"d"]), 100), self.value())])

    async def put_leased(self, at):
        if self.leases:
            await self.write(at, [put_op(self.key(b"l", 30), self.value(), self.rng.choice(self.leases))])

    async def multi(self, at):
        tag = self.tag()
        keys = sorted({self.key(b"m", 60) for _ in range(self.rng.randrange(2, 9))})
        ops = [put_op(key, tag) for key in keys]
        if self.rng.random() < 0.3:
            first = self.rng.randrange(95)
            ops.insert(self.rng.randrange(len(ops) + 1), delete_op(b"d/%03d" % first, b"d/%03d" % (first + 5)))
        await self.write(at, ops)

    async def swap(self, at):
        """Adds one to a counter, if it is as it was."""
        key = b"c/%d" % self.rng.randrange(6)
        revision, number = self.counters.get(key, (0, 0))
        compare = rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision)
        answer = await self.write(at, [put_op(key, b"%d:%s" % (number + 1, self.tag()))], compare)
        found = answer.header.revision, number + 1
        if not answer.succeeded:
            kv = answer.responses[0].response_range.kvs[0]
            found = kv.mod_revision, int(kv.value.split(b":")[0])
        self.counters[key] = max(found, self.counters.get(key, found))

    async def delete(self, at):
        kind = self.rng.choice([b"k", b"d"])
        first = self.rng.randrange(97)
        end = b"%s/%03d" % (kind, first + self.rng.randrange(1, 4)) if self.rng.random() < 0.3 else b""
        await self.write(at, [delete_op(b"%s/%03d" % (kind, first), end)])

    # Leases ----------------------------------------------------------------------------------------------------------

    async def change(self, at, name, call, describe):
        """A call whose record ends with what `describe` says of the answer, or of None. Returns the answer."""
        outcome, revision, answer = "ok", 0, None
        try:
            asked, answered, answer = await self.client.ask(at, *call)
            revision = answer.header.revision
        except Refused as refusal:
            asked, answered = refusal.args[:2]
            outcome = "refused"
        except Lost as loss:
            asked, answered = loss.args
            outcome = "lost"
        self.client.record("%s %.6f %.6f %s %d %s", name, asked, answered, outcome, revision, describe(answer))
        if outcome == "lost":
            raise Lost(asked, answered)
        return answer

    async def grant(self, at):
        if len(self.leases) >= LEASES:
            return
        lease = self.rng.choice([0, self.rng.getrandbits(50) * 4 + self.index])
        ttl = self.rng.choice([LONG, LONG, SHORT])
        call = "Lease/LeaseGrant", rpc.LeaseGrantRequest(ID=lease, TTL=ttl), rpc.LeaseGrantResponse
        answer = await self.change(at, "grant", call, lambda given: "%d %d" % (given.ID if given else lease, ttl))
        if answer:
            self.leases.append(answer.ID)

    async def revoke(self, at):
        if len(self.leases) < LEASES // 2:
            return
        lease = self.rng.choice(self.leases)
        call = "Lease/LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease), rpc.LeaseRevokeResponse
        await self.change(at, "revoke", call, lambda _: lease)
        if lease in self.leases:
            self.leases.remove(lease)

    async def keep(self, at):
        if not self.leases:
            return
        lease = self.rng.choice(self.leases)
        asked = self.client.now()
        try:
            call = self.client.channels[at % CHANNELS].stream_stream("/etcdserverpb.Lease/LeaseKeepAlive")()
            await call.write(rpc.LeaseKeepAliveRequest(ID=lease).SerializeToString())
            data = await call.read()
            call.cancel()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            data = grpc.aio.EOF
        if data is grpc.aio.EOF:
            raise Lost(asked, self.client.now())
        answer = rpc.LeaseKeepAliveResponse.FromString(data)
        self.client.record("kept %.6f %.6f %d %d %d", asked, self.client.now(), answer.header.revision, lease,
                           answer.TTL)

    # Reads -----------------------------------------------------------------------------------------------------------

    async def read(self, at, key, end, revision=0):
        request = rpc.RangeRequest(key=key, range_end=end, revision=revision)
        try:
            asked, answered, answer = await self.client.ask(at, "KV/Range", request, rpc.RangeResponse)
        except Refused as refusal:
            self.client.record("gone %.6f %.6f %d %s", *refusal.args[:2], revision, refusal.args[2])
            raise
        self.client.record("range %.6f %.6f %d %d %s %s%s", asked, answered, answer.header.revision, revision,
                           key.decode(), end_text(end), "".join("|" + kv_text(kv) for kv in answer.kvs))
        return answer.header.revision

    async def range(self, at):
        revision = self.rng.choice([0, max(1, self.seen - self.rng.randrange(2000))])
        some = [(b"c/", b"c0"), (b"m/", b"m0"), (b"l/", b"l0"), (self.key(b"k", 100), b"")]
        await self.read(at, *self.rng.choice(some), revision)

    async def hash(self, at, revision=None):
        revision = revision or max(1, self.seen - self.rng.randrange(300))
        request = rpc.HashKVRequest(revision=revision)
        try:
            asked, answered, answer = await self.client.ask(at, "Maintenance/HashKV", request, rpc.HashKVResponse)
        except Refused as refusal:
            self.client.record("gone %.6f %.6f %d %s", *refusal.args[:2], revision, refusal.args[2])
            raise
        self.client.record("hash %.6f %.6f %d %d %d %d", asked, answered, answer.header.revision, revision,
                           answer.compact_revision, answer.hash)
        self.hashes = self.hashes[-9:] + [revision]

    # Now and then ----------------------------------------------------------------------------------------------------

    async def compact(self, at):
        """Never beyond what the main watcher knows: so there is one that misses nothing."""
        revision = self.main.next - 1 - self.rng.choice([0, self.rng.randrange(500), self.rng.randrange(3000)])
        if revision <= self.compacted:
            return
        request = rpc.CompactionRequest(revision=revision, physical=self.rng.random() < 0.3)
        await self.change(at, "compact", ("KV/Compact", request, rpc.CompactionResponse), lambda _: revision)
        self.compacted = revision

    async def restart_watcher(self, _):
        await self.rng.choice(self.streams).restart_some(self.rng)

    # Commands --------------------------------------------------------------------------------------------------------

    async def go(self):
        self.answers = 0
        self.flowing.clear()
        self.going.set()
        await asyncio.wait_for(self.flowing.wait(), SECONDS)
        return "flowing"

    async def pause(self):
        self.going.clear()
        while self.busy:
            self.idle.clear()
            await asyncio.wait_for(self.idle.wait(), SECONDS + 5)
        self.client.flush()
        return "paused"

    async def audit(self):
        for at in range(CHANNELS):
            await self.client.ready(at)
        await self.write(0, [put_op(b"k/000", self.tag())])  # a stream has no progress while a watcher waits for more
        revision = await self.read(0, *ALL)
        await self.audit_leases()
        if self.index == 0:
            await self.audit_history(revision)
        await asyncio.wait_for(asyncio.gather(*[stream.catch_up(revision) for stream in self.streams]), SECONDS)
        self.client.record("caught w%d %d", self.index, revision)
        self.client.flush()
        return "audited %d" % self.writes

    async def audit_history(self, revision):
        """All of it anew: hashes that are known, old revisions, and a watcher from the beginning."""
        fresh = Watcher("fresh", *ALL)
        watching = Watching(self.client, 2, [fresh])
        await asyncio.wait_for(watching.catch_up(revision), SECONDS)
        watching.task.cancel()
        self.client.record("close fresh")
        first = max(1, self.compacted)
        steps = [(self.hash, at) for at in self.hashes + [revision]]
        steps += [(self.read_all, self.rng.randint(first, revision)) for _ in range(5)]
        for step, at in steps:
            try:
                await step(0, at)
            except Refused:
                pass  # as it is recorded

    async def read_all(self, at, revision):
        await self.read(at, *ALL, revision)

    async def audit_leases(self):
        """The list, and each of those that this process has."""
        ask = self.client.ask
        asked, answered, answer = await ask(0, "Lease/LeaseLeases", rpc.LeaseLeasesRequest(), rpc.LeaseLeasesResponse)
        self.client.record("leases %.6f %.6f %d %s", asked, answered, answer.header.revision,
                           " ".join(str(lease.ID) for lease in answer.leases))
        for lease in list(self.leases):
            request = rpc.LeaseTimeToLiveRequest(ID=lease, keys=True)
            asked, answered, answer = await ask(0, "Lease/LeaseTimeToLive", request, rpc.LeaseTimeToLiveResponse)
            self.client.record("lease %.6f %.6f %d %d %d %d %s", asked, answered, answer.header.revision, lease,
                               answer.TTL, answer.grantedTTL, " ".join(key.decode() for key in answer.keys))
            if answer.TTL < 0:
                self.leases.remove(lease)


async def obey(load, reader):
    commands = {"go": load.go, "pause": load.pause, "audit": load.audit}
    while line := await reader.readline():
        print(await commands[line.decode().strip()](), flush=True)


async def main():
    address, index, seed, path = sys.argv[1:]
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    load = Load(Client(address, path), int(index), int(seed))
    commands = asyncio.create_task(obey(load, reader))
    tasks = load.tasks + [stream.task for stream in load.streams]
    done, _ = await asyncio.wait(tasks + [commands], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    os._exit(0)


asyncio.run(main())
