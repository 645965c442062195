# SPDX-License-Identifier: MIT
"""Python's etcd3 at work: the same program as peer.lua.

Many in flight are as many threads with one client: the library has no other way. Events come to a callback, which has
those of a message at once and runs in the thread that reads them; the library's iterators are fed by such a callback,
through a queue.
"""

import sys
import threading
import time

import etcd3

PREFIX = "/registry/"
KEYS = [PREFIX + "%010d" % i for i in range(10000)]
VALUE = "v" * 100
WARMING = 1000


def moment():
    return time.monotonic(), time.process_time()


def report(start, n_bytes):
    seconds, cpu = (now - then for now, then in zip(moment(), start))
    print("seconds=%.6f cpu=%.6f bytes=%d" % (seconds, cpu, n_bytes), flush=True)


def get(client, key):
    return len(client.get(key)[0])


def put(client, key):
    client.put(key, VALUE)
    return len(VALUE)


def run(client, fn, n, in_flight):
    """Calls fn n times, with so many under way. Returns the bytes of all."""
    counts = [0] * in_flight

    def work(first):
        n_bytes = 0
        for i in range(first, n, in_flight):
            n_bytes += fn(client, KEYS[i % len(KEYS)])
        counts[first] = n_bytes

    threads = [threading.Thread(target=work, args=(first,)) for first in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def measure_requests(client, fn, n, in_flight):
    run(client, fn, WARMING, in_flight)
    start = moment()
    report(start, run(client, fn, n, in_flight))


class Counter:
    """Counts n events and their bytes. `start` is when that began: with the first, unless it is known before."""

    def __init__(self, n, start):
        self.left = n
        self.start = start
        self.bytes = 0
        self.is_done = threading.Event()

    def take(self, response):
        if self.start is None:
            self.start = moment()
        for event in response.events:
            self.bytes += len(event.key) + len(event.value)
            self.left -= 1
        if self.left == 0:
            self.is_done.set()


def measure_watch(client, n):
    counter = Counter(n, None)
    client.add_watch_prefix_callback(PREFIX, counter.take)
    print("watching", flush=True)
    counter.is_done.wait()
    report(counter.start, counter.bytes)


def measure_history(client, n):
    client.get(PREFIX)
    counter = Counter(n, moment())
    client.add_watch_prefix_callback(PREFIX, counter.take, start_revision=1)
    counter.is_done.wait()
    report(counter.start, counter.bytes)


def main():
    port, what, n = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    client = etcd3.client(host="127.0.0.1", port=port)
    if what == "watch":
        measure_watch(client, n)
    elif what == "history":
        measure_history(client, n)
    else:
        measure_requests(client, {"get": get, "put": put}[what], n, int(sys.argv[4]))


main()
