package informer

import (
	"fmt"
	"runtime"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"kube-informer.bench/child"
)

// Queue adds, gets and finishes keys, with the queue's metrics kept or without.
func Queue(count int, metrics bool) {
	keys := make([]string, count)
	for i := range keys {
		keys[i] = fmt.Sprintf("namespace-%04d/object-%08d", i%1000, i)
	}
	create := func() workqueue.TypedInterface[string] {
		if metrics {
			return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "bench", MetricsProvider: &kept{}})
		}
		return workqueue.NewTyped[string]()
	}
	child.GiveBack()
	child.Say("ready")
	oneByOne(create(), keys)
	child.Say("one_by_one")
	queue := create()
	for start := 0; start < count; start += 100 {
		allAtOnce(queue, keys[start:min(start+100, count)])
	}
	child.Say("hundred")
	allAtOnce(create(), keys)
	child.Say("burst")
	producersAndWorkers(create(), keys)
	child.Say("waiting")
	for _, threads := range []int{1, 2, 4, 8, 16} {
		together(create(), keys, threads)
		child.Say(fmt.Sprintf("threads_%d", threads))
	}
}

func oneByOne(queue workqueue.TypedInterface[string], keys []string) {
	for _, key := range keys {
		queue.Add(key)
		take(queue)
	}
}

func allAtOnce(queue workqueue.TypedInterface[string], keys []string) {
	for _, key := range keys {
		queue.Add(key)
	}
	for range keys {
		take(queue)
	}
}

func take(queue workqueue.TypedInterface[string]) {
	key, _ := queue.Get()
	queue.Done(key)
}

// together has every thread add, take and finish one key after the other, all on one queue.
func together(queue workqueue.TypedInterface[string], keys []string, threads int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	var group sync.WaitGroup
	part := (len(keys) + threads - 1) / threads
	for start := 0; start < len(keys); start += part {
		group.Go(func() { oneByOne(queue, keys[start:min(start+part, len(keys))]) })
	}
	group.Wait()
}

// producersAndWorkers has four goroutines add while four workers take, which wait when there is nothing.
func producersAndWorkers(queue workqueue.TypedInterface[string], keys []string) {
	var workers, adders sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				key, closed := queue.Get()
				if closed {
					return
				}
				queue.Done(key)
			}
		})
	}
	part := (len(keys) + 3) / 4
	for start := 0; start < len(keys); start += part {
		adders.Go(func() {
			for _, key := range keys[start:min(start+part, len(keys))] {
				queue.Add(key)
			}
		})
	}
	adders.Wait()
	queue.ShutDown()
	workers.Wait()
}
