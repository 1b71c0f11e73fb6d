// Package fill puts generated objects onto a real server.
package fill

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kube-informer.bench/generate"
)

const workers = 24

// Widgets is the custom kind.
var Widgets = schema.GroupVersionResource{Group: "bench.example.com", Version: "v1", Resource: "widgets"}

// Server makes pods and, of every other kind, some objects. What is there already stays as it is.
func Server(ctx context.Context, config *rest.Config, seed uint64, pods, others int) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects := generate.NewPods(seed)
	for i := range generate.Namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: generate.Namespace(i)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); unexpected(err) {
			return err
		}
	}
	if err := fillOthers(ctx, client, config, objects, others); err != nil {
		return err
	}
	return each("pods", pods, func(number int) error { return pod(ctx, client, objects.Pod(number)) })
}

// pod makes one as its controller and its kubelet do: created, then with a status.
func pod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	status := pod.Status
	pods := client.CoreV1().Pods(pod.Namespace)
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return ignoreExisting(err)
	}
	made.Status = status
	_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: "kubelet"})
	return err
}

func fillOthers(ctx context.Context, client kubernetes.Interface, config *rest.Config, objects *generate.Pods, count int) error {
	custom, err := widgets(ctx, config)
	if err != nil {
		return err
	}
	create := metav1.CreateOptions{FieldManager: "helm"}
	kinds := []struct {
		name string
		make func(int) error
	}{
		{"configmaps", func(n int) error {
			object := objects.ConfigMap(n)
			_, err := client.CoreV1().ConfigMaps(object.Namespace).Create(ctx, object, create)
			return err
		}},
		{"secrets", func(n int) error {
			object := objects.Secret(n)
			_, err := client.CoreV1().Secrets(object.Namespace).Create(ctx, object, create)
			return err
		}},
		{"nodes", func(n int) error {
			object := objects.Node(n)
			made, err := client.CoreV1().Nodes().Create(ctx, object, create)
			if err != nil {
				return err
			}
			made.Status = object.Status
			_, err = client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: "kubelet"})
			return err
		}},
		{"deployments", func(n int) error {
			object := objects.Deployment(n)
			_, err := client.AppsV1().Deployments(object.Namespace).Create(ctx, object, create)
			return err
		}},
		{"events", func(n int) error {
			object := objects.Event(n)
			_, err := client.CoreV1().Events(object.Namespace).Create(ctx, object, create)
			return err
		}},
		{"widgets", func(n int) error {
			object := objects.Widget(n)
			_, err := custom.Resource(Widgets).Namespace(object.GetNamespace()).Create(ctx, object, create)
			return err
		}},
	}
	for _, kind := range kinds {
		if err := each(kind.name, count, func(n int) error { return ignoreExisting(kind.make(n)) }); err != nil {
			return err
		}
	}
	return nil
}

// widgets defines the custom kind and waits until it is served.
func widgets(ctx context.Context, config *rest.Config) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.bench.example.com"},
		"spec": map[string]any{
			"group": Widgets.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); unexpected(err) {
		return nil, err
	}
	for range 300 {
		if _, err = client.Resource(Widgets).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return client, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, fmt.Errorf("the custom kind is not served: %w", err)
}

// each runs work for every number, several at a time, and stops at the first error.
func each(what string, count int, work func(int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, workers)
	start := time.Now()
	for range workers {
		group.Go(func() {
			for {
				number := int(next.Add(1)) - 1
				if number >= count {
					return
				}
				if number > 0 && number%5000 == 0 {
					fmt.Fprintf(os.Stderr, "%d of %d %s after %.0f s\n", number, count, what, time.Since(start).Seconds())
				}
				if err := work(number); err != nil {
					failures <- fmt.Errorf("%s %d: %w", what, number, err)
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func ignoreExisting(err error) error {
	if unexpected(err) {
		return err
	}
	return nil
}

func unexpected(err error) bool { return err != nil && !errors.IsAlreadyExists(err) }
