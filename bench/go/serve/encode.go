package serve

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// firstVersion has as many digits as every later one, so that versions can be written over in encoded frames.
const firstVersion = 1_000_000_000

// encoder makes the bytes of a media type, as a real server does.
type encoder struct {
	mediaType string
	info      runtime.SerializerInfo
	objects   runtime.Encoder
}

func newEncoder(mediaType string) (*encoder, error) {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", mediaType)
	}
	return &encoder{mediaType, info, scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)}, nil
}

// asked is the media type that a request asks for: protobuf if it is offered.
func asked(request *http.Request) string {
	if strings.Contains(request.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// watchType is the content type of a watch.
func (e *encoder) watchType() string {
	if e.mediaType == runtime.ContentTypeProtobuf {
		return e.mediaType + ";stream=watch"
	}
	return e.mediaType
}

// frame is one event of a watch.
func (e *encoder) frame(kind string, object runtime.Object) ([]byte, error) {
	raw, err := runtime.Encode(e.objects, object)
	if err != nil {
		return nil, err
	}
	if e.mediaType != runtime.ContentTypeProtobuf {
		raw = bytes.TrimSpace(raw)
	}
	event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}}
	var out bytes.Buffer
	err = e.info.StreamSerializer.Serializer.Encode(event, e.info.StreamSerializer.Framer.NewFrameWriter(&out))
	return out.Bytes(), err
}

// endOfList marks an object as the bookmark that ends a streaming list.
func endOfList() metav1.ObjectMeta {
	return metav1.ObjectMeta{ResourceVersion: fmt.Sprint(firstVersion), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
}
