"""Runs cases with a Python client: reads their names, one per line, and prints the result of each.

    peer.py ADDRESS keywatch|etcd [CA [CERTIFICATE KEY]]

After a case it prints "-- ok NAME", or what went wrong and then "-- failed NAME". "list" prints all names.
"""

import faulthandler
import sys
import traceback

import client_cases
import raw_cases
import tls_cases
from case import CASES, Server


def run(name, server):
    try:
        CASES[name](server)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return "failed"
    return "ok"


def main():
    faulthandler.enable()
    address, kind, *identity = sys.argv[1:]
    server = Server(address, kind == "etcd", *identity)
    for line in sys.stdin:
        name = line.strip()
        if name == "list":
            print("cases: " + " ".join(sorted(CASES)), flush=True)
        else:
            print("-- " + run(name, server) + " " + name, flush=True)


assert client_cases and raw_cases and tls_cases  # these modules fill CASES
main()
