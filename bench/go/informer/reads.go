package informer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"kube-informer.bench/child"
)

const workloadLabel = "app.kubernetes.io/name"

// Reads reads a complete cache in several ways. Each says its name when it is done, how often it was done, and what it found.
func Reads(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods()
	byNode := func(object any) ([]string, error) { return []string{object.(*corev1.Pod).Spec.NodeName}, nil }
	if err := pods.Informer().AddIndexers(cache.Indexers{"node": byNode}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	all, err := pods.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	var keys []cache.ObjectName
	workload := all[0].Labels[workloadLabel]
	for _, pod := range all {
		keys = append(keys, cache.MetaObjectToName(pod))
		workload = min(workload, pod.Labels[workloadLabel])
	}
	child.GiveBack()
	child.Say("ready %d", len(keys))

	found := 0
	for _, key := range keys {
		pod, err := pods.Lister().Pods(key.Namespace).Get(key.Name)
		if err != nil {
			return err
		}
		found += len(pod.Spec.Containers)
	}
	child.Say("get %d %d", len(keys), found)

	found = 0
	for _, key := range keys {
		pod, err := pods.Lister().Pods(key.Namespace).Get(key.Name)
		if err != nil {
			return err
		}
		found += len(pod.Labels)
	}
	child.Say("peek %d %d", len(keys), found)

	const times = 20
	found = 0
	for range times {
		all, err := pods.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		for _, pod := range all {
			found += len(pod.Name) + len(pod.Labels)
		}
	}
	child.Say("scan %d %d", times*len(keys), found)

	found = 0
	for range times {
		selector, err := labels.Parse(workloadLabel + "=" + workload)
		if err != nil {
			return err
		}
		matching, err := pods.Lister().List(selector)
		if err != nil {
			return err
		}
		found += len(matching)
	}
	child.Say("selector %d %d", times*len(keys), found)

	found = 0
	const lookups = 2000
	for number := range lookups {
		objects, err := pods.Informer().GetIndexer().ByIndex("node", fmt.Sprintf("node-%04d.example.com", number%500))
		if err != nil {
			return err
		}
		found += len(objects)
	}
	child.Say("index %d %d", lookups, found)
	return nil
}
