"""What no client library asks for, but the protocol allows: calls made by hand over one channel."""

import queue

import etcd3.etcdrpc as rpc
import grpc

import wire
from case import SECONDS, case, equal, raises, refused, true
from streams import KeepAliveStream, Stream, WatchStream, identity

MIB = 1024 * 1024
RECEIVE_LIMIT = 2097152
Code = grpc.StatusCode


class Raw:
    """The stubs of a channel, with a time limit on every call."""

    def __init__(self, server):
        self.channel = server.channel
        self.kv = rpc.KVStub(server.channel)
        self.leases = rpc.LeaseStub(server.channel)

    def put(self, key, value=b"", **more):
        return self.kv.Put(rpc.PutRequest(key=key, value=value, **more), timeout=SECONDS)

    def range(self, key, end=b"", **more):
        return self.kv.Range(rpc.RangeRequest(key=key, range_end=end, **more), timeout=SECONDS)

    def delete(self, key, end=b"", **more):
        return self.kv.DeleteRange(rpc.DeleteRangeRequest(key=key, range_end=end, **more), timeout=SECONDS)

    def txn(self, compare=(), success=(), failure=()):
        return self.kv.Txn(rpc.TxnRequest(compare=compare, success=success, failure=failure), timeout=SECONDS)

    def call(self, path, data=b"", **options):
        method = self.channel.unary_unary(path, request_serializer=identity, response_deserializer=identity)
        return method(data, timeout=SECONDS, **options)

    def revision(self):
        return self.range(b"nothing").header.revision


def put_op(key, value=b"", **more):
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, **more))


def range_op(key, end=b""):
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, range_end=end))


def txn_op(compare=(), success=(), failure=()):
    return rpc.RequestOp(request_txn=rpc.TxnRequest(compare=compare, success=success, failure=failure))


def version_is(key, version):
    return rpc.Compare(key=key, target=rpc.Compare.VERSION, result=rpc.Compare.EQUAL, version=version)


def key_values(response):
    return [(event.kv.key, event.kv.value) for event in response.events]


# KV ----------------------------------------------------------------------------------------------------------------

@case
def range_options(server):
    raw = Raw(server)
    first = raw.put(b"ro/a", b"1").header.revision
    raw.put(b"ro/b", b"2")
    raw.put(b"ro/c", b"3")
    raw.put(b"ro/a", b"4")

    def found(**more):
        answer = raw.range(b"ro/", b"ro0", **more)
        return b"".join(kv.key[-1:] for kv in answer.kvs), answer.more, answer.count

    equal(found(), (b"abc", False, 3))
    equal(found(limit=2), (b"ab", True, 3))
    equal(found(count_only=True), (b"", False, 3))
    equal(found(min_mod_revision=first + 2), (b"ac", False, 3))
    equal(found(max_mod_revision=first + 2), (b"bc", False, 3))
    equal(found(min_create_revision=first + 1, max_create_revision=first + 1), (b"b", False, 3))
    equal(found(revision=first + 1), (b"ab", False, 2))
    equal([kv.value for kv in raw.range(b"ro/", b"ro0", keys_only=True).kvs], [b"", b"", b""])
    equal(raw.range(b"ro/", b"ro0", revision=first).header.revision, first + 3)


@case
def txn_nested(server):
    """The whole way is chosen before the first write; answers inside have but a revision, nested ones not even that."""
    raw = Raw(server)
    answer = raw.txn(
        success=[
            put_op(b"tn/a", b"1"),
            txn_op(compare=[version_is(b"tn/a", 0)],
                   success=[put_op(b"tn/b", b"2"), range_op(b"tn/a")], failure=[put_op(b"tn/c", b"3")]),
        ])
    revision = answer.header.revision
    equal(answer.succeeded, True)
    put, nested = answer.responses
    equal(put.response_put.header, rpc.ResponseHeader(revision=revision))
    equal(nested.response_txn.header, rpc.ResponseHeader())
    true(nested.response_txn.HasField("header"), "no header in a nested answer")
    equal(nested.response_txn.succeeded, True)
    equal([kv.value for kv in nested.response_txn.responses[1].response_range.kvs], [b"1"])
    kvs = raw.range(b"tn/", b"tn0").kvs
    equal([(kv.key, kv.mod_revision) for kv in kvs], [(b"tn/a", revision), (b"tn/b", revision)])


