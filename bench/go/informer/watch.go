package informer

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"kube-informer.bench/child"
)

// Watch follows the changes of pods: notes when each is heard, or counts them.
func Watch(ctx context.Context, config *rest.Config, strip bool, expected int, times string) error {
	informer, start, err := informerOf(config, "pods", strip)
	if err != nil {
		return err
	}
	var notes *bufio.Writer
	if times != "" {
		file, err := os.Create(times)
		if err != nil {
			return err
		}
		defer file.Close()
		notes = bufio.NewWriter(file)
	}
	var heard atomic.Int64
	done := make(chan struct{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, new any) {
			if notes != nil {
				accessor, err := meta.Accessor(new)
				if err != nil {
					panic(err)
				}
				fmt.Fprintf(notes, "%s %d\n", accessor.GetResourceVersion(), time.Now().UnixNano())
			}
			if int(heard.Add(1)) == expected {
				if notes != nil {
					notes.Flush()
				}
				close(done)
			}
		},
	})
	if err != nil {
		return err
	}
	start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced, registration.HasSynced) {
		return fmt.Errorf("not synced")
	}
	child.Say("synced")
	<-done
	child.Say("heard %d", heard.Load())
	return nil
}
