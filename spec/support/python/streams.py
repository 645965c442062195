"""Streams of raw calls: requests wait in a queue, and a thread reads the responses."""

import queue
import threading

import etcd3.etcdrpc as rpc
import grpc

from case import SECONDS


def identity(data):
    return data


class Ended(Exception):
    """Raised when a stream has ended, with its status."""

    def __init__(self, code, details):
        super().__init__(code, details)
        self.code = code
        self.details = details


class Stream:
    """A bidirectional call. With is_read=False nothing is read before read() is called."""

    def __init__(self, channel, path, is_read=True, **options):
        self.requests = queue.Queue()
        self.inbox = queue.Queue()
        method = channel.stream_stream(path, request_serializer=identity, response_deserializer=identity)
        self.call = method(iter(self.requests.get, None), **options)
        if is_read:
            self.read()

    def read(self):
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self):
        try:
            for data in self.call:
                self.inbox.put(data)
            self.inbox.put(Ended(self.call.code(), self.call.details()))
        except grpc.RpcError as error:
            self.inbox.put(Ended(error.code(), error.details()))

    def send(self, data):
        self.requests.put(data)

    def finish(self):
        """Half-closes the stream: no more requests follow."""
        self.requests.put(None)

    def cancel(self):
        """Cancels the call, and ends the thread that sends requests."""
        self.call.cancel()
        self.finish()

    def next_bytes(self, timeout=SECONDS):
        data = self.inbox.get(timeout=timeout)
        if isinstance(data, Ended):
            raise data
        return data

    def end(self):
        """Waits for the end, before which no response may arrive. Returns the status."""
        try:
            raise AssertionError("not the end, but %r" % self.next_bytes())
        except Ended as ended:
            return ended.code, ended.details

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cancel()


class WatchStream(Stream):
    def __init__(self, channel, **options):
        super().__init__(channel, "/etcdserverpb.Watch/Watch", **options)

    def ask(self, **request):
        self.send(rpc.WatchRequest(**request).SerializeToString())

    def create(self, key, end=b"", start=0):
        self.ask(create_request=rpc.WatchCreateRequest(key=key, range_end=end, start_revision=start))

    def created(self, *args, **kwargs):
        """Creates a watcher, and waits for the confirmation. Returns the id."""
        self.create(*args, **kwargs)
        response = self.next()
        if not response.created or response.canceled:
            raise AssertionError("not created: %r" % response)
        return response.watch_id

    def cancel_watcher(self, watch_id):
        self.ask(cancel_request=rpc.WatchCancelRequest(watch_id=watch_id))

    def next(self, timeout=SECONDS):
        return rpc.WatchResponse.FromString(self.next_bytes(timeout))


class KeepAliveStream(Stream):
    def __init__(self, channel, **options):
        super().__init__(channel, "/etcdserverpb.Lease/LeaseKeepAlive", **options)

    def ask(self, lease):
        self.send(rpc.LeaseKeepAliveRequest(ID=lease).SerializeToString())

    def next(self):
        return rpc.LeaseKeepAliveResponse.FromString(self.next_bytes())