@case
def txn_compares(server):
    """Leases and whole ranges, which etcdctl cannot compare."""
    raw, compare = Raw(server), rpc.Compare
    lease = raw.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=600)).ID
    raw.put(b"tc/a", b"1", lease=lease)
    raw.put(b"tc/b", b"2")

    def holds(**fields):
        return raw.txn(compare=[compare(**fields)]).succeeded

    equal(holds(key=b"tc/a", target=compare.LEASE, lease=lease), True)
    equal(holds(key=b"tc/b", target=compare.LEASE, lease=lease), False)
    equal(holds(key=b"tc/b", target=compare.LEASE, lease=0), True)
    equal(holds(key=b"tc/", range_end=b"tc0", target=compare.VERSION, version=1), True)
    equal(holds(key=b"tc/", range_end=b"tc0", target=compare.VALUE, value=b"1"), False)
    equal(holds(key=b"tc/", range_end=b"tc0", target=compare.VALUE, result=compare.LESS, value=b"3"), True)
    equal(holds(key=b"td/", range_end=b"td0", target=compare.CREATE, create_revision=0), True)
    equal(holds(key=b"td/", target=compare.VALUE, result=compare.NOT_EQUAL, value=b"3"), False)
    raw.leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))


@case
def no_write_no_revision(server):
    raw = Raw(server)
    before = raw.revision()
    equal(raw.delete(b"nw/nothing").header.revision, before)
    equal(raw.txn(success=[range_op(b"nw/a")]).header.revision, before)
    equal(raw.txn(compare=[version_is(b"nw/a", 5)], success=[put_op(b"nw/a")]).header.revision, before)
    lease = raw.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=600))
    equal(lease.header.revision, before)
    equal(raw.leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease.ID)).header.revision, before)
    refused(Code.NOT_FOUND, "etcdserver: requested lease not found", raw.put, b"nw/a", lease=1234)
    equal(raw.revision(), before)


@case
def errors(server):
    """Texts that clients compare, and the codes that belong to them."""
    raw = Raw(server)
    invalid = Code.INVALID_ARGUMENT
    refused(invalid, "etcdserver: key is not provided", raw.put, b"")
    refused(invalid, "etcdserver: key is not provided", raw.range, b"")
    refused(invalid, "etcdserver: key is not provided", raw.delete, b"")
    refused(invalid, "etcdserver: key is not provided", raw.txn, compare=[version_is(b"", 0)])
    refused(invalid, "etcdserver: key not found", raw.txn, success=[rpc.RequestOp()])
    refused(invalid, "etcdserver: key not found", raw.put, b"er/nothing", ignore_value=True)
    refused(invalid, "etcdserver: value is provided", raw.put, b"er/a", b"1", ignore_value=True)
    refused(invalid, "etcdserver: lease is provided", raw.put, b"er/a", b"1", lease=1, ignore_lease=True)
    refused(invalid, "etcdserver: duplicate key given in txn request", raw.txn,
            success=[put_op(b"er/a"), txn_op(failure=[put_op(b"er/a")])])
    refused(invalid, "etcdserver: too many operations in txn request", raw.txn, failure=[range_op(b"er/a")] * 129)
    refused(Code.NOT_FOUND, "etcdserver: requested lease not found", raw.put, b"er/a", lease=1234)
    refused(Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision", raw.range, b"er/a",
            revision=2 ** 62)
    refused(Code.OUT_OF_RANGE, "etcdserver: too large lease TTL", raw.leases.LeaseGrant,
            rpc.LeaseGrantRequest(TTL=9000000001))
    refused(Code.FAILED_PRECONDITION, "etcdserver: authentication is not enabled",
            rpc.AuthStub(server.channel).Authenticate, rpc.AuthenticateRequest(name="root", password="x"))


