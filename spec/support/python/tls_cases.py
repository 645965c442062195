"""Errors of refused TLS connections: spec/interop/tls_spec.lua runs this against servers with wrong certificates."""

import etcd3
import etcd3.etcdrpc as rpc
import grpc

from case import SECONDS, case, equal, raises


@case
def no_connection(server):
    """Prints why there is no connection."""
    raises(etcd3.exceptions.ConnectionFailedError, server.client.get, "a")
    error = raises(grpc.RpcError, rpc.KVStub(server.channel).Range, rpc.RangeRequest(key=b"a"), timeout=SECONDS)
    equal(error.code(), grpc.StatusCode.UNAVAILABLE)
    print(error.details())
