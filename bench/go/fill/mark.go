package fill

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"kube-informer.bench/child"
)

// Mark obeys lines: "mark N" changes one object of each kind, all at once, and says "marked"; "fill N" creates N objects, and says "filled".
func Mark(ctx context.Context, config *rest.Config) error {
	config.UserAgent = "marker"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		var command, number string
		if _, err := fmt.Sscan(child.Hear(), &command, &number); err != nil {
			return err
		}
		switch command {
		case "mark":
			err = markAll(ctx, client, number)
			fmt.Println("marked")
		case "fill":
			err = create(ctx, client, number)
			fmt.Println("filled")
		}
		if err != nil {
			return err
		}
	}
}

func markAll(ctx context.Context, client dynamic.Interface, mark string) error {
	done := make(chan error)
	for _, kind := range Kinds {
		go func() {
			done <- retry(func() error { return touchKind(ctx, client, kind, mark) })
		}()
	}
	var first error
	for range Kinds {
		if err := <-done; err != nil {
			first = err
		}
	}
	return first
}

func create(ctx context.Context, client dynamic.Interface, count string) error {
	var number int
	if _, err := fmt.Sscan(count, &number); err != nil {
		return err
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	for range number {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("v1")
		object.SetKind("ConfigMap")
		object.SetGenerateName("filler-")
		err := retry(func() error {
			_, err := maps.Create(ctx, object, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retry tries for five seconds: a server that has just begun may refuse.
func retry(try func() error) error {
	for tries := 0; ; tries++ {
		err := try()
		if err == nil || tries == 100 {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
