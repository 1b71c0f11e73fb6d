// bench-go is the Go side of the benchmarks: the objects, the servers that send them, and client-go as a participant.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kube-informer.bench/child"
	"kube-informer.bench/fill"
	"kube-informer.bench/informer"
	"kube-informer.bench/serve"
)

const usage = "usage: bench-go fill|change|touch|mark|sample|replay|stream | sync|watch|queue|readers|reads|restart|recover [flags]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	child.EndWithRunner()
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-go:", err)
		os.Exit(1)
	}
}

func run(command string, arguments []string) error {
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "the server")
	seed := flags.Uint64("seed", 1, "the seed that objects are made from")
	pods := flags.Int("pods", 0, "how many pods")
	others := flags.Int("others", 0, "how many objects of every other kind")
	kind := flags.String("kind", "pods", "the resource")
	strip := flags.Bool("strip", false, "drop managedFields by a transform")
	keys := flags.Int("keys", 1_000_000, "how many keys")
	noMetrics := flags.Bool("no-metrics", false, "a work queue that keeps no metrics, which is client-go's default")
	objects := flags.Int("objects", 10_000, "how many objects")
	millis := flags.Int("millis", 2_000, "how long")
	rate := flags.Int("rate", 200, "changes a second")
	events := flags.Int("events", 0, "how many changes")
	round := flags.String("round", "", "what objects are touched with")
	bytes := flags.Int("bytes", 0, "how many random bytes an object has")
	plainJSON := flags.Bool("plain-json", false, "ask for JSON instead of protobuf")
	times := flags.String("times", "", "the file to write")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	ctx := context.Background()
	switch command {
	case "queue":
		informer.Queue(*keys, !*noMetrics)
		return nil
	case "stream":
		return serve.Stream(*seed, *kind, *objects, *bytes, *events)
	case "readers":
		return informer.Readers(*objects, *millis)
	}
	config, err := load(*kubeconfig)
	if err != nil {
		return err
	}
	if *plainJSON {
		config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	}
	switch command {
	case "fill":
		return fill.Server(ctx, config, *seed, *pods, *others)
	case "change":
		file, err := os.Create(*times)
		if err != nil {
			return err
		}
		defer file.Close()
		return fill.Change(ctx, config, *seed, *pods, *rate, *events, file)
	case "touch":
		return fill.Touch(ctx, config, *round)
	case "mark":
		return fill.Mark(ctx, config)
	case "sample":
		file, err := os.Create(*times)
		if err != nil {
			return err
		}
		defer file.Close()
		return fill.Sample(ctx, config, *pods, file)
	case "replay":
		return serve.Replay(ctx, config, *pods, *events)
	case "sync":
		return informer.Sync(ctx, config, *kind, *strip)
	case "watch":
		return informer.Watch(ctx, config, *strip, *events, *times)
	case "reads":
		return informer.Reads(ctx, config)
	case "restart":
		return informer.Restart(ctx, config, *round)
	case "recover":
		return informer.Recover(ctx, config)
	default:
		return fmt.Errorf("unknown command %s; %s", command, usage)
	}
}

// load reads a kubeconfig, and sets what careful users set: protobuf, and no limit of the client's own on requests.
func load(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS, config.Burst = -1, 0
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}
