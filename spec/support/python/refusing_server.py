# An HTTP/1.1 server that answers each request with 413 once its head has arrived, and closes the connection, which the
# kernel then resets. Prints "port N".
import socket

listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
while True:
    accepted = listener.accept()[0]
    accepted.recv(65536)
    accepted.sendall(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
    accepted.close()
