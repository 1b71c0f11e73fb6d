package fill

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kube-informer.bench/generate"
)

// Change changes pods at a steady rate, writes down the version of each change and when its write returned, and
// prints the rate that it reached.
func Change(ctx context.Context, config *rest.Config, seed uint64, pods, rate, count int, notes io.Writer) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects := generate.NewPods(seed)
	out := bufio.NewWriter(notes)
	var lock sync.Mutex
	var group sync.WaitGroup
	var failure error
	// So many at once and no more: a server that falls behind slows the rate.
	slots := make(chan struct{}, workers)
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	start := time.Now()
	for number := range count {
		<-ticker.C
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			pod := objects.Pod(number * 7919 % pods)
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"bench.example.com/change":"%d-%d"}}}`, number, time.Now().UnixNano())
			changed, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubelet"})
			now := time.Now().UnixNano()
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failure = err
				return
			}
			fmt.Fprintf(out, "%s %d\n", changed.ResourceVersion, now)
		})
	}
	group.Wait()
	fmt.Printf("%.1f\n", float64(count)/time.Since(start).Seconds())
	if failure != nil {
		return failure
	}
	return out.Flush()
}
