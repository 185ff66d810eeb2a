"""What the chart renders with enrolment, by its file: who may ask the API server what, and that no agent sees a key that is not its own. Exits with a
sentence where it is not what values.yaml promises."""

import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(file) if one}


def must(holds, what):
    if not holds:
        sys.exit(f"chart with enrolment: {what}")


def pod(kind, name):
    spec = objects[kind, name]["spec"]["template"]["spec"]
    volumes = {of["name"]: of for of in spec["volumes"]}
    mounts = {of["name"]: of["mountPath"] for of in spec["containers"][0]["volumeMounts"]}
    names = {of["name"]: of.get("value") for of in spec["containers"][0]["env"]}
    return spec, volumes, mounts, names


agent, volumes, mounts, names = pod("DaemonSet", "tailwater-agent")
must(agent["serviceAccountName"] == "tailwater-agent", "agents have no account of their own")
must(agent["automountServiceAccountToken"] is False, "agents get a token that is good for the API server")
token = volumes["token"]["projected"]["sources"][0]["serviceAccountToken"]
must(token == {"audience": "tailwater", "expirationSeconds": 3600, "path": "token"}, f"the agents' token is {token}")
must(names["TAILWATER_AGENT_JOIN_TOKEN_FILE"] == f"{mounts['token']}/token", "the agent looks for its token elsewhere")
must(names["TAILWATER_AGENT_JOIN_CA"] == f"{mounts['authority']}/tls.crt", "the agent looks for its authority elsewhere")
must(names["TAILWATER_AGENT_IDENTITY"].startswith(mounts["identity"] + "/"), "the agent keeps its key elsewhere")
must([of["key"] for of in volumes["authority"]["secret"]["items"]] == ["tls.crt"], "agents see the authority's key")
must("tls" not in volumes and "TAILWATER_AGENT_TLS_CERT" not in names, "agents that join have a shared certificate as well")

collector, volumes, mounts, names = pod("StatefulSet", "tailwater")
must(collector["serviceAccountName"] == "tailwater", "the collector has no account of its own")
must(collector["automountServiceAccountToken"] is True, "the collector has no token to ask by")
must("tls" not in volumes and "TAILWATER_TLS_CERT" not in names, "the collector needs a certificate of somebody's")
text = objects["ConfigMap", "tailwater"]["data"]["tailwater.toml"]
for line in (
    "[authority]",
    'names = ["tailwater.tailwater.svc"]',
    f'key = "{mounts["authority"]}/tls.key"',
    "certificate_days = 30",
    "[authority.kubernetes]",
    'accounts = ["tailwater:tailwater-agent"]',
    'audience = "tailwater"',
):
    must(line in text.splitlines(), f"{line} is not in tailwater.toml:\n{text}")
must("hosts =" not in text, "an empty pattern lets nobody join")

role = objects["ClusterRole", "tailwater-tailwater-token-reviews"]
rules = [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]
must(role["rules"] == rules, f"the collector may do {role['rules']}")
binding = objects["ClusterRoleBinding", "tailwater-tailwater-token-reviews"]
must((binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", role["metadata"]["name"]), "the collector has another role")
subjects = [(of["kind"], of["namespace"], of["name"]) for of in binding["subjects"]]
must(subjects == [("ServiceAccount", "tailwater", "tailwater")], f"{subjects} may ask whose tokens are")
