package serve

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kube-informer.bench/child"
	"kube-informer.bench/generate"
)

// Stream serves any number of pods, made from the seed while they are sent, without managedFields: no server could hold them all. A watch
// stays silent. It says "ready" with its port.
func Stream(seed uint64, pods int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, &stream{objects: generate.NewPods(seed), pods: pods}) }()
	child.Say("ready %d", listener.Addr().(*net.TCPAddr).Port)
	return nil
}

type stream struct {
	objects *generate.Pods
	pods    int
}

func (s *stream) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	if request.URL.Path != "/api/v1/pods" || query.Get("watch") == "" {
		// Nobody gets here whose lists are streams.
		http.Error(out, "only a streaming list of pods is served", http.StatusNotFound)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(out)
	if query.Get("sendInitialEvents") == "true" {
		for number := range s.pods {
			pod := s.objects.Pod(number)
			// Six random letters are too few for a million names.
			pod.Name = fmt.Sprintf("%s%d", pod.GenerateName, number)
			pod.ResourceVersion = fmt.Sprint(firstVersion)
			if encoder.Encode(event("ADDED", pod)) != nil {
				return
			}
		}
		end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(firstVersion), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		if encoder.Encode(event("BOOKMARK", end)) != nil {
			return
		}
	}
	out.(http.Flusher).Flush()
	<-request.Context().Done()
}

func event(kind string, pod *corev1.Pod) any {
	pod.APIVersion, pod.Kind = "v1", "Pod"
	return map[string]any{"type": kind, "object": pod}
}
