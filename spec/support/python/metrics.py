# Reads metrics from stdin with Prometheus' client for Python, and fails if a family is not as Prometheus has it. Prints
# the number of families.
import math
import sys

from prometheus_client.parser import text_string_to_metric_families

text = sys.stdin.read()
n = 0
typed = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")}
for name, kind in typed.items():
    assert kind in ("counter", "gauge", "histogram"), (name, kind)


def check_histogram(samples):
    rows = {}
    for sample in samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        row = rows.setdefault(labels, {"buckets": []})
        if sample.name.endswith("_bucket"):
            row["buckets"].append((float(sample.labels["le"]), sample.value))
        else:
            row[sample.name.rsplit("_", 1)[1]] = sample.value
    for labels, row in rows.items():
        bounds = [bound for bound, _ in row["buckets"]]
        counts = [count for _, count in row["buckets"]]
        assert bounds == sorted(set(bounds)) and bounds[-1] == math.inf, (labels, bounds)
        assert counts == sorted(counts) and counts[-1] == row["count"], (labels, counts)
        assert row["sum"] >= 0 and (row["count"] > 0 or row["sum"] == 0), (labels, row)


for family in text_string_to_metric_families(text):
    n += 1
    assert family.documentation, family.name
    assert family.type in ("counter", "gauge", "histogram"), (family.name, family.type)
    seen = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
    assert len(seen) == len(set(seen)), family.name
    for sample in family.samples:
        assert not math.isnan(sample.value), sample
        if family.type != "gauge":
            assert sample.value >= 0, sample
    if family.type == "histogram":
        check_histogram(family.samples)
    elif family.type == "counter":
        assert family.name + "_total" in typed or family.name in typed, family.name
print(n)
