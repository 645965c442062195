# Python's http.client against a server with the handlers of spec/support/http_handlers.lua. Prints "done".
import http.client
import socket
import sys

port = int(sys.argv[1])


def connect():
    return http.client.HTTPConnection("localhost", port, timeout=60)


def ask(one, method, path, body=None, headers=None, **options):
    one.request(method, path, body=body, headers=headers or {}, **options)
    answer = one.getresponse()
    return answer, answer.read()


def keeps_a_connection():
    one = connect()
    sockets = set()
    for i in range(100):
        answer, body = ask(one, "GET", "/echo/%d" % i)
        assert (answer.status, body) == (200, b"%d 0" % i)
        sockets.add(one.sock.getsockname())
    assert len(sockets) == 1, sockets


def sends_chunks():
    one = connect()
    for n in (0, 1, 1000, 1000000):
        parts = (b"x" * 1000 for _ in range(n // 1000)) if n >= 1000 else iter([b"x" * n] if n else [])
        _, body = ask(one, "POST", "/length", parts, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        assert body == b"%d" % n, (n, body)
    one.putrequest("POST", "/length")
    one.putheader("Transfer-Encoding", "chunked")
    one.putheader("Trailer", "X-Checksum")
    one.endheaders()
    one.send(b"3\r\nabc\r\n0\r\nX-Checksum: 1\r\n\r\n")
    assert one.getresponse().read() == b"3"
    assert ask(one, "GET", "/text")[1] == b"0123456789"


def reads_chunks():
    one = connect()
    _, body = ask(one, "GET", "/stream/10000")
    assert body == b"".join(b"line %d\n" % i for i in range(1, 10001))
    assert ask(one, "GET", "/text")[1] == b"0123456789"


def asks_for_heads():
    one = connect()
    for path, length in (("/text", "10"), ("/version", "45"), ("/zeros/5000000", "5000000"), ("/nothing", "19")):
        answer, body = ask(one, "HEAD", path)
        assert (answer.getheader("content-length"), body) == (length, b""), (path, answer.headers)
    answer, body = ask(one, "HEAD", "/stream/10")
    assert (answer.status, body) == (200, b"")
    assert ask(one, "GET", "/text")[1] == b"0123456789"


def speaks_http_1_0():
    one = connect()
    one._http_vsn, one._http_vsn_str = 10, "HTTP/1.0"
    answer, body = ask(one, "GET", "/stream/10")
    assert answer.will_close and len(body.splitlines()) == 10
    answer, body = ask(one, "GET", "/text", headers={"Connection": "keep-alive"})
    assert not answer.will_close and body == b"0123456789"


def answers_pipelined_requests():
    one = socket.create_connection(("localhost", port))
    one.sendall(b"".join(b"GET /echo/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % i for i in range(1000)))
    one.shutdown(socket.SHUT_WR)
    received = b""
    while True:
        part = one.recv(1 << 20)
        if not part:
            break
        received += part
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 1000
    assert received.endswith(b"999 0")


for case in (keeps_a_connection, sends_chunks, reads_chunks, asks_for_heads, speaks_http_1_0,
             answers_pipelined_requests):
    case()
print("done")
