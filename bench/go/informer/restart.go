package informer

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"kube-informer.bench/child"
	"kube-informer.bench/fill"
)

// Restart follows twenty kinds, and says "fresh" once an object of each is seen that this round has touched.
func Restart(ctx context.Context, config *rest.Config, round string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	var fresh sync.WaitGroup
	for _, kind := range fill.Kinds {
		generic, err := factory.ForResource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Resource})
		if err != nil {
			return err
		}
		fresh.Add(1)
		var once sync.Once
		look := func(object any) {
			accessor, err := meta.Accessor(object)
			if err == nil && accessor.GetLabels()[fill.Touched] == round {
				once.Do(fresh.Done)
			}
		}
		handler := cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, new any) { look(new) }}
		if _, err := generic.Informer().AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	child.Say("synced")
	fresh.Wait()
	child.Say("fresh")
	return nil
}
