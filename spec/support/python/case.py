"""What the cases share: their list, the server that they are tried on, and checks that say what they saw."""

import etcd3
import grpc

SECONDS = 20  # within which an answer is there, or is taken for missing

CASES = {}


def case(fn):
    """Makes a function of a server a case, by its name."""
    CASES[fn.__name__] = fn
    return fn


OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def contents(path):
    """The bytes of a file; None of none."""
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


class Server:
    """Where to connect. Channels are shared, as they would be in a program. With the file of an authority they are
    secure, and show the certificate, if one is given."""

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
    """The exception of a kind that a call must raise."""
    try:
        result = fn(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError("no %s, but %.2000r" % (kind.__name__, result))


def refused(code, message, fn, *args, **kwargs):
    """A call must fail with this status and this very text."""
    error = raises(grpc.RpcError, fn, *args, **kwargs)
    equal((error.code(), error.details()), (code, message))
