package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kjson "sigs.k8s.io/json"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// One object in all its forms, as Go has them.
type entry struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// What Go was given, where that is not what it would write itself; as text, for its spaces count.
	Input string `json:"input,omitempty"`
	// The bare message that Go makes of it.
	Protobuf []byte `json:"protobuf"`
	// The JSON that Go makes of that message.
	JSON json.RawMessage `json:"json"`
	// The message that Go makes of that JSON, where it is another one: a pointer to nothing is null, and null is no pointer.
	FromJSON []byte `json:"fromJSON,omitempty"`
}

// The corpus: for each kind the empty object and two with many fields, then what odd JSON becomes.
func printCorpus(to io.Writer) {
	out := bufio.NewWriter(to)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	type kind struct {
		schema.GroupVersion
		message reflect.Type
	}
	var all []kind
	for message, versions := range kinds() {
		for _, version := range versions {
			all = append(all, kind{version, message})
		}
	}
	slices.SortFunc(all, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.message.Name(), b.message.Name()))
	})
	filler := newFiller()
	for _, kind := range all {
		for round := range 3 {
			object := reflect.New(kind.message)
			if round > 0 {
				filler.fill(object.Elem(), 0)
			}
			encoder.Encode(newEntry(kind.WithKind(kind.message.Name()), object, ""))
		}
	}
	for _, odd := range oddInputs() {
		var head meta.TypeMeta
		must(json.Unmarshal([]byte(odd), &head))
		gvk := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
		object := reflect.New(newScheme().AllKnownTypes()[gvk])
		must(kjson.UnmarshalCaseSensitivePreserveInts([]byte(odd), object.Interface()))
		encoder.Encode(newEntry(gvk, object, odd))
	}
}

func newEntry(kind schema.GroupVersionKind, object reflect.Value, input string) entry {
	marshalled := marshal(object)
	// JSON as a server would write it that has read the object from protobuf: with kind and version, which are not in there.
	again := reflect.New(object.Type().Elem())
	must(again.Interface().(protobufMessage).Unmarshal(marshalled))
	meta := again.Elem().FieldByName("TypeMeta")
	meta.FieldByName("APIVersion").SetString(kind.GroupVersion().String())
	meta.FieldByName("Kind").SetString(kind.Kind)
	text, err := json.Marshal(again.Interface())
	must(err)
	made := entry{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Input: input, Protobuf: marshalled, JSON: text}
	again = reflect.New(object.Type().Elem())
	must(kjson.UnmarshalCaseSensitivePreserveInts(text, again.Interface()))
	if fromJSON := marshal(again); !bytes.Equal(fromJSON, marshalled) {
		made.FromJSON = fromJSON
	}
	return made
}

func marshal(object reflect.Value) []byte {
	marshalled, err := object.Interface().(protobufMessage).Marshal()
	must(err)
	return marshalled
}

type protobufMessage interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// One list and one watch event on the wire, framing and envelopes included.
func printFrames(to io.Writer) {
	pods := &core.PodList{
		TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		ListMeta: meta.ListMeta{ResourceVersion: "42", Continue: "more"},
		Items:    []core.Pod{{ObjectMeta: meta.ObjectMeta{Name: "a"}}, {ObjectMeta: meta.ObjectMeta{Name: "b"}}},
	}
	left := int64(300)
	pods.RemainingItemCount = &left
	pod := pods.Items[0].DeepCopy()
	pod.TypeMeta = meta.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	scheme := newScheme()
	enveloped := func(object runtime.Object) []byte {
		var out bytes.Buffer
		must(protobuf.NewSerializer(scheme, scheme).Encode(object, &out))
		return out.Bytes()
	}
	event, err := (&meta.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: enveloped(pod)}}).Marshal()
	must(err)
	var frame bytes.Buffer
	_, err = protobuf.LengthDelimitedFramer.NewFrameWriter(&frame).Write(event)
	must(err)
	encoder := json.NewEncoder(to)
	must(encoder.Encode(map[string][]byte{"list": enveloped(pods), "event": frame.Bytes()}))
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}
