package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// Body reads a JSON object into a struct. It refuses, all together, members that the
// struct does not have, members that come twice, and values of other types. An empty
// body is an empty object. A body that is too large is an *http.MaxBytesError.
func Body(body io.Reader, into any) error {
	text, err := io.ReadAll(body)
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return err
		}
		return fmt.Errorf("%w: the body cannot be read", store.ErrInvalid)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var faults FaultsError
	members(text, "", reflect.ValueOf(into).Elem(), &faults)
	return faults.err()
}

// Element reads one JSON object of a list, whose pointer is given.
func Element(text []byte, pointer string, into any) error {
	var faults FaultsError
	members(text, pointer, reflect.ValueOf(into).Elem(), &faults)
	return faults.err()
}

// ofPath matches the path with which a fault in JSON begins, such as .args.to[2].
var ofPath = regexp.MustCompile(`^((?:\.\w+|\[\d+\])*): `)

// inJSON divides a fault of store.CheckJSON into a pointer and the rest.
func inJSON(text string) (pointer, detail string) {
	m := ofPath.FindStringSubmatch(text)
	if m == nil {
		return "", text
	}
	return strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(m[1]), text[len(m[0]):]
}

// members reads the members of an object into the fields of a struct.
func members(text []byte, pointer string, into reflect.Value, faults *FaultsError) {
	refuse := func(pointer, format string, args ...any) {
		faults.add(Fault{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
	}
	if err := store.CheckJSON(text); err != nil && len(text) <= store.MaxArgsSize {
		at, detail := inJSON(err.Error())
		refuse(pointer+at, "%s", detail)
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		refuse(pointer, "want a JSON object")
		return
	}
	fields, seen := fieldsOf(into), map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		name, isName := token.(string)
		var value json.RawMessage
		if err == nil && isName {
			err = decoder.Decode(&value)
		}
		if err != nil || !isName {
			refuse(pointer, "not valid JSON")
			return
		}
		at := pointer + "/" + escaped(name)
		field, known := fields[name]
		switch {
		case !known:
			refuse(at, "there is no such member here")
		case seen[name]:
			refuse(at, "it is given twice")
		default:
			member(value, at, field, faults)
		}
		seen[name] = true
	}
	if _, err := decoder.Token(); err != nil {
		refuse(pointer, "not valid JSON")
		return
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		refuse(pointer, "something follows the JSON object")
	}
}

// member reads one member.
func member(value json.RawMessage, at string, field reflect.Value, faults *FaultsError) {
	if field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.Struct && !reads(field.Type()) && string(value) != "null" {
		field.Set(reflect.New(field.Type().Elem()))
		members(value, at, field.Elem(), faults)
		return
	}
	if field.Kind() == reflect.Struct && !reads(reflect.PointerTo(field.Type())) {
		members(value, at, field, faults)
		return
	}
	if string(value) == "null" && !slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, field.Kind()) {
		faults.add(Fault{Pointer: at, Detail: "want " + kindOf(field.Type()) + ", or leave it out"})
		return
	}
	if field.Kind() == reflect.Map {
		if name := repeated(value); name != nil {
			faults.add(Fault{Pointer: at + "/" + escaped(*name), Detail: "it is given twice"})
			return
		}
	}
	if elements(value, at, field, faults) {
		return
	}
	if err := idsIn(value, field.Type()); err != nil {
		faults.add(Fault{Pointer: at, Detail: fmt.Sprintf("%.150v", err)})
		return
	}
	if err := json.Unmarshal(value, field.Addr().Interface()); err != nil {
		detail := "want " + kindOf(field.Type())
		if _, wrong := errors.AsType[*json.UnmarshalTypeError](err); !wrong {
			detail = err.Error()
		}
		faults.add(Fault{Pointer: at, Detail: detail})
	}
}

// idsIn reports an id of a run, or a list of them, that is not in the one form that the
// query takes too: a type that is a UUID reads several.
func idsIn(value []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t != reflect.TypeFor[store.RunID]() {
		return nil
	}
	var one string
	var some []string
	if json.Unmarshal(value, &one) == nil {
		some = []string{one}
	} else if json.Unmarshal(value, &some) != nil {
		return nil //nolint:nilerr // the type itself refuses it
	}
	for _, text := range some {
		if _, err := store.ParseRunID(text); err != nil && string(value) != "null" {
			return err
		}
	}
	return nil
}

// repeated is a member that an object has twice; nil: there is none. Of two values
// json.Unmarshal would take the last one.
func repeated(object []byte) *string {
	decoder, seen := json.NewDecoder(bytes.NewReader(object)), map[string]bool{}
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil
	}
	for decoder.More() {
		token, err := decoder.Token()
		name, isName := token.(string)
		if err != nil || !isName || seen[name] {
			return &name
		}
		seen[name] = true
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return nil
		}
	}
	return nil
}

// reads reports whether a type reads its own JSON.
func reads(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Unmarshaler]()) || t.Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]())
}

// kindOf is what a member must be, for people.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case reads(reflect.PointerTo(t)):
		return "a text"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Struct:
		return "an object"
	case t.Kind() == reflect.Map:
		return "an object with texts"
	default:
		return "a whole number"
	}
}

// fieldsOf are the fields of a struct by the names of their JSON.
func fieldsOf(into reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range into.NumField() {
		field := into.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			for inner, value := range fieldsOf(into.Field(i)) {
				fields[inner] = value
			}
		case name != "" && name != "-":
			fields[name] = into.Field(i)
		}
	}
	return fields
}

// escaped is a name in a JSON pointer.
func escaped(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(name))
}

func clip(name string) string {
	if len(name) > 100 {
		return strings.ToValidUTF8(name[:100], "")
	}
	return name
}
