package informer

import (
	"context"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"kube-informer.bench/child"
	"kube-informer.bench/fill"
)

// Recover follows twenty kinds, and says "fresh N" when an object with mark N or a later one of each kind was seen.
func Recover(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	type sight struct{ kind, mark int }
	seen := make(chan sight, 10_000)
	for number, kind := range fill.Kinds {
		generic, err := factory.ForResource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Resource})
		if err != nil {
			return err
		}
		look := func(object any) {
			accessor, err := meta.Accessor(object)
			if err != nil {
				return
			}
			if mark, err := strconv.Atoi(accessor.GetLabels()[fill.Touched]); err == nil {
				seen <- sight{number, mark}
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
	marks, fresh := make([]int, len(fill.Kinds)), 1
	for {
		now := <-seen
		marks[now.kind] = now.mark
		if all := slices.Min(marks); all > fresh {
			fresh = all
			child.Say("fresh %d", fresh)
		}
	}
}
