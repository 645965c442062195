"""Messages as Google's protobuf has them: the referee of spec/codec/protobuf_spec.lua.

    protobuf.py FILE

Lines of FILE are of three kinds: "enum NAME VALUE...", "field MESSAGE NUMBER NAME TYPE MARK" (MARK is -, * for a
repeated field, or ? for a member of the oneof), and then "decode MESSAGE HEX". For each line with "decode" the program
prints "bad", or "good HEX": the message encoded again, without unknown fields.

The program refuses some messages that the library accepts: a known field with the wire type of another, as etcd does; a
tag of more than 32 bits; the field number 0, and the end of a group that has not begun, where the library stops without
an error. Strings may be any bytes, as in etcd. "twice" is printed instead of "good" if a message in a oneof is
repeated: the library merges the two, and etcd takes the last.
"""
import sys
import warnings

from etcd3.etcdrpc import auth_pb2, kv_pb2, rpc_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
KINDS = {"int64": FIELD.TYPE_INT64, "uint64": FIELD.TYPE_UINT64, "uint32": FIELD.TYPE_UINT32, "bool": FIELD.TYPE_BOOL,
         "bytes": FIELD.TYPE_BYTES, "string": FIELD.TYPE_BYTES}
VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)


def read_schema(lines):
    enums, messages = {}, {}
    for line in lines:
        kind, name, *rest = line.split()
        if kind == "enum":
            enums[name] = rest
        else:
            fields = messages.setdefault(name, [])
            if rest:
                number, field, type_, mark = rest
                fields.append((int(number), field, type_, mark))
    return enums, messages


def add_field(to, enums, number, name, type_, mark):
    field = to.field.add(name=name, number=number)
    field.label = FIELD.LABEL_REPEATED if mark == "*" else FIELD.LABEL_OPTIONAL
    if type_ in KINDS:
        field.type = KINDS[type_]
    else:
        field.type = FIELD.TYPE_ENUM if type_ in enums else FIELD.TYPE_MESSAGE
        field.type_name = ".spec." + type_
    if mark == "?":
        if not to.oneof_decl:
            to.oneof_decl.add(name="choice")
        field.oneof_index = 0


def make_classes(enums, messages):
    file = descriptor_pb2.FileDescriptorProto(name="spec.proto", package="spec", syntax="proto3")
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for i, value in enumerate(values):
            enum.value.add(name=name + "_" + value, number=i)  # names of values are those of the package
    for name, fields in messages.items():
        to = file.message_type.add(name=name)
        for field in fields:
            add_field(to, enums, *field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(pool.FindMessageTypeByName("spec." + name)) for name in messages}


def kind_of(field):
    if field.message_type:
        return field.message_type.name
    if field.enum_type:
        return "enum"
    return {FIELD.TYPE_STRING: FIELD.TYPE_BYTES}.get(field.type, field.type)  # some were strings in older versions


def compare_with_etcd3(enums, messages):
    """Checks that the schema agrees with python3-etcd3, which has an older one of etcd."""
    for module in (rpc_pb2, kv_pb2, auth_pb2):
        for name, theirs in module.DESCRIPTOR.message_types_by_name.items():
            ours = {field[0]: field for field in messages[name]}
            for field in theirs.fields:
                _, label, type_, mark = ours[field.number]
                if field.enum_type:
                    values = [value.name for value in field.enum_type.values]
                    assert values == enums[type_][:len(values)], (name, label)
                kind = "enum" if type_ in enums else KINDS.get(type_, type_)
                found = (field.name, kind_of(field), field.label == field.LABEL_REPEATED, bool(field.containing_oneof))
                assert found == (label, kind, mark == "*", mark == "?"), (name, found)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & (1 << 64) - 1, at


def walk(data):
    """Yields the fields of a message that the library has accepted: number, type, and the content of a BYTES. Yields
    None, as the last one, for a field that the library should have refused."""
    at = depth = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, type_, content = tag >> 3, tag & 7, None
        if number == 0 or number >= 1 << 29 or (type_ == GROUP_END and depth == 0):
            yield None
            return
        if type_ == VARINT:
            _, at = varint(data, at)
        elif type_ == BYTES:
            size, at = varint(data, at)
            content, at = data[at:at + size], at + size
        elif type_ in (FIXED64, FIXED32):
            at += 8 if type_ == FIXED64 else 4
        if depth == 0:
            yield number, type_, content
        depth += {GROUP: 1, GROUP_END: -1}.get(type_, 0)


def judge(schema, name, data):
    """Returns good, bad or twice; see above."""
    enums, messages = schema
    fields = {field[0]: field for field in messages[name]}
    verdict, chosen = "good", False
    for found in walk(data):
        if found is None:
            return "bad"
        number, type_, content = found
        if number not in fields:
            continue
        _, _, kind, mark = fields[number]
        is_number = kind in enums or kind in ("int64", "uint64", "uint32", "bool")
        is_packed = is_number and mark == "*" and type_ == BYTES
        if type_ != (VARINT if is_number and not is_packed else BYTES):
            return "bad"
        if kind in messages:
            inner = judge(schema, kind, content)
            if inner == "bad":
                return "bad"
            if inner == "twice" or (mark == "?" and chosen):
                verdict = "twice"
        chosen = chosen or mark == "?"
    return verdict


def answer(schema, classes, name, data):
    decoded = classes[name]()
    try:
        decoded.ParseFromString(data)
    except message.DecodeError:
        return "bad"
    verdict = judge(schema, name, data)
    if verdict != "good":
        return verdict
    decoded.DiscardUnknownFields()
    return "good " + decoded.SerializeToString(deterministic=True).hex()


def main():
    warnings.simplefilter("ignore", RuntimeWarning)  # about the end of a group that has not begun
    with open(sys.argv[1]) as file:
        lines = file.read().splitlines()
    schema = read_schema(line for line in lines if not line.startswith("decode "))
    compare_with_etcd3(*schema)
    classes = make_classes(*schema)
    for line in lines:
        if line.startswith("decode "):
            _, name, *data = line.split(" ")
            print(answer(schema, classes, name, bytes.fromhex(data[0])))


main()
