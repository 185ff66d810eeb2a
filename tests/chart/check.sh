#!/bin/bash
# Checks the Helm chart with Helm itself and with the schemas of Kubernetes: of the oldest version that the chart takes and of a recent
# one, with its defaults, with everything switched on, and with agents that join. And that it refuses to be installed without its secrets. Needs Go
# and Python.
set -euo pipefail
cd "$(dirname "$0")/../.."
chart=deploy/helm/tailwater
tools=$PWD/target/chart
helm=3.19.4
validate=1.33.0

command -v go >/dev/null || { echo "chart: Helm is built from its source; install Go 1.24 or later" >&2; exit 1; }
[ -x "$tools/helm" ] && [ "$("$tools/helm" version --template '{{.Version}}')" = "v$helm" ] ||
    GOBIN=$tools go install -ldflags "-X helm.sh/helm/v3/internal/version.version=v$helm" "helm.sh/helm/v3/cmd/helm@v$helm"
if ! "$tools/python/bin/pip" show kubernetes-validate 2>/dev/null | grep -x "Version: $validate" >/dev/null; then
    python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$validate"
fi

secrets=(--set tls.collectorSecret=collector,tls.agentSecret=agent)
everything=(--values tests/chart/everything.yaml)
enrolment=(--set enrolment.enabled=true,enrolment.authoritySecret=authority)
render() { # Kubernetes' version, then what helm gets
    "$tools/helm" template tailwater "$chart" --namespace tailwater --kube-version "$1" "${@:2}"
}

"$tools/helm" lint --quiet --strict --kube-version 1.33.0 "$chart" "${secrets[@]}"
"$tools/helm" lint --quiet --strict --kube-version 1.33.0 "$chart" "${everything[@]}"
"$tools/helm" lint --quiet --strict --kube-version 1.33.0 "$chart" "${enrolment[@]}"
for version in 1.25 1.33; do
    for set in secrets everything; do
        declare -n arguments=$set
        file=$tools/$set-$version.yaml
        render "$version.0" "${arguments[@]}" >"$file"
        "$tools/python/bin/kubernetes-validate" --strict --kubernetes-version "$version" "$file"
    done
done
file=$tools/enrolment-1.33.yaml
render 1.33.0 "${enrolment[@]}" >"$file"
"$tools/python/bin/kubernetes-validate" --strict --kubernetes-version 1.33 "$file"
"$tools/python/bin/python" tests/chart/joins.py "$file"
# Numbers of a file of values are floats, and large ones of these are written as 1e+07.
given=$(render 1.33.0 "${enrolment[@]}" --set 'enrolment.hosts=node-*' --set-json 'enrolment.tokenSeconds=10000000,enrolment.certificateDays=7')
for line in 'expirationSeconds: 10000000' 'certificate_days = 7' 'hosts = "node-[*]"'; do
    grep -qE "^ *$line\$" <<<"$given" || { echo "chart: does not render $line" >&2; exit 1; }
done
# `helm upgrade --reuse-values` renders with the values of the release, and one from before there was enrolment has none of it.
before=$(render 1.33.0 "${secrets[@]}" --set enrolment=null)
[ "$before" = "$(cat "$tools/secrets-1.33.yaml")" ] || { echo "chart: without values of enrolment it is not as with its defaults" >&2; exit 1; }

refuses() { # what it has to name, Kubernetes' version, then what helm gets
    local named=$1 said
    if said=$(render "${@:2}" 2>&1); then
        echo "chart: is installed although of $named something is missing" >&2
        exit 1
    fi
    grep -qF "$named" <<<"$said" || { echo "chart: does not name $named: $said" >&2; exit 1; }
}
refuses tls.collectorSecret 1.33.0
refuses enrolment.authoritySecret 1.33.0 --set enrolment.enabled=true
refuses 'from Kubernetes 1.30 on' 1.29.0 "${enrolment[@]}"
refuses collector.persistence.enabled 1.33.0 "${enrolment[@]}" --set collector.persistence.enabled=false
