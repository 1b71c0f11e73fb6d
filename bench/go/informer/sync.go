// Package informer is client-go doing what the benchmarks ask for, as its users have it do it.
package informer

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"kube-informer.bench/child"
)

// Sync fills a cache with one kind and says "synced" once it is complete and a handler has had every object, then "settled".
func Sync(ctx context.Context, config *rest.Config, kind string, strip bool) error {
	informer, start, err := informerOf(config, kind, strip)
	if err != nil {
		return err
	}
	var heard atomic.Int64
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { heard.Add(1) },
	})
	if err != nil {
		return err
	}
	child.GiveBack()
	child.Say("ready")
	start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced, registration.HasSynced) {
		return fmt.Errorf("not synced")
	}
	child.Say("synced %d", heard.Load())
	child.GiveBack()
	child.Say("settled")
	return nil
}

// informerOf makes the shared informer of a kind: typed, with protobuf, for built-in kinds; dynamic for the others.
func informerOf(config *rest.Config, kind string, strip bool) (cache.SharedIndexInformer, func(<-chan struct{}), error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	var options []informers.SharedInformerOption
	if strip {
		options = append(options, informers.WithTransform(dropManagedFields))
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, options...)
	core := factory.Core().V1()
	var informer cache.SharedIndexInformer
	switch kind {
	case "pods":
		informer = core.Pods().Informer()
	case "configmaps":
		informer = core.ConfigMaps().Informer()
	case "secrets":
		informer = core.Secrets().Informer()
	case "nodes":
		informer = core.Nodes().Informer()
	case "events":
		informer = core.Events().Informer()
	case "deployments":
		informer = factory.Apps().V1().Deployments().Informer()
	case "widgets":
		return widgets(config, strip)
	default:
		return nil, nil, fmt.Errorf("unknown kind %s", kind)
	}
	return informer, factory.Start, nil
}

func widgets(config *rest.Config, strip bool) (cache.SharedIndexInformer, func(<-chan struct{}), error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	resource := schema.GroupVersionResource{Group: "bench.example.com", Version: "v1", Resource: "widgets"}
	informer := factory.ForResource(resource).Informer()
	if strip {
		if err := informer.SetTransform(dropManagedFields); err != nil {
			return nil, nil, err
		}
	}
	return informer, factory.Start, nil
}

func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
