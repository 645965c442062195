"""Cases of etcd3, a common Python client."""

import queue
import threading

import etcd3
import etcd3.etcdrpc as rpc
import grpc

from case import SECONDS, case, equal, raises, refused, true


def values(answer):
    return [value for value, _ in answer]


@case
def put_and_get(server):
    client = server.client
    first = client.put("pg/a", "1")
    second = client.put("pg/a", b"\x00\xff", prev_kv=True)
    equal(second.header.revision, first.header.revision + 1)
    equal((second.prev_kv.key, second.prev_kv.value, second.prev_kv.version), (b"pg/a", b"1", 1))

    value, metadata = client.get("pg/a")
    equal((value, metadata.key, metadata.version, metadata.lease_id), (b"\x00\xff", b"pg/a", 2, 0))
    equal((metadata.create_revision, metadata.mod_revision), (first.header.revision, second.header.revision))
    equal(metadata.response_header.revision, second.header.revision)
    true(metadata.response_header.cluster_id and metadata.response_header.member_id, "no ids in the header")
    true(metadata.response_header.raft_term, "no term in the header")
    equal(client.get("pg/nothing"), (None, None))
    equal(client.get("pg/a", serializable=True)[0], b"\x00\xff")


@case
def transaction(server):
    client, txn = server.client, server.client.transactions
    client.put("tx/a", "1")
    ok, answers = client.transaction(
        compare=[txn.value("tx/a") == "1", txn.version("tx/a") > 0, txn.create("tx/b") == 0, txn.mod("tx/a") != 0],
        success=[txn.put("tx/b", "2", prev_kv=True), txn.get("tx/b"), txn.delete("tx/a", prev_kv=True)],
        failure=[txn.get("tx/a")],
    )
    equal(ok, True)
    equal(values(answers[1]), [b"2"])
    equal((answers[2].response_delete_range.deleted, answers[2].response_delete_range.prev_kvs[0].value), (1, b"1"))
    ok, answers = client.transaction(
        compare=[txn.value("tx/b") < "2"], success=[], failure=[txn.get("tx/", range_end="tx0")])
    equal((ok, values(answers[0])), (False, [b"2"]))
    equal(client.put_if_not_exists("tx/b", "x"), False)
    equal(client.put_if_not_exists("tx/c", "x"), True)
    equal(client.replace("tx/c", "y", "z"), False)
    equal(client.replace("tx/c", "x", "z"), True)
    equal(client.get("tx/c")[0], b"z")


@case
def lease(server):
    client = server.client
    granted = client.lease(600)
    equal(granted.ttl, 600)
    client.put("le/a", "1", lease=granted)
    client.put("le/b", "1", lease=granted.id)
    equal(sorted(granted.keys), [b"le/a", b"le/b"])
    equal(granted.granted_ttl, 600)
    true(0 < granted.remaining_ttl <= 600, "strange remaining time: %d" % granted.remaining_ttl)
    equal([(answer.ID, answer.TTL) for answer in granted.refresh()], [(granted.id, 600)])
    equal(client.get("le/a")[1].lease_id, granted.id)
    granted.revoke()
    equal(values(client.get_prefix("le/")), [])
    equal(client.get_lease_info(granted.id).TTL, -1)
    refused(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found", client.revoke_lease, granted.id)
    equal([answer.TTL for answer in client.refresh_lease(granted.id)], [0])


@case
def lease_ids(server):
    client = server.client
    for chosen in (77, -5, 2 ** 63 - 1):
        equal(client.lease(600, lease_id=chosen).id, chosen)
        client.put("li/%d" % chosen, "", lease=chosen)
        equal(client.get("li/%d" % chosen)[1].lease_id, chosen)
        raises(etcd3.exceptions.PreconditionFailedError, client.lease, 600, lease_id=chosen)
        client.revoke_lease(chosen)
    true(client.lease(600).id > 0, "an id that is not positive")


@case
def lease_refreshed(server):
    """A refreshed lease outlives two others that are granted one after the other, and together last longer."""
    client = server.client
    kept = client.lease(3)
    client.put("re/kept", "", lease=kept)
    events, cancel = client.watch("re/left")
    over = threading.Event()

    def refresh():
        while not over.wait(0.3):
            kept.refresh()

    thread = threading.Thread(target=refresh)
    thread.start()
    try:
        for _ in range(2):
            client.put("re/left", "", lease=client.lease(2))
            equal([type(next(events)).__name__ for _ in range(2)], ["PutEvent", "DeleteEvent"])
        equal(client.get("re/kept")[0], b"")
    finally:
        over.set()
        thread.join()
        cancel()
    kept.revoke()


@case
def lock(server):
    first, second = server.client.lock("lk", ttl=60), server.client.lock("lk", ttl=60)
    equal(first.acquire(), True)
    equal((first.is_acquired(), second.is_acquired()), (True, False))
    equal(first.refresh()[0].TTL, 60)
    equal(second.acquire(timeout=0), False)
    equal(first.release(), True)
    equal(second.acquire(), True)
    equal((first.release(), second.release()), (False, True))


@case
def watch_callback(server):
    client, seen = server.client, queue.Queue()
    watch_id = client.add_watch_callback("cb/a", seen.put)
    put = client.put("cb/a", "1")
    response = seen.get(timeout=SECONDS)
    equal([(event.key, event.value) for event in response.events], [(b"cb/a", b"1")])
    equal(response.header.revision, put.header.revision)
    client.cancel_watch(watch_id)


@case
def watch_iterator(server):
    client = server.client
    events, cancel = client.watch("it/a")
    for i in range(50):
        client.put("it/a", str(i))
        client.put("it/b", str(i))
    client.delete("it/a")
    equal([next(events).value for _ in range(50)], [str(i).encode() for i in range(50)])
    equal(type(next(events)).__name__, "DeleteEvent")
    cancel()
    equal(list(events), [])


@case
def compaction(server):
    client = server.client
    first = client.put("co/a", "1").header.revision
    client.put("co/a", "2")
    last = client.put("co/a", "3").header.revision
    client.compact(last - 1, physical=True)
    refused(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted",
            client.compact, last - 1)
    refused(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision",
            client.compact, last + 1000000)
    events, _ = client.watch("co/a", start_revision=first)
    equal(raises(etcd3.exceptions.RevisionCompactedError, next, events).compacted_revision, last - 1)
    events, cancel = client.watch("co/a", start_revision=last - 1)
    equal([next(events).value, next(events).value], [b"2", b"3"])
    cancel()


@case
def status_and_members(server):
    client = server.client
    status = client.status()
    true(status.db_size > 0 and status.raft_index > 0 and status.raft_term > 0, "an empty status")
    members = list(client.members)
    equal(len(members), 1)
    equal(status.leader.id, members[0].id)
    true(members[0].name, "a member without a name")
    equal(list(members[0].client_urls), ["http://" + server.address])


@case
def alarm(server):
    client = server.client
    equal(list(client.list_alarms()), [])
    member = next(iter(client.members)).id
    try:
        raised = client.create_alarm(member)
        equal([(item.alarm_type, item.member_id) for item in raised], [(rpc.NOSPACE, member)])
        equal([item.member_id for item in client.list_alarms()], [member])
        refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded",
                client.put, "al/a", "1")
        equal(client.delete("al/a"), False)
    finally:
        client.disarm_alarm(member)
    equal(list(client.list_alarms()), [])
    client.put("al/a", "1")
