package operate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
)

// object is a JSON object as it is written: its members in order, also those whose name is
// given twice. A map would have the last of them, and say nothing of the others.
type object []member

type member struct {
	name  string
	value any // object, []any, or what encoding/json makes of anything else
}

// treesMost bounds how deep JSON is read, as encoding/json does.
const treesMost = 10_000

// errTree means that a text is not JSON, or too deep.
var errTree = errors.New("not JSON")

// treeOf reads JSON. Numbers stay as they are.
func treeOf(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	value, err := branch(decoder, 0)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errTree // something follows
	}
	return value, nil
}

// branch reads one value.
func branch(decoder *json.Decoder, depth int) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if depth > treesMost {
		return nil, errTree
	}
	switch token {
	case json.Delim('{'):
		members := object{}
		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			text, _ := name.(string) // the decoder takes nothing else here
			value, err := branch(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			members = append(members, member{text, value})
		}
		_, err = decoder.Token()
		return members, err
	case json.Delim('['):
		elements := []any{}
		for decoder.More() {
			value, err := branch(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			elements = append(elements, value)
		}
		_, err = decoder.Token()
		return elements, err
	default:
		return token, nil
	}
}

// written is a tree as JSON.
func written(tree any) []byte {
	var b bytes.Buffer
	write(&b, tree)
	return b.Bytes()
}

func write(b *bytes.Buffer, tree any) {
	switch tree := tree.(type) {
	case object:
		b.WriteByte('{')
		for i := range tree {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, tree[i].name)
			b.WriteByte(':')
			write(b, tree[i].value)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i := range tree {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, tree[i])
		}
		b.WriteByte(']')
	default:
		encoder := json.NewEncoder(b)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(tree) // texts, numbers, true, false and null always can be
		b.Truncate(b.Len() - 1)  // the line's end
	}
}

// alike reports whether two trees say the same, in whatever order of their members.
func alike(a, b any) bool { return reflect.DeepEqual(sorted(a), sorted(b)) }

// sorted is a tree with its members by name. Those of one name stay in their order, in which
// they mean different things.
func sorted(tree any) any {
	switch tree := tree.(type) {
	case object:
		members := make(object, len(tree))
		for i := range tree {
			members[i] = member{tree[i].name, sorted(tree[i].value)}
		}
		slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
		return members
	case []any:
		elements := make([]any, len(tree))
		for i := range tree {
			elements[i] = sorted(tree[i])
		}
		return elements
	default:
		return tree
	}
}
