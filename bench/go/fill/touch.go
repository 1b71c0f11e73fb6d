package fill

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Touched is the label that says which round last touched an object.
const Touched = "bench.example.com/touched"

// Kind is one that is followed: group, version, resource and kind, and what an object needs.
type Kind struct{ Group, Version, Resource, Kind, Needs string }

// Kinds are the twenty that are followed while a server is restarted.
var Kinds = []Kind{
	{"", "v1", "pods", "Pod", `{"spec":` + podSpec + `}`},
	{"", "v1", "services", "Service", `{"spec":{"ports":[{"port":80}]}}`},
	{"", "v1", "configmaps", "ConfigMap", `{}`},
	{"", "v1", "secrets", "Secret", `{}`},
	{"", "v1", "serviceaccounts", "ServiceAccount", `{}`},
	{"", "v1", "nodes", "Node", `{}`},
	{"", "v1", "namespaces", "Namespace", `{}`},
	{"", "v1", "events", "Event", `{"involvedObject":{"kind":"Pod","namespace":"default"}}`},
	{"", "v1", "resourcequotas", "ResourceQuota", `{}`},
	{"", "v1", "limitranges", "LimitRange", `{"spec":{"limits":[]}}`},
	{"apps", "v1", "deployments", "Deployment", workload},
	{"apps", "v1", "replicasets", "ReplicaSet", workload},
	{"apps", "v1", "statefulsets", "StatefulSet", workload},
	{"apps", "v1", "daemonsets", "DaemonSet", workload},
	{"batch", "v1", "jobs", "Job", `{"spec":{"template":{"spec":` + podSpec + `}}}`},
	{"batch", "v1", "cronjobs", "CronJob", `{"spec":{"schedule":"0 0 * * *","jobTemplate":{"spec":{"template":{"spec":` + podSpec + `}}}}}`},
	{"networking.k8s.io", "v1", "ingresses", "Ingress", `{"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}}`},
	{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", `{"spec":{"podSelector":{}}}`},
	{"rbac.authorization.k8s.io", "v1", "roles", "Role", `{}`},
	{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"touched"}}`},
}

const (
	podSpec  = `{"restartPolicy":"Never","containers":[{"name":"main","image":"registry.example.com/main:v1"}]}`
	workload = `{"spec":{"selector":{"matchLabels":{"app":"touched"}},"template":{"metadata":{"labels":{"app":"touched"}},"spec":{"containers":[{"name":"main","image":"registry.example.com/main:v1"}]}}}}`
)

// Touch changes one object of each kind, which it makes if there is none: its label has the round's name afterwards. A server that has just
// begun may refuse for a while.
func Touch(ctx context.Context, config *rest.Config, round string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, kind := range Kinds {
		if err := retry(func() error { return touchKind(ctx, client, kind, round) }); err != nil {
			return fmt.Errorf("%s: %w", kind.Resource, err)
		}
	}
	return nil
}

func touchKind(ctx context.Context, client dynamic.Interface, kind Kind, round string) error {
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Resource}
	var objects dynamic.ResourceInterface = client.Resource(resource).Namespace("default")
	if kind.Resource == "nodes" || kind.Resource == "namespaces" {
		objects = client.Resource(resource)
	}
	return touch(ctx, objects, strings.TrimPrefix(kind.Group+"/"+kind.Version, "/"), kind.Kind, kind.Needs, round)
}

func touch(ctx context.Context, objects dynamic.ResourceInterface, apiVersion, kind, needs, round string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{"%s":"%s"}}}`, Touched, round)
	_, err := objects.Patch(ctx, "touched", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if !errors.IsNotFound(err) {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(needs), &object.Object); err != nil {
		return err
	}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetName("touched")
	object.SetLabels(map[string]string{Touched: round})
	_, err = objects.Create(ctx, object, metav1.CreateOptions{})
	return err
}
