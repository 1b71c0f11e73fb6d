package serve

import (
	"fmt"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kube-informer.bench/child"
	"kube-informer.bench/generate"
)

// Stream serves any number of objects, made from the seed while they are sent, without managedFields: no server could hold them all. They
// come in the order of a real server. It says "ready" with its port; when it may go on, it changes objects, spread over all, so many
// times, and says "sent".
func Stream(seed uint64, kind string, count, bytes, events int) error {
	objects := generate.NewPods(seed)
	server := &stream{resource: kind, count: count, events: events, begin: make(chan struct{}), sent: make(chan struct{})}
	switch kind {
	case "pods":
		order := objects.Order(count)
		server.object = func(place int) object {
			pod := objects.Pod(order[place])
			pod.Name = pod.GenerateName + generate.Suffix(order[place])
			return pod
		}
		server.end = &corev1.Pod{ObjectMeta: endOfList()}
	case "configmaps":
		server.object = func(place int) object { return objects.NoisyConfigMap(place, bytes) }
		server.end = &corev1.ConfigMap{ObjectMeta: endOfList()}
	case "secrets":
		server.object = func(place int) object { return objects.NoisySecret(place, bytes) }
		server.end = &corev1.Secret{ObjectMeta: endOfList()}
	default:
		return fmt.Errorf("no %s are made", kind)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, server) }()
	child.Say("ready %d", listener.Addr().(*net.TCPAddr).Port)
	close(server.begin)
	<-server.sent
	child.Say("sent")
	return nil
}

type object interface {
	runtime.Object
	metav1.Object
}

type stream struct {
	resource      string
	count, events int
	object        func(place int) object
	end           runtime.Object
	begin, sent   chan struct{}
}

func (s *stream) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	if request.URL.Path != "/api/v1/"+s.resource || query.Get("sendInitialEvents") != "true" {
		// Nobody gets here whose lists are streams.
		http.Error(out, "only a streaming list of "+s.resource+" is served", http.StatusNotFound)
		return
	}
	encoder, err := newEncoder(asked(request))
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	out.Header().Set("Content-Type", encoder.watchType())
	send := func(kind string, object runtime.Object) bool {
		frame, err := encoder.frame(kind, object)
		if err != nil {
			panic(err)
		}
		_, err = out.Write(frame)
		return err == nil
	}
	for place := range s.count {
		object := s.object(place)
		object.SetResourceVersion(fmt.Sprint(firstVersion))
		if !send("ADDED", object) {
			return
		}
	}
	if !send("BOOKMARK", s.end) {
		return
	}
	out.(http.Flusher).Flush()
	select {
	case <-s.begin:
	case <-request.Context().Done():
		return
	}
	for number := range s.events {
		object := s.object(number * 7919 % s.count)
		object.SetResourceVersion(fmt.Sprint(firstVersion + 1 + number))
		if !send("MODIFIED", object) {
			return
		}
	}
	out.(http.Flusher).Flush()
	close(s.sent)
	<-request.Context().Done()
}
