"""Common parts of the cases: their list, their server, and checks with helpful messages."""

import etcd3
import grpc

SECONDS = 20  # after which an answer counts as missing

CASES = {}


def case(fn):
    """Registers a function of a server as a case, by its name."""
    CASES[fn.__name__] = fn
    return fn


OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def contents(path):
    """Returns the bytes of a file; None for None."""
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


class Server:
    """Where to connect. Channels are shared, as they would be in a program. With the file of an authority they use
    TLS, with the client certificate if one is given."""

    def __init__(self, address, is_etcd, ca=None, cert=None, key=None):
        self.address = address
        self.is_etcd = is_etcd
        self.host, self.port = address.split(":")
        self.client = etcd3.client(host=self.host, port=int(self.port), timeout=SECONDS, ca_cert=ca, cert_cert=cert,
                                   cert_key=key)
        if ca is None:
            self.channel = grpc.insecure_channel(address, options=OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(contents(ca), contents(key), contents(cert))
            self.channel = grpc.secure_channel(address, credentials, options=OPTIONS)


def equal(got, expected):
    if got != expected:
        raise AssertionError("got %.2000r, expected %.2000r" % (got, expected))


def true(value, what):
    if not value:
        raise AssertionError(what)


def raises(kind, fn, *args, **kwargs):
    """Returns the exception of a class that a call must raise."""
    try:
        result = fn(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError("no %s, but %.2000r" % (kind.__name__, result))


def refused(code, message, fn, *args, **kwargs):
    """Expects a call to fail with this status and exactly this text."""
    error = raises(grpc.RpcError, fn, *args, **kwargs)
    equal((error.code(), error.details()), (code, message))
