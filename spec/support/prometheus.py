"""Reads metrics from stdin with the parser of Prometheus' own client, and prints what it has found."""

import sys

from prometheus_client.parser import text_string_to_metric_families

for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type, len(family.samples))