@case
def large_answer(server):
    """20 MiB in one message: more than every window on the way."""
    raw = Raw(server)
    value = bytes(range(256)) * (MIB // 256)
    for i in range(20):
        raw.put(b"la/%02d" % i, value)
    answer = raw.range(b"la/", b"la0")
    equal(len(answer.kvs), 20)
    true(all(kv.value == value for kv in answer.kvs), "other bytes than were put")
    equal(raw.delete(b"la/", b"la0").deleted, 20)


@case
def range_stream(server):
    """The messages of a stream, put together, are the answer to the same range. etcd has the method since 3.7."""
    raw = Raw(server)
    stream = raw.channel.unary_stream("/etcdserverpb.KV/RangeStream", request_serializer=identity,
                                      response_deserializer=identity)

    def ask(**more):
        return stream(rpc.RangeRequest(key=b"rs/", range_end=b"rs0", **more).SerializeToString(), timeout=SECONDS)

    if server.is_etcd:
        refused(Code.UNIMPLEMENTED, "unknown method RangeStream for service etcdserverpb.KV", list, ask())
        return
    for i in range(3000):
        raw.put(b"rs/%04d" % i, b"v" * 1000)
    for more in {}, {"limit": 7}, {"limit": 2999}, {"keys_only": True}, {"count_only": True}:
        merged = rpc.RangeResponse()
        for data in ask(**more):
            true(not merged.HasField("header"), "more after the last message")
            merged.MergeFromString(b"".join(wire.fields(data)[1]))
        equal(merged, raw.range(b"rs/", b"rs0", **more))
    refused(Code.UNIMPLEMENTED, "RangeStream does not support custom sort orders", list,
            ask(sort_order=rpc.RangeRequest.DESCEND))
    call = ask()
    next(call)
    call.cancel()
    equal(raw.delete(b"rs/", b"rs0").deleted, 3000)


# Watch -------------------------------------------------------------------------------------------------------------

@case
def watch_ids(server):
    with WatchStream(server.channel) as stream:
        equal(stream.created(b"wi/a"), 0)
        equal(stream.created(b"wi/a", watch_id=7), 7)
        equal(stream.created(b"wi/a"), 1)
        equal(stream.created(b"wi/a", watch_id=2), 2)
        equal(stream.created(b"wi/a"), 3)
        equal(stream.created(b"wi/a", watch_id=-9), -9)
        stream.cancel_watcher(3)
        equal(stream.next().canceled, True)
        equal(stream.created(b"wi/a"), 4)
        equal(stream.created(b"wi/a", watch_id=3), 3)
        Raw(server).put(b"wi/a", b"1")
        equal(sorted(stream.next().watch_id for _ in range(7)), [-9, 0, 1, 2, 3, 4, 7])


def expect_refusal(stream, reason, revision):
    response = stream.next()
    equal((response.watch_id, response.created, response.canceled), (-1, True, True))
    equal(response.cancel_reason, reason)
    equal(response.header.revision, revision)


@case
def watch_refusals(server):
    """What cannot be created is answered, and the stream goes on."""
    raw = Raw(server)
    revision = raw.put(b"wx/a").header.revision
    with WatchStream(server.channel) as stream:
        stream.created(b"wx/a", watch_id=5)
        stream.create(b"wx/a", watch_id=5)
        expect_refusal(stream, "mvcc: duplicate watch ID provided on the WatchStream", revision)
        stream.create(b"wx/b", b"wx/a")
        expect_refusal(stream, "mvcc: watcher range is empty", revision)
        if not server.is_etcd:  # 3.4.23 creates such a watcher
            stream.create(b"wx/a", start=-1)
            expect_refusal(stream, "etcdserver: mvcc: required revision has been compacted", revision)
        raw.put(b"wx/a", b"1")
        equal(stream.next().watch_id, 5)


@case
def watch_cancel_unknown(server):
    """Nobody is told: what comes next is the answer to what was asked next."""
    with WatchStream(server.channel) as stream:
        stream.cancel_watcher(0)
        stream.cancel_watcher(77)
        stream.send(b"")
        equal(stream.created(b"wu/a"), 0)
        stream.cancel_watcher(0)
        response = stream.next()
        equal((response.watch_id, response.canceled, response.cancel_reason), (0, True, ""))
        stream.cancel_watcher(0)
        equal(stream.created(b"wu/a"), 1)


@case
def watch_compacted(server):
    """It is created, then told to be of the past; its id stays taken."""
    raw = Raw(server)
    first = raw.put(b"wk/a", b"1").header.revision
    raw.put(b"wk/a", b"2")
    raw.put(b"wk/a", b"3")
    raw.kv.Compact(rpc.CompactionRequest(revision=first + 1))
    with WatchStream(server.channel) as stream:
        equal(stream.created(b"wk/a", start=first, watch_id=4), 4)
        response = stream.next()
        equal((response.watch_id, response.created, response.canceled), (4, False, True))
        equal((response.compact_revision, response.cancel_reason, response.header.revision), (first + 1, "", 0))
        stream.create(b"wk/a", watch_id=4)
        equal(stream.next().cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream")
        stream.cancel_watcher(4)
        equal(stream.next().canceled, True)
        equal(stream.created(b"wk/a", start=first + 1, watch_id=4), 4)
        seen = []
        while len(seen) < 2:
            seen += key_values(stream.next())
        equal(seen, [(b"wk/a", b"2"), (b"wk/a", b"3")])


@case
def watch_everything(server):
    """An empty key with an open end is every key; a lone empty key is the key of one zero byte."""
    raw = Raw(server)
    with WatchStream(server.channel) as stream:
        stream.created(b"", b"\0")
        stream.created(b"")
        raw.put(b"\xff\xff", b"1")
        response = stream.next()
        equal((response.watch_id, key_values(response)), (0, [(b"\xff\xff", b"1")]))
        raw.put(b"\0", b"2")
        equal(sorted(stream.next().watch_id for _ in range(2)), [0, 1])
        raw.delete(b"\0")


@case
def watch_atomic(server):
    """All of a revision comes in one response, with what was before."""
    raw = Raw(server)
    raw.put(b"wa/a", b"0")
    with WatchStream(server.channel) as stream:
        stream.created(b"wa/", b"wa0", prev_kv=True)
        revision = raw.txn(success=[put_op(b"wa/%c" % letter, b"1") for letter in b"cab"]).header.revision
        response = stream.next()
        equal(key_values(response), [(b"wa/c", b"1"), (b"wa/a", b"1"), (b"wa/b", b"1")])
        equal({event.kv.mod_revision for event in response.events}, {revision})
        equal(response.header.revision, revision)
        equal([event.HasField("prev_kv") for event in response.events], [False, True, False])
        raw.delete(b"wa/", b"wa0")
        response = stream.next()
        equal([event.type for event in response.events], [1, 1, 1])
        equal([event.kv.key for event in response.events], [b"wa/a", b"wa/b", b"wa/c"])
        equal(response.events[0].kv.mod_revision, revision + 1)
        equal([event.prev_kv.value for event in response.events], [b"1", b"1", b"1"])


@case
def watch_filters(server):
    """Without puts, without deletes, without either; etcd3 takes filters, but cannot send them."""
    raw, create = Raw(server), rpc.WatchCreateRequest
    with WatchStream(server.channel) as stream:
        stream.created(b"wv/a", filters=[create.NOPUT])
        stream.created(b"wv/a", filters=[create.NODELETE])
        stream.created(b"wv/a", filters=[create.NOPUT, create.NODELETE])
        for value in (b"1", b"2"):
            raw.put(b"wv/a", value)
            raw.delete(b"wv/a")
        seen = [(response.watch_id, [event.type for event in response.events])
                for response in (stream.next() for _ in range(4))]
        equal(sorted(seen), [(0, [1]), (0, [1]), (1, [0]), (1, [0])])
        stream.cancel_watcher(2)
        equal(stream.next().watch_id, 2)


@case
def watch_fragments(server):
    """One revision of 3.6 MiB: in two parts for who asks for parts, whole for who does not."""
    raw = Raw(server)
    value = b"v" * (9 * MIB // 10)
    with WatchStream(server.channel) as stream:
        for i in range(4):
            raw.put(b"wf/%d" % i, value)
        stream.created(b"wf/", b"wf0", prev_kv=True, fragment=True)
        stream.created(b"wf/", b"wf0", prev_kv=True)
        raw.delete(b"wf/", b"wf0")
        parts, wholes = [], []
        while len(parts) < 2 or not wholes:
            response = stream.next()
            keys = [event.kv.key for event in response.events]
            true(all(event.prev_kv.value == value for event in response.events), "other bytes than were put")
            (wholes if response.watch_id else parts).append((keys, stream.is_fragment))
        equal(parts, [([b"wf/0", b"wf/1"], True), ([b"wf/2", b"wf/3"], False)])
        equal(wholes, [([b"wf/0", b"wf/1", b"wf/2", b"wf/3"], False)])


@case
def watch_progress_request(server):
    raw = Raw(server)
    with WatchStream(server.channel) as stream:
        if not server.is_etcd:  # 3.4.23 answers even where nobody watches
            stream.ask_progress()
        stream.created(b"wq/a")
        stream.created(b"wq/b")
        revision = raw.put(b"wq/a", b"1").header.revision
        equal(key_values(stream.next()), [(b"wq/a", b"1")])
        revision = raw.put(b"wq/c", b"1").header.revision
        stream.ask_progress()
        response = stream.next()
        equal((response.watch_id, response.header.revision), (-1, revision))
        equal((response.created, response.canceled, len(response.events)), (False, False, 0))
        if not server.is_etcd:  # 3.4.23 answers for those, too, that wait for a revision to come
            future = stream.created(b"wq/a", start=revision + 1000)
            stream.ask_progress()
            stream.cancel_watcher(future)
            equal(stream.next().watch_id, future)


@case
def watch_progress_behind_events(server):
    """Progress never overtakes an event that it covers."""
    if server.is_etcd:  # 3.4.23 may do just that
        return
    raw = Raw(server)
    first = raw.revision() + 1
    for i in range(300):
        raw.put(b"wb/%d" % (i % 7), b"%d" % i)
    with WatchStream(server.channel) as stream:
        stream.created(b"wb/", b"wb0", start=first)
        seen, covered = 0, 0
        while covered < first + 299:
            stream.ask_progress()
            try:
                response = stream.next(timeout=1)
            except queue.Empty:  # who asks too early may get no answer, and asks again
                continue
            for event in response.events:
                true(event.kv.mod_revision > covered, "an event that progress had covered")
                seen += 1
            if response.watch_id == -1:
                covered = response.header.revision
        equal(seen, 300)


@case
def watch_half_closed(server):
    raw = Raw(server)
    with WatchStream(server.channel) as stream:
        stream.created(b"wh/a")
        stream.finish()
        for i in range(3):
            raw.put(b"wh/a", b"%d" % i)
            equal(key_values(stream.next()), [(b"wh/a", b"%d" % i)])


@case
def watch_deadline(server):
    raw = Raw(server)
    stream = WatchStream(server.channel, timeout=1)
    stream.created(b"wl/a")
    equal(stream.end()[0], Code.DEADLINE_EXCEEDED)
    raw.put(b"wl/a")


@case
def watch_cancelled(server):
    raw = Raw(server)
    with WatchStream(server.channel) as other:
        other.created(b"wn/a")
        stream = WatchStream(server.channel)
        stream.created(b"wn/a")
        stream.cancel()
        equal(stream.end()[0], Code.CANCELLED)
        raw.put(b"wn/a", b"1")
        equal(key_values(other.next()), [(b"wn/a", b"1")])


@case
def watch_many_on_one_stream(server):
    raw = Raw(server)
    with WatchStream(server.channel) as stream:
        for i in range(1000):
            stream.create(b"wm/%d" % i if i % 2 else b"wm/", b"" if i % 2 else b"wm0")
        equal([stream.next().watch_id for _ in range(1000)], list(range(1000)))
        revision = raw.put(b"wm/501", b"1").header.revision
        responses = [stream.next() for _ in range(501)]
        equal(sorted(response.watch_id for response in responses), sorted([501, *range(0, 1000, 2)]))
        equal({event.kv.mod_revision for response in responses for event in response.events}, {revision})
        for i in range(1000):
            stream.cancel_watcher(i)
        equal([(response.watch_id, response.canceled) for response in (stream.next() for _ in range(1000))],
              [(i, True) for i in range(1000)])


@case
def streams_many_on_one_channel(server):
    raw = Raw(server)
    streams = [WatchStream(server.channel) for _ in range(100)]
    try:
        for stream in streams:
            stream.create(b"sm/a")
        for stream in streams:
            equal(stream.next().created, True)
        pending = [raw.kv.Put.future(rpc.PutRequest(key=b"sm/a", value=b"%d" % i), timeout=SECONDS)
                   for i in range(100)]
        revisions = sorted(call.result().header.revision for call in pending)
        equal(revisions, list(range(revisions[0], revisions[0] + 100)))
        for stream in streams:
            seen = []
            while len(seen) < 100:
                seen += [event.kv.mod_revision for event in stream.next().events]
            equal(seen, revisions)
    finally:
        for stream in streams:
            stream.cancel()


@case
def watch_slow_reader(server):
    """Who does not read holds up nobody, and in the end has missed nothing."""
    raw = Raw(server)
    start = raw.revision() + 1
    value = b"v" * (MIB // 2)
    with WatchStream(server.channel, is_read=False) as stream:
        stream.create(b"wz/a", start=start)
        for _ in range(20):
            raw.put(b"wz/a", value)
        equal(raw.range(b"wz/a").kvs[0].version, 20)
        stream.read()
        equal(stream.next().created, True)
        seen = []
        while len(seen) < 20:
            seen += [event.kv.mod_revision for event in stream.next().events]
        equal(seen, list(range(start, start + 20)))
    raw.delete(b"wz/a")


@case
def watch_until_shutdown(server):
    """When the server goes, streams end with a status that makes a client come again: never well, never for good."""
    raw = Raw(server)
    lease = raw.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=600)).ID
    idle, followed, keeper = WatchStream(server.channel), WatchStream(server.channel), KeepAliveStream(server.channel)
    idle.created(b"ws/a")
    followed.created(b"ws/b")
    raw.put(b"ws/b", b"1")
    equal(key_values(followed.next()), [(b"ws/b", b"1")])
    keeper.ask(lease)
    equal(keeper.next().TTL, 600)
    print("watching", flush=True)
    for stream in (idle, followed, keeper):
        equal(stream.end()[0], Code.UNAVAILABLE)


# Lease -------------------------------------------------------------------------------------------------------------

@case
def keep_alive_half_closed(server):
    """Every request is answered in order, also of leases that are not there; then the stream ends well."""
    raw = Raw(server)
    lease = raw.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=600)).ID
    stream = KeepAliveStream(server.channel)
    for asked in (lease, 1234, lease):
        stream.ask(asked)
    stream.finish()
    answers = [stream.next() for _ in range(3)]
    equal([(answer.ID, answer.TTL) for answer in answers], [(lease, 600), (1234, 0), (lease, 600)])
    true(all(answer.header.revision for answer in answers), "no revision in the header")
    equal(stream.end(), (Code.OK, ""))
    raw.leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))


