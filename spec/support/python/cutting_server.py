# An HTTP/1.1 server whose answers end with their connection. The path says how that ends: /end in order, /cut without
# TLS's close_notify, /reset by a RST. Prints "port N". Arguments: the files of a certificate and its key, for TLS.
import socket
import ssl
import struct
import sys

context = None
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])


def answer(one):
    path = one.recv(65536).split(b" ")[1]
    one.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")
    if path == b"/reset":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif context and path == b"/end":
        one = one.unwrap()
    socket.socket(fileno=one.detach()).close()


listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
while True:
    accepted = listener.accept()[0]
    try:
        answer(context.wrap_socket(accepted, server_side=True) if context else accepted)
    except OSError as error:
        print(error, flush=True)
