package informer

import (
	"fmt"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"kube-informer.bench/child"
)

// Queue adds, gets and finishes keys.
func Queue(count int) {
	keys := make([]string, count)
	for i := range keys {
		keys[i] = fmt.Sprintf("namespace-%04d/object-%08d", i%1000, i)
	}
	child.GiveBack()
	child.Say("ready")
	queue := workqueue.NewTyped[string]()
	for _, key := range keys {
		queue.Add(key)
		take(queue)
	}
	child.Say("one_by_one")
	queue = workqueue.NewTyped[string]()
	for start := 0; start < count; start += 100 {
		hundred := keys[start:min(start+100, count)]
		for _, key := range hundred {
			queue.Add(key)
		}
		for range hundred {
			take(queue)
		}
	}
	child.Say("hundred")
	queue = workqueue.NewTyped[string]()
	for _, key := range keys {
		queue.Add(key)
	}
	for range keys {
		take(queue)
	}
	child.Say("burst")
	contended(keys)
	child.Say("contended")
}

func take(queue workqueue.TypedInterface[string]) {
	key, _ := queue.Get()
	queue.Done(key)
}

// contended has four goroutines add while four workers take, which wait when there is nothing.
func contended(keys []string) {
	queue := workqueue.NewTyped[string]()
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
