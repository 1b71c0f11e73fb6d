package informer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"kube-informer.bench/child"
)

// Readers writes to the store while others list it.
func Readers(objects, millis int) error {
	duration := time.Duration(millis) * time.Millisecond
	// Two versions of each, so that every write is a change.
	versions := make([][]*corev1.Pod, 2)
	for version := range versions {
		for number := range objects {
			versions[version] = append(versions[version], smallPod(number, version+1))
		}
	}
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, pod := range versions[0] {
		if err := store.Add(pod); err != nil {
			return err
		}
	}
	child.GiveBack()
	child.Say("ready")
	turn := 0
	update := func(duration time.Duration) float64 {
		start, updates := time.Now(), 0
		for time.Since(start) < duration {
			for range 16 {
				if err := store.Update(versions[(turn/objects+1)%2][turn%objects]); err != nil {
					panic(err)
				}
				turn++
				updates++
			}
		}
		return float64(updates) / time.Since(start).Seconds()
	}
	update(duration / 4)
	alone := update(duration)
	stop := crowd(1, func() { store.List() })
	one := update(duration)
	stop()
	stop = crowd(10, func() { store.List() })
	ten := update(duration)
	stop()
	stop = crowd(10, func() {})
	spinning := update(duration)
	stop()
	child.Say("updates %f %f %f %f", alone, one, ten, spinning)
	return nil
}

// crowd starts goroutines that repeat something, and gives what ends them.
func crowd(count int, work func()) func() {
	var stop atomic.Bool
	var group sync.WaitGroup
	for range count {
		group.Go(func() {
			for !stop.Load() {
				work()
			}
		})
	}
	return func() {
		stop.Store(true)
		group.Wait()
	}
}

func smallPod(number, version int) *corev1.Pod {
	app := fmt.Sprintf("app-%04d", number%1000)
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%08d", app, number), Namespace: fmt.Sprintf("team-%03d", number%100),
			UID: types.UID(fmt.Sprintf("8c2e6d2e-0000-4000-8000-%012d", number)), ResourceVersion: fmt.Sprint(version),
			Labels:          map[string]string{"app": app, "tier": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID("owner-" + app), Controller: &yes}},
		},
		Spec:   corev1.PodSpec{NodeName: fmt.Sprintf("node-%04d", number%500), Containers: []corev1.Container{{Name: "main", Image: app + ":v1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
}
