"""What the API server of apply.sh holds of the chart. Exits with a sentence where it is not what the chart promises."""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

SERVER, TOKEN, CA = (os.environ[f"TAILWATER_CHART_{name}"] for name in ("SERVER", "TOKEN", "CA"))
# Pod security levels, the tightest first: https://kubernetes.io/docs/concepts/security/pod-security-standards/
LEVELS = ("restricted", "baseline", "privileged")


def call(method, path, body=None, token=TOKEN):
    """Status and answer of one request; 0 where nobody answers."""
    request = urllib.request.Request(SERVER + path, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    data = None if body is None else json.dumps(body).encode()
    try:
        context = ssl.create_default_context(cafile=CA)
        with urllib.request.urlopen(request, data, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def read(path):
    status, answer = call("GET", path)
    return json.loads(answer) if status == 200 else None


def made(path, body):
    status, answer = call("POST", path, body)
    if status not in (201, 409):
        sys.exit(f"chart: POST {path}: {status} {answer}")


def paths(namespace, name):
    """Where the objects of a release are, by kind."""
    apps, core = f"/apis/apps/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
    return {
        "DaemonSet": f"{apps}/daemonsets/{name}-agent",
        "StatefulSet": f"{apps}/statefulsets/{name}",
        "Service": f"{core}/services/{name}",
        "the agent's ConfigMap": f"{core}/configmaps/{name}-agent",
        "the collector's ConfigMap": f"{core}/configmaps/{name}",
    }


def ready():
    for _ in range(240):
        if call("GET", "/readyz")[0] == 200:
            return
        time.sleep(0.25)
    sys.exit("chart: the API server was not ready after a minute")


def installed(namespace, name):
    for kind, path in paths(namespace, name).items():
        if read(path) is None:
            sys.exit(f"chart: {kind} is missing at {path}")
    service = read(paths(namespace, name)["Service"])
    if not service["spec"].get("clusterIP"):
        sys.exit("chart: the server gave the Service no address")
    account = {"metadata": {"name": "default"}}
    made(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)


def upgraded(namespace, name):
    """A changed configuration of the collector starts the collector again, and no agent."""
    of = paths(namespace, name)
    generations = {kind: read(of[kind])["metadata"]["generation"] for kind in ("StatefulSet", "DaemonSet")}
    if generations != {"StatefulSet": 2, "DaemonSet": 1}:
        sys.exit(f"chart: after an upgrade of the collector's configuration the server counts {generations}")


def levels(namespace, name):
    """The collector's pod is let in at the tightest level, the agent's at `privileged` alone, as deploy/README.md says."""
    of = paths(namespace, name)
    for kind, tightest in (("StatefulSet", "restricted"), ("DaemonSet", "privileged")):
        template = read(of[kind])["spec"]["template"]
        pod = {"metadata": {**template["metadata"], "name": "asked"}, "spec": template["spec"]}
        # The volume of a claim is put in by the controller, which does not run here.
        for claim in read(of[kind])["spec"].get("volumeClaimTemplates", []):
            at = claim["metadata"]["name"]
            pod["spec"]["volumes"].append({"name": at, "persistentVolumeClaim": {"claimName": at}})
        for level in LEVELS:
            asked = f"{namespace}-{level}"
            labels = {"pod-security.kubernetes.io/enforce": level}
            made("/api/v1/namespaces", {"metadata": {"name": asked, "labels": labels}})
            made(f"/api/v1/namespaces/{asked}/serviceaccounts", {"metadata": {"name": "default"}})
            status, answer = call("POST", f"/api/v1/namespaces/{asked}/pods?dryRun=All&fieldValidation=Strict", pod)
            wanted = 201 if LEVELS.index(level) >= LEVELS.index(tightest) else 403
            if status != wanted:
                sys.exit(f"chart: a pod of the {kind} at level {level}: {status} instead of {wanted}: {answer}")
            if wanted == 403:
                print(f"chart: {kind} at {level}: {json.loads(answer)['message']}")


def reviews(namespace, name):
    """The collector's account may ask whose an agent's token is, and nothing else, and hears what `collector/src/authority/kubernetes.rs` looks for; the
    agent's may not ask.
    No pod is behind these tokens, so no node is named."""

    def token(account, audiences):
        body = {"spec": {"expirationSeconds": 600, **({"audiences": audiences} if audiences else {})}}
        status, answer = call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
        if status != 201:
            sys.exit(f"chart: no token of {account}: {status} {answer}")
        return json.loads(answer)["status"]["token"]

    def review(of, asks):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": of, "audiences": ["tailwater"]}}
        return call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body, token=asks)

    collector, agent = token(name, None), token(f"{name}-agent", ["tailwater"])
    status, answer = review(agent, asks=collector)
    told = json.loads(answer).get("status", {}) if status == 201 else {}
    user = f"system:serviceaccount:{namespace}:{name}-agent"
    if (told.get("authenticated"), told.get("audiences"), told.get("user", {}).get("username")) != (True, ["tailwater"], user):
        sys.exit(f"chart: the collector hears of an agent's token: {status} {answer}")
    status, answer = review(token(f"{name}-agent", ["other"]), asks=collector)
    if status != 201 or json.loads(answer)["status"].get("authenticated"):
        sys.exit(f"chart: a token for somebody else: {status} {answer}")
    error = json.loads(answer)["status"].get("error", "")
    if "invalid bearer token" not in error:
        sys.exit(f"chart: a token for somebody else is told by other words than the collector takes for a refusal: {error}")
    print(f"chart: a token for somebody else: {error}")
    status, answer = review(agent, asks=token(f"{name}-agent", None))
    if status != 403:
        sys.exit(f"chart: an agent asks whose a token is: {status} {answer}")
    may = {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}}
    asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": may}
    status, answer = call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked, token=collector)
    if status != 403:
        sys.exit(f"chart: the collector asks what somebody may do: {status} {answer}")


def gone(namespace, name):
    left = [kind for kind, path in paths(namespace, name).items() if read(path) is not None]
    if left:
        sys.exit(f"chart: after uninstalling {name} there are left: {', '.join(left)}")


def version():
    print("kube-apiserver", read("/version")["gitVersion"])


if __name__ == "__main__":
    {f.__name__: f for f in (ready, installed, upgraded, levels, reviews, gone, version)}[sys.argv[1]](*sys.argv[2:])
