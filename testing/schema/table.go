package main

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
)

// Types with JSON of their own that are read whole.
var leaves = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():                 "time",
	reflect.TypeFor[meta.MicroTime]():            "microtime",
	reflect.TypeFor[resource.Quantity]():         "quantity",
	reflect.TypeFor[intstr.IntOrString]():        "intorstring",
	reflect.TypeFor[runtime.RawExtension]():      "raw",
	reflect.TypeFor[meta.FieldsV1]():             "raw",
	reflect.TypeFor[apiextensions.JSON]():        "raw",
	reflect.TypeFor[apiextensionsv1beta1.JSON](): "raw",
}

// Messages whose JSON is not an object of their fields.
var shapes = map[reflect.Type]string{
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():              "schema-or-list",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray]():        "schema-or-list",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():               "schema-or-bool",
	reflect.TypeFor[apiextensionsv1beta1.JSONSchemaPropsOrArray]():       "schema-or-list",
	reflect.TypeFor[apiextensionsv1beta1.JSONSchemaPropsOrStringArray](): "schema-or-list",
	reflect.TypeFor[apiextensionsv1beta1.JSONSchemaPropsOrBool]():        "schema-or-bool",
}

func isMessage(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[protobufMessage]())
}

// The kinds that have a protobuf form, by message.
func kinds() map[reflect.Type][]schema.GroupVersion {
	metaPackage := reflect.TypeFor[meta.Status]().PkgPath()
	found := map[reflect.Type][]schema.GroupVersion{}
	for kind, t := range newScheme().AllKnownTypes() {
		// The options and statuses of meta/v1 are registered with every group.
		if !isMessage(t) || t.PkgPath() == metaPackage || kind.Version == runtime.APIVersionInternal {
			continue
		}
		if kind.Kind != t.Name() {
			fail("%v is a %v", kind, t)
		}
		found[t] = append(found[t], kind.GroupVersion())
	}
	core, own := schema.GroupVersion{Version: "v1"}, meta.SchemeGroupVersion
	for _, t := range []reflect.Type{
		reflect.TypeFor[meta.Status](), reflect.TypeFor[meta.APIVersions](), reflect.TypeFor[meta.APIGroup](),
		reflect.TypeFor[meta.APIGroupList](), reflect.TypeFor[meta.APIResourceList](), reflect.TypeFor[meta.DeleteOptions](),
	} {
		found[t] = []schema.GroupVersion{core, own}
	}
	for _, t := range []reflect.Type{
		reflect.TypeFor[meta.PartialObjectMetadata](), reflect.TypeFor[meta.PartialObjectMetadataList](),
		reflect.TypeFor[meta.CreateOptions](), reflect.TypeFor[meta.UpdateOptions](), reflect.TypeFor[meta.PatchOptions](),
	} {
		found[t] = []schema.GroupVersion{own}
	}
	return found
}

func printTable(to io.Writer) {
	out := bufio.NewWriter(to)
	defer out.Flush()
	fmt.Fprintf(out, "# The protobuf form of the built-in kinds, from %s.\n", versions())
	fmt.Fprintln(out, "# Made by testing/schema/generate; crates/kube-wire/src/protobuf/schema.rs says how to read it.")
	kinds := kinds()
	var pending []reflect.Type
	for t := range kinds {
		pending = append(pending, t)
	}
	seen := map[reflect.Type]bool{}
	for _, t := range pending {
		seen[t] = true
	}
	texts := map[string]string{}
	for len(pending) > 0 {
		t := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		text, below := message(t, kinds[t])
		texts[name(t)] = text
		for _, t := range below {
			if !seen[t] {
				seen[t] = true
				pending = append(pending, t)
			}
		}
	}
	names := make([]string, 0, len(texts))
	for name := range texts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprint(out, texts[name])
	}
}

// The lines of one message, and the messages it refers to.
func message(t reflect.Type, kinds []schema.GroupVersion) (string, []reflect.Type) {
	var versions []string
	for _, version := range kinds {
		versions = append(versions, version.String())
	}
	slices.Sort(versions)
	shape := "object"
	if found, ok := shapes[t]; ok {
		shape = found
	}
	if t.Kind() == reflect.Slice {
		// A named list with a message of its own, such as ExtraValue.
		text, below := typeText(t, t.Elem())
		return fmt.Sprintf("= %s list\n1 items []%s\n", name(t), text), below
	}
	type line struct {
		number int
		text   string
	}
	var lines []line
	var below []reflect.Type
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("protobuf")
		if tag == "" || tag == "-" {
			if field.Type != reflect.TypeFor[meta.TypeMeta]() && tag == "" {
				fail("%v.%s has no protobuf tag", t, field.Name)
			}
			continue
		}
		number, err := strconv.Atoi(strings.Split(tag, ",")[1])
		if err != nil {
			fail("%v.%s: %v", t, field.Name, err)
		}
		json := strings.Split(field.Tag.Get("json"), ",")
		key, flags := json[0], ""
		if slices.Contains(json, "omitempty") || slices.Contains(json, "omitzero") {
			flags += "?"
		}
		if slices.Contains(json, "omitzero") {
			flags += "0"
		}
		switch {
		case key == "-":
			fail("%v.%s is on the wire but not in JSON", t, field.Name)
		case key == "" && (field.Anonymous || slices.Contains(json, "inline")):
			key = "~"
		case key == "" && shape != "object":
			key = field.Name
		case key == "":
			fail("%v.%s has no name in JSON", t, field.Name)
		}
		text, more := typeText(t, field.Type)
		below = append(below, more...)
		lines = append(lines, line{number, fmt.Sprintf("%d %s %s%s\n", number, key, flags, text)})
	}
	slices.SortFunc(lines, func(a, b line) int { return a.number - b.number })
	var text strings.Builder
	fmt.Fprintf(&text, "= %s %s", name(t), shape)
	for _, version := range versions {
		fmt.Fprintf(&text, " %s", version)
	}
	text.WriteByte('\n')
	for _, line := range lines {
		text.WriteString(line.text)
	}
	return text.String(), below
}

// How the table writes a type, and the messages it refers to.
func typeText(in, t reflect.Type) (string, []reflect.Type) {
	if leaf, ok := leaves[t]; ok {
		return leaf, nil
	}
	if t.Kind() == reflect.Pointer {
		text, below := typeText(in, t.Elem())
		return "*" + text, below
	}
	if isMessage(t) {
		text := name(t)
		if t.PkgPath() == in.PkgPath() {
			text = t.Name()
		}
		return text, []reflect.Type{t}
	}
	switch t.Kind() {
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int32:
		return "int32", nil
	case reflect.Int64:
		return "int64", nil
	case reflect.Float64:
		return "double", nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		text, below := typeText(in, t.Elem())
		return "[]" + text, below
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			text, below := typeText(in, t.Elem())
			return "{}" + text, below
		}
	}
	fail("%v holds a %v, which the table has no word for", in, t)
	return "", nil
}

// A message's name: the end of its package, and its type.
func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], "/") + "." + t.Name()
}

// The modules that the types come from, with their versions.
func versions() string {
	var found []string
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		switch module.Path {
		case "k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator":
			found = append(found, module.Path+" "+module.Version)
		}
	}
	return strings.Join(found, ", ")
}
