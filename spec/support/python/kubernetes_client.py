# Debian's python3-kubernetes against a server with the widgets of spec/interop/kubernetes_spec.lua. Prints "done".
import sys
import threading

from kubernetes import client, dynamic, watch
from kubernetes.client.rest import ApiException

GROUP, VERSION, PLURAL, NAMESPACE = "demo.example", "v1", "widgets", "python"

configuration = client.Configuration()
configuration.host = sys.argv[1]
api_client = client.ApiClient(configuration)
custom = client.CustomObjectsApi(api_client)
core = client.CoreV1Api(api_client)
PLACE = (GROUP, VERSION, NAMESPACE, PLURAL)


def widget(name, size, **metadata):
    return {"apiVersion": "demo.example/v1", "kind": "Widget", "metadata": {"name": name, **metadata},
            "spec": {"size": size}}


def fails(code, fn, *arguments, **options):
    try:
        fn(*arguments, **options)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        return error
    raise AssertionError("succeeds, instead of %d" % code)


def makes_a_namespace():
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    assert NAMESPACE in [one.metadata.name for one in core.list_namespace().items]


def writes_and_reads():
    made = custom.create_namespaced_custom_object(*PLACE, widget("a", 1))
    assert made["metadata"]["uid"] and made["metadata"]["generation"] == 1
    fails(409, custom.create_namespaced_custom_object, *PLACE, widget("a", 1))
    fails(404, custom.get_namespaced_custom_object, *PLACE, "nothing")
    fails(422, custom.create_namespaced_custom_object, *PLACE, widget("b", 1000))
    made["spec"]["size"] = 2
    changed = custom.replace_namespaced_custom_object(*PLACE, "a", made)
    assert changed["metadata"]["generation"] == 2
    fails(409, custom.replace_namespaced_custom_object, *PLACE, "a", made)
    patched = custom.patch_namespaced_custom_object(*PLACE, "a", {"spec": {"color": "red"}})
    assert patched["spec"] == {"size": 2, "color": "red"}
    listed = custom.list_namespaced_custom_object(*PLACE, label_selector="app=x")
    assert listed["items"] == []
    deleted = custom.delete_namespaced_custom_object(*PLACE, "a")
    assert deleted["status"] == "Success", deleted


def watches():
    for i in range(3):
        custom.create_namespaced_custom_object(*PLACE, widget("w%d" % i, i))
    seen, started = [], threading.Event()

    def follow():
        for event in watch.Watch().stream(custom.list_namespaced_custom_object, *PLACE, timeout_seconds=20):
            seen.append((event["type"], event["object"]["metadata"]["name"], event["object"]["spec"].get("color")))
            started.set()
            if event["type"] == "DELETED":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    assert started.wait(20)
    custom.patch_namespaced_custom_object(*PLACE, "w1", {"spec": {"color": "gr\u00fcn \u2028 <&>"}})
    custom.delete_namespaced_custom_object(*PLACE, "w0")
    thread.join(20)
    assert seen == [("ADDED", "w0", None), ("ADDED", "w1", None), ("ADDED", "w2", None),
                    ("MODIFIED", "w1", "gr\u00fcn \u2028 <&>"), ("DELETED", "w0", None)], seen


def is_told_when_it_is_too_late():
    error = None
    try:
        for _ in watch.Watch().stream(custom.list_namespaced_custom_object, *PLACE, resource_version=1,
                                      timeout_seconds=1):
            pass
    except ApiException as raised:
        error = raised
    assert error is None or error.status == 410, error


def has_a_dynamic_client():
    one = dynamic.DynamicClient(api_client)
    widgets = one.resources.get(api_version="demo.example/v1", kind="Widget")
    widgets.create(body=widget("d", 5), namespace=NAMESPACE)
    assert widgets.get(name="d", namespace=NAMESPACE).spec.size == 5
    widgets.patch(body={"spec": {"size": 6}}, name="d", namespace=NAMESPACE,
                  content_type="application/merge-patch+json")
    assert [w.metadata.name for w in widgets.get(namespace=NAMESPACE).items] == ["d", "w1", "w2"]
    status = widgets.status.patch(body={"status": {"replicas": 3}}, name="d", namespace=NAMESPACE,
                                  content_type="application/merge-patch+json")
    assert status.status.replicas == 3 and status.spec.size == 6
    widgets.delete(name="d", namespace=NAMESPACE)
    fails(404, widgets.get, name="d", namespace=NAMESPACE)


def has_the_built_in_kinds():
    core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="c"), data={"key": "value"}))
    assert core.read_namespaced_config_map("c", NAMESPACE).data == {"key": "value"}
    core.create_namespaced_secret(NAMESPACE, client.V1Secret(
        metadata=client.V1ObjectMeta(name="s"), string_data={"word": "abc"}))
    assert core.read_namespaced_secret("s", NAMESPACE).data == {"word": "YWJj"}
    assert client.VersionApi(api_client).get_code().major == "1"


def deletes_a_collection():
    custom.delete_collection_namespaced_custom_object(*PLACE)
    assert custom.list_namespaced_custom_object(*PLACE)["items"] == []


for check in (makes_a_namespace, writes_and_reads, watches, is_told_when_it_is_too_late, has_a_dynamic_client,
              has_the_built_in_kinds, deletes_a_collection):
    check()
print("done")
