package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
)

// A filler makes random objects, the same ones each time: fields that no object has had yet come first, so that a small
// number of small objects covers every field there is.
type filler struct {
	random  *rand.Rand
	covered map[string]int
}

func newFiller() *filler {
	return &filler{rand.New(rand.NewPCG(1, 37)), map[string]int{}}
}

var texts = []string{"", "a", "web-0", "default", "Grüße", "ключ 🚀", "quote\" and \\ back", "line\nbreak\ttab", "</script>&", "\u2028", strings.Repeat("x", 130)}

var rawTexts = []string{`{}`, `{"f:a":{"k:{\"x\":1}":{}}}`, `[1,2.5,null]`, `"text"`, `true`, `{"b":1,"a":{"c":[]}}`, `0`}

var quantities = []string{"0", "1", "100m", "2Gi", "1500Mi", "1k", "3e3", "-7", "1.5", "12E", "5n"}

func (f *filler) fill(value reflect.Value, depth int) {
	t := value.Type()
	switch at := value.Addr().Interface().(type) {
	case *meta.TypeMeta:
		return
	case *meta.Time:
		if f.random.IntN(4) > 0 {
			at.Time = time.Unix(f.seconds(), 0)
		}
		return
	case *meta.MicroTime:
		if f.random.IntN(4) > 0 {
			at.Time = time.Unix(f.seconds(), f.random.Int64N(1_000_000)*1000)
		}
		return
	case *resource.Quantity:
		*at = resource.MustParse(pick(f, quantities))
		return
	case *intstr.IntOrString:
		if f.random.IntN(2) == 0 {
			*at = intstr.FromInt32(int32(f.integer(32)))
		} else {
			*at = intstr.FromString(pick(f, texts))
		}
		return
	case *runtime.RawExtension:
		at.Raw = f.raw()
		return
	case *meta.FieldsV1:
		at.SetRawBytes(f.raw())
		return
	case *apiextensions.JSON:
		at.Raw = f.raw()
		return
	case *apiextensionsv1beta1.JSON:
		at.Raw = f.raw()
		return
	}
	if shape, ok := shapes[t]; ok {
		f.fillShape(shape, value, depth)
		return
	}
	switch t.Kind() {
	case reflect.String:
		value.SetString(pick(f, texts))
	case reflect.Bool:
		value.SetBool(f.random.IntN(2) == 0)
	case reflect.Int32:
		value.SetInt(f.integer(32))
	case reflect.Int64:
		value.SetInt(f.integer(64))
	case reflect.Float64:
		value.SetFloat(pick(f, []float64{0, 1, -1, 1.5, -0.25, 1e20, 1e21, 1e-7, math.MaxFloat64, math.SmallestNonzeroFloat64}))
	case reflect.Pointer:
		made := reflect.New(t.Elem())
		f.fill(made.Elem(), depth)
		value.Set(made)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			value.SetBytes([]byte(pick(f, texts)))
			return
		}
		for range 1 + f.random.IntN(2) {
			made := reflect.New(t.Elem()).Elem()
			f.fill(made, depth)
			value.Set(reflect.Append(value, made))
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(t))
		for range 1 + f.random.IntN(3) {
			made := reflect.New(t.Elem()).Elem()
			f.fill(made, depth)
			value.SetMapIndex(reflect.ValueOf(pick(f, texts)).Convert(t.Key()), made)
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("protobuf") == "-" {
				continue
			}
			switch t.Field(i).Type.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map:
				if !f.wants(name(t)+"."+t.Field(i).Name, depth) {
					continue
				}
			}
			f.fill(value.Field(i), depth+1)
		}
	default:
		fail("cannot fill a %v", t)
	}
}

// Either a schema or a list or a truth, never two of them.
func (f *filler) fillShape(shape string, value reflect.Value, depth int) {
	if depth < 6 && f.random.IntN(2) == 0 {
		f.fill(value.FieldByName("Schema"), depth+1)
		if shape == "schema-or-bool" {
			value.FieldByName("Allows").SetBool(true)
		}
	} else if shape == "schema-or-bool" {
		f.fill(value.FieldByName("Allows"), depth+1)
	} else if depth < 6 {
		f.fill(value.Field(1), depth+1)
	}
}

// Whether to fill an optional field: always the first two times, seldom later.
func (f *filler) wants(field string, depth int) bool {
	if depth > 9 {
		return false
	}
	wanted := f.covered[field] < 2 || f.random.IntN(6+4*depth) == 0
	if wanted {
		f.covered[field]++
	}
	return wanted
}

func (f *filler) raw() []byte {
	if f.random.IntN(4) == 0 {
		return nil
	}
	text := []byte(pick(f, rawTexts))
	if !json.Valid(text) {
		fail("%s is not JSON", text)
	}
	return text
}

func (f *filler) integer(bits int) int64 {
	most := int64(1)<<(bits-1) - 1
	return pick(f, []int64{0, 1, -1, 127, 128, 80, 8080, most, -most - 1, f.random.Int64N(most)})
}

// Between the years 1900 and 2500, and now and then the epoch itself.
func (f *filler) seconds() int64 {
	return pick(f, []int64{0, f.random.Int64N(16_725_225_600), -f.random.Int64N(2_208_988_800)})
}

func pick[T any](f *filler, from []T) T { return from[f.random.IntN(len(from))] }
