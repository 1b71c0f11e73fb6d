package main

import (
	"encoding/json"
	"strings"
)

// JSON that Go reads but would not write: left out, null and empty where the type has none of them, quantities that are
// not in their canonical form, times with offsets and fractions, keys that nobody knows, members in any order.
func oddInputs() []string {
	inputs := []string{
		`{"kind":"Pod","apiVersion":"v1"}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":null,"spec":null,"status":null}`,
		`{"status":{},"spec":{},"metadata":{},"kind":"Pod","apiVersion":"v1"}`,
		`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[],"volumes":[],"nodeSelector":{},"hostNetwork":null,"priority":null}}`,
		`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[null,{},{"name":null,"ports":[{}],"env":[{"name":"A","unknown":{"x":[1]}}]}]},"extra":1}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"b":"2","a":null,"":"x","é":"3","Z":"4"},"annotations":{}}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"creationTimestamp":"2026-01-01T01:30:00.999+01:30","deletionTimestamp":"0001-01-01T00:00:00Z"}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"Name":"other case","name":"this"}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"\u00e9\ud83d\ude80\n\"\/"}}`,
		`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"}},"readinessProbe":{"httpGet":{"port":-80}}}]}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields":[{"fieldsV1":{ "f:b" : {}, "f:a":{} }},{"fieldsV1":null},{"fieldsV1":{}}]}}`,
		`{"kind":"Secret","apiVersion":"v1","data":{"b":"","a":null,"c":"AAEC/w=="},"stringData":{"x":""},"immutable":false}`,
		`{"kind":"ConfigMap","apiVersion":"v1","binaryData":{"a":"aGVsbG8="}}`,
		`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"renewTime":"2026-01-01T00:00:00.123456+00:00","acquireTime":null}}`,
		`{"kind":"ControllerRevision","apiVersion":"apps/v1","data":{ "spec" : [1, 2.50] },"revision":3}`,
		`{"kind":"ControllerRevision","apiVersion":"apps/v1","data":null}`,
		`{"kind":"StatefulSet","apiVersion":"apps/v1","spec":{"volumeClaimTemplates":[{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"d"}}]}}`,
		`{"kind":"PersistentVolume","apiVersion":"v1","spec":{"nfs":{"path":"/x"},"capacity":{"storage":5}}}`,
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":{"openAPIV3Schema":{"maximum":1e3,"minimum":-0.5,"default":{"b": 1,"a":null},"enum":[1,"x",null],"additionalProperties":false,"items":[{"type":"string"}],"properties":{"a":{"additionalProperties":{"type":"integer"},"items":{"type":"string"}},"b":{"additionalProperties":true,"items":[]},"c":null},"dependencies":{"x":["y"],"z":{"type":"object"},"n":null},"x-kubernetes-preserve-unknown-fields":false}}}]}}`,
		`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"extra":{"a":["x","y"],"b":[],"c":null}}}`,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"details":{"retryAfterSeconds":1}}`,
		`{"kind":"Node","apiVersion":"v1","status":{"images":[{"names":["a","b"],"sizeBytes":9223372036854775807},{"sizeBytes":-1}]}}`,
		`{"kind":"IPAddress","apiVersion":"networking.k8s.io/v1","spec":{}}`,
		`{"kind":"ResourceQuota","apiVersion":"v1","spec":{"hard":{"a":1,"b":" 2 ","c":1.50,"d":null,"e":1e3}}}`,
	}
	hard := map[string]string{}
	for _, quantity := range strings.Fields(`0 00 0.0 -0 +1 007 1 10 100 1000 10000 123456 1.0 1.5 1.500 0.5 .5 1. 0.001 0.0001 1.23456789 0.1234567891 0.0000000001 -0.0000000001
		-1.5 1m 10m 1000m 1500m 100000m 1u 1n 999n 1000n 0.5n 1k 1000k 1.5k 0.001k 1M 1G 1T 1P 1E 10E 1000E 12345678901234567890 99999999999999999999999
		1Ki 1024Ki 1025Ki 8Ki 0.5Ki 1.5Ki 0.1Ki 1.5Gi 1Mi 1Gi 1Ti 1Pi 1Ei 7Ei 8Ei 100Ei 1000000Ei 0Ki 0.00001Ki -1Ki -1024Ki -0.5Ki -100Ei 512Ki 2048Mi 9007199254740993Ki
		1e3 1e0 12e4 1e-3 1e-9 1e-10 1.5e3 1E3 1E-3 1e+3 1e30 5e-1 0.5e1 1000e3 123456789012345678 1234567890123456789 12345678901234567.8 9223372036854775807 9223372036854775808
		0.123456789123456789 999999999999999999.999 100000000000000000000m 1023 1024 1025Mi 4Mi 12Mi 16Mi 1e2147483647`) {
		hard[quantity] = quantity
	}
	quota, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "spec": map[string]any{"hard": hard}})
	must(err)
	return append(inputs, string(quota))
}
