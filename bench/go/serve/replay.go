// Package serve has servers that are faster than a real one, to see how much a client can take.
package serve

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kube-informer.bench/child"
	"kube-informer.bench/generate"
)

// Replay takes pods from a real server, as they are, and serves them: a list, and a watch that changes them as fast as they are taken.
// It says "ready" with its port and begins with the changes when it may go on.
func Replay(ctx context.Context, config *rest.Config, pods, events int) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// Strided over all of them: a list comes sorted by namespace.
	stride := max(1, len(list.Items)/pods)
	chosen := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(firstVersion)}}
	for i := 0; i < len(list.Items) && len(chosen.Items) < pods; i += stride {
		pod := list.Items[i]
		pod.ResourceVersion = fmt.Sprint(firstVersion)
		chosen.Items = append(chosen.Items, pod)
	}
	server := &replay{begin: make(chan struct{}), events: events, recordings: map[string]*recording{}}
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		if server.recordings[mediaType], err = record(mediaType, chosen); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, server) }()
	bytesOf := func(mediaType string) int { return server.recordings[mediaType].bytes() / len(chosen.Items) }
	child.Say("ready %d %d %d", listener.Addr().(*net.TCPAddr).Port, bytesOf(runtime.ContentTypeJSON), bytesOf(runtime.ContentTypeProtobuf))
	close(server.begin)
	child.Say("sending")
	return nil
}

type replay struct {
	begin      chan struct{}
	events     int
	recordings map[string]*recording
}

func (s *replay) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/api/v1/pods" {
		http.NotFound(out, request)
		return
	}
	recording := s.recordings[asked(request)]
	query := request.URL.Query()
	if query.Get("watch") == "" || query.Get("watch") == "false" {
		out.Header().Set("Content-Type", recording.encoder.mediaType)
		_, _ = out.Write(recording.list)
		return
	}
	out.Header().Set("Content-Type", recording.encoder.watchType())
	if query.Get("sendInitialEvents") == "true" {
		for _, frame := range recording.added {
			if _, err := out.Write(frame); err != nil {
				return
			}
		}
		_, _ = out.Write(recording.endOfList)
	}
	out.(http.Flusher).Flush()
	select {
	case <-s.begin:
	case <-request.Context().Done():
		return
	}
	if recording.send(out, s.events) == nil {
		out.(http.Flusher).Flush()
		<-request.Context().Done()
	}
}

// recording is a list and its events, encoded.
type recording struct {
	encoder         *encoder
	list, endOfList []byte
	added           [][]byte
	// Of each pod so many states that follow each other.
	modified [states][]frame
	sending  sync.Mutex
}

// states is how many things happen to a pod before it begins anew.
const states = 3

type frame struct {
	bytes []byte
	// Where the version stands.
	version int
}

func record(mediaType string, list *corev1.PodList) (*recording, error) {
	encoder, err := newEncoder(mediaType)
	if err != nil {
		return nil, err
	}
	r := &recording{encoder: encoder}
	if r.list, err = runtime.Encode(encoder.objects, list); err != nil {
		return nil, err
	}
	version := []byte(list.ResourceVersion)
	for i := range list.Items {
		pod := &list.Items[i]
		added, err := encoder.frame("ADDED", pod)
		if err != nil {
			return nil, err
		}
		r.added = append(r.added, added)
		for state := range r.modified {
			pod = generate.Changed(pod, i*states+state+i%states)
			bytesOf, err := encoder.frame("MODIFIED", pod)
			if err != nil {
				return nil, err
			}
			r.modified[state] = append(r.modified[state], frame{bytesOf, bytes.Index(bytesOf, version)})
		}
	}
	r.endOfList, err = encoder.frame("BOOKMARK", &corev1.Pod{ObjectMeta: endOfList()})
	return r, err
}

// send sends so many changes, each with a version of its own.
func (r *recording) send(out http.ResponseWriter, events int) error {
	// Frames are written over.
	r.sending.Lock()
	defer r.sending.Unlock()
	for number := range events {
		pods := r.modified[number/len(r.added)%states]
		frame := pods[number%len(pods)]
		copy(frame.bytes[frame.version:], fmt.Sprint(firstVersion+1+number))
		if _, err := out.Write(frame.bytes); err != nil {
			return err
		}
	}
	return nil
}

func (r *recording) bytes() int {
	total := 0
	for _, frame := range r.modified[0] {
		total += len(frame.bytes)
	}
	return total
}
