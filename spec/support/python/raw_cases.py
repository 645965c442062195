"""Cases of gRPC's own library that no client makes: many streams, large messages, and abandoned calls."""

import etcd3.etcdrpc as rpc
import grpc

from case import SECONDS, case, equal, refused, true
from streams import KeepAliveStream, Stream, WatchStream, identity

MIB = 1024 * 1024
RECEIVE_LIMIT = 2097152
Code = grpc.StatusCode


class Raw:
    """Returns the stubs of a channel, with a time limit for every call."""

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

    def call(self, path, data=b"", **options):
        method = self.channel.unary_unary(path, request_serializer=identity, response_deserializer=identity)
        return method(data, timeout=SECONDS, **options)

    def revision(self):
        return self.range(b"nothing").header.revision


def key_values(response):
    return [(event.kv.key, event.kv.value) for event in response.events]


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
            merged.MergeFrom(rpc.ResponseOp.FromString(data).response_range)  # has the same field number
        equal(merged, raw.range(b"rs/", b"rs0", **more))
    refused(Code.UNIMPLEMENTED, "RangeStream does not support custom sort orders", list,
            ask(sort_order=rpc.RangeRequest.DESCEND))
    call = ask()
    next(call)
    call.cancel()
    equal(raw.delete(b"rs/", b"rs0").deleted, 3000)


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
    """A client that does not read delays no other, and misses nothing in the end."""
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
    """When the server stops, streams end with a status that makes a client retry: neither OK nor a permanent error."""
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


@case
def oversized_message(server):
    """Too large messages are refused by their length, too large writes by their bytes."""
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
def metadata(server):
    """Additional metadata of a caller has no effect."""
    raw = Raw(server)
    more = [("hasleader", "true"), ("client-api-version", "3.5"), ("trace-bin", bytes(range(256))),
            ("source", "cache"), ("repeated", "a"), ("repeated", "b"), ("long", "x" * 4000)]
    if not server.is_etcd:  # 3.4.23 checks tokens even without authentication
        more += [("token", "none"), ("authorization", "none")]
    equal(raw.kv.Range(rpc.RangeRequest(key=b"md/a"), timeout=SECONDS, metadata=more).count, 0)
    with WatchStream(server.channel, metadata=more) as stream:
        equal(stream.created(b"md/a"), 0)


@case
def calls_cancelled(server):
    """Calls that are abandoned half-way do not affect others."""
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
