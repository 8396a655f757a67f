package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// elements reads what package json reads too leniently of a list or an object: null would
// be an empty text or the first word of a list of words, and an object could have members
// that are not read. It reports whether nothing is left to read.
func elements(value json.RawMessage, at string, field reflect.Value, faults *FaultsError) (done bool) {
	kind := field.Kind()
	if kind != reflect.Slice && kind != reflect.Map || reads(reflect.PointerTo(field.Type())) || string(value) == "null" {
		return false
	}
	element := field.Type().Elem()
	if kind == reflect.Slice && element.Kind() == reflect.Struct && !reads(reflect.PointerTo(element)) {
		return objects(value, at, field, faults)
	}
	if element == reflect.TypeFor[json.RawMessage]() { // read later
		return false
	}
	for name, one := range parts(value, kind) {
		if string(one) == "null" {
			faults.add(Fault{Pointer: at + "/" + escaped(name), Detail: "want " + kindOf(element)})
			done = true
		}
	}
	return done
}

// objects reads a list of objects.
func objects(value json.RawMessage, at string, field reflect.Value, faults *FaultsError) bool {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		return false // the type itself refuses it
	}
	read := reflect.MakeSlice(field.Type(), len(list), len(list))
	for i, one := range list {
		members(one, fmt.Sprintf("%s/%d", at, i), read.Index(i), faults)
	}
	field.Set(read)
	return true
}

// parts are the elements of a list, or the members of an object, in order. None if it is
// something else.
func parts(value json.RawMessage, kind reflect.Kind) func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		if kind == reflect.Slice {
			var list []json.RawMessage
			if json.Unmarshal(value, &list) != nil {
				return
			}
			for i, one := range list {
				if !yield(fmt.Sprint(i), one) {
					return
				}
			}
			return
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if !yield(name, object[name]) {
				return
			}
		}
	}
}