@case
def lease_list(server):
    """Those that end first come first."""
    raw = Raw(server)
    ids = [raw.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=ttl)).ID for ttl in (900000, 300000, 600000)]
    listed = wire.fields(raw.call("/etcdserverpb.Lease/LeaseLeases")).get(2, [])
    listed = [wire.fields(status)[1][0] for status in listed]
    equal([lease for lease in listed if lease in ids], [ids[1], ids[2], ids[0]])
    for lease in ids:
        raw.leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))


# gRPC --------------------------------------------------------------------------------------------------------------

@case
def unknown_names(server):
    raw = Raw(server)
    refused(Code.UNIMPLEMENTED, "unknown method Nothing for service etcdserverpb.KV", raw.call,
            "/etcdserverpb.KV/Nothing")
    refused(Code.UNIMPLEMENTED, "unknown service nobody.Nothing", raw.call, "/nobody.Nothing/Range")
    refused(Code.RESOURCE_EXHAUSTED if server.is_etcd else Code.UNIMPLEMENTED,  # a newer gRPC has another code
            'malformed method name: "/nothing"', raw.call, "/nothing")


@case
def oversized_message(server):
    """What is too large for a message is refused by its length, what is too large for a write by its bytes."""
    raw = Raw(server)
    overhead = len(rpc.PutRequest(key=b"om/a", value=b"v" * MIB).SerializeToString()) - MIB
    largest = b"v" * (RECEIVE_LIMIT - overhead)
    too_large = "grpc: received message larger than max (%d vs. 2097152)"
    refused(Code.INVALID_ARGUMENT, "etcdserver: request is too large", raw.put, b"om/a", largest)
    refused(Code.RESOURCE_EXHAUSTED, too_large % (RECEIVE_LIMIT + 1), raw.put, b"om/a", largest + b"v")
    refused(Code.RESOURCE_EXHAUSTED, too_large % (2 * RECEIVE_LIMIT), raw.call, "/etcdserverpb.KV/Put",
            b"v" * 2 * RECEIVE_LIMIT)
    equal(raw.range(b"om/a").count, 0)


