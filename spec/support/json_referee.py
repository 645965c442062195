"""JSON as Python has it: the referee of spec/codec/json_random_spec.lua.

    json_referee.py KIND FILE

Each line of FILE is a text in hexadecimal. For each it prints "bad", or "good" and the value, in a form that both sides
can write: n, t, f; i and a number; d, an odd number, and a power of 2; s and hexadecimal; [ … ] and { … }, with the names
in order. KIND is "integers" if
the other side has integers of 64 bits, or "doubles": then whole numbers up to 2^53 are all i, and others all d. An integer
that is out of range is a string of its digits.
"""
import json
import math
import sys

HAS_INTEGERS = sys.argv[1] == "integers"
EXACT = 2 ** 53


class Refused(Exception):
    pass


def refuse(_):
    raise Refused


class Integer(str):
    """The text of an integer."""


def write_double(x):
    if x - x != 0:
        raise Refused
    if not HAS_INTEGERS and x == int(x) and abs(x) <= EXACT and repr(x) != "-0.0":
        return "i%d" % x
    if x == 0:
        return "d-0" if repr(x) == "-0.0" else "d0"
    fraction, exponent = math.frexp(abs(x))
    odd, exponent = int(fraction * EXACT), exponent - 53
    while odd % 2 == 0:
        odd, exponent = odd // 2, exponent + 1
    return "d%s%dp%d" % ("-" if x < 0 else "", odd, exponent)


def write_integer(text):
    if text == "-0":
        return "d-0"
    fits = len(text) <= 20
    if fits and HAS_INTEGERS:
        fits = -2 ** 63 <= int(text) < 2 ** 63
    elif fits:
        fits = abs(int(text)) <= EXACT
    return "i" + text if fits else "s" + text.encode().hex()


def check_members(members):
    for name, value in members:
        write(name), write(value)
    return dict(members)


def write(value):
    if value is None:
        return "n"
    if value is True or value is False:
        return "t" if value else "f"
    if isinstance(value, Integer):
        return write_integer(value)
    if isinstance(value, float):
        return write_double(value)
    if isinstance(value, str):
        return "s" + value.encode("utf-8").hex()
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    return "{" + ",".join(sorted(write(name) + ":" + write(item) for name, item in value.items())) + "}"


def judge(text):
    try:
        value = json.loads(text.decode("utf-8"), parse_int=Integer, parse_constant=refuse,
                           object_pairs_hook=check_members)
        return "good " + write(value)
    except (ValueError, Refused):
        return "bad"


with open(sys.argv[2]) as lines:
    for line in lines:
        print(judge(bytes.fromhex(line)))
