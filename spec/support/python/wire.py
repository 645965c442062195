"""Messages by hand: the classes that come with etcd3 are of etcd 3.3 and lack newer fields."""


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    """A field that holds an integer, a bool or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(int(value))


def message(**numbered):
    """A message of fields that are named by their numbers: message(_1=b"key", _7=5)."""
    fields = sorted((int(name[1:]), value) for name, value in numbered.items())
    return b"".join(field(number, value) for number, value in fields)


def read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def fields(data):
    """The fields of a message: a list of values for each number."""
    found, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        else:
            assert tag & 7 == 2, "no such wire type in etcd's messages: %d" % (tag & 7)
            size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found