@case
def compressed_request(server):
    request = rpc.PutRequest(key=b"cr/a", value=b"v" * 10000)
    refused(Code.UNIMPLEMENTED, 'grpc: Decompressor is not installed for grpc-encoding "gzip"',
            Raw(server).kv.Put, request, timeout=SECONDS, compression=grpc.Compression.Gzip)


@case
def malformed_message(server):
    raw = Raw(server)
    for data in (b"\x0a\x05abc", b"\xff", b"\x0a" + b"\xff" * 11):
        equal(raises(grpc.RpcError, raw.call, "/etcdserverpb.KV/Range", data).code(), Code.INTERNAL)
    equal(raw.range(b"mm/a").count, 0)


@case
def unknown_fields(server):
    raw = Raw(server)
    request = wire.message(_1=b"uf/a", _2=b"1", _99=b"more", _1000=7)
    raw.call("/etcdserverpb.KV/Put", request)
    equal(raw.range(b"uf/a").kvs[0].value, b"1")


@case
def metadata(server):
    """What a caller adds is not in the way."""
    raw = Raw(server)
    more = [("hasleader", "true"), ("client-api-version", "3.5"), ("trace-bin", bytes(range(256))),
            ("source", "cache"), ("repeated", "a"), ("repeated", "b"), ("long", "x" * 4000)]
    if not server.is_etcd:  # 3.4.23 looks at tokens even where nobody needs one
        more += [("token", "none"), ("authorization", "none")]
    equal(raw.kv.Range(rpc.RangeRequest(key=b"md/a"), timeout=SECONDS, metadata=more).count, 0)
    with WatchStream(server.channel, metadata=more) as stream:
        equal(stream.created(b"md/a"), 0)


@case
def health(server):
    raw = Raw(server)
    equal(raw.call("/grpc.health.v1.Health/Check"), b"\x08\x01")
    refused(Code.NOT_FOUND, "unknown service", raw.call, "/grpc.health.v1.Health/Check", wire.message(_1=b"nothing"))
    for service, status in ((b"", 1), (wire.message(_1=b"nothing"), 3)):
        with Stream(server.channel, "/grpc.health.v1.Health/Watch") as watch:
            watch.send(service)
            watch.finish()
            equal(watch.next_bytes(), b"\x08%c" % status)


@case
def calls_cancelled(server):
    """Calls that are given up half-way leave the others alone."""
    raw = Raw(server)
    raw.put(b"cc/a", b"v" * MIB)
    for _ in range(20):
        given_up = raw.kv.Range.future(rpc.RangeRequest(key=b"cc/a"))
        kept = raw.kv.Range.future(rpc.RangeRequest(key=b"cc/a"), timeout=SECONDS)
        given_up.cancel()
        equal(len(kept.result().kvs[0].value), MIB)
    stream = Stream(server.channel, "/etcdserverpb.Watch/Watch")
    stream.cancel()
    equal(stream.end()[0], Code.CANCELLED)
    raw.delete(b"cc/a")
