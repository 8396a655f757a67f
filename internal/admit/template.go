package admit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// Template makes a limit's key of a run's args, also where the job's code is not
// at hand.
//
// "{tenant}:{region}" is the field tenant of the args, a colon and the field
// region. "{account.id}" is the field id of the object account. A field that is
// missing, null or an empty text is a fault; with a question mark, "{region?}", it
// is nothing. Texts, numbers and booleans become part of the key as JSON writes
// them, without quotes; objects and arrays are faults. "{{" and "}}" are braces.
type Template struct {
	text  string
	parts []templatePart
}

// templatePart is a text, or a field.
type templatePart struct {
	text     string
	path     []string // nil: a text
	optional bool
}

// ParseTemplate reads a template.
func ParseTemplate(text string) (Template, error) {
	t := Template{text: text}
	refuse := func(format string, args ...any) (Template, error) {
		return Template{}, fmt.Errorf("template %q: %w", text, fmt.Errorf(format, args...))
	}
	rest := text
	var plain strings.Builder
	for rest != "" {
		c := rest[0]
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			plain.WriteByte(c)
			rest = rest[2:]
			continue
		case c == '}':
			return refuse("} without {; want }} for a brace")
		case c != '{':
			plain.WriteByte(c)
			rest = rest[1:]
			continue
		}
		name, after, closed := strings.Cut(rest[1:], "}")
		if !closed {
			return refuse("{%s has no }; want {{ for a brace", name)
		}
		field, optional := strings.CutSuffix(name, "?")
		path := strings.Split(field, ".")
		for _, key := range path {
			if key == "" || strings.ContainsAny(key, "{?") {
				return refuse("{%s} is not a field, such as {tenant}, {account.id} or {region?}", name)
			}
		}
		t.parts = append(t.parts, templatePart{text: plain.String()}, templatePart{path: path, optional: optional})
		plain.Reset()
		rest = after
	}
	t.parts = append(t.parts, templatePart{text: plain.String()})
	return t, nil
}

// String returns the template as it was read.
func (t Template) String() string { return t.text }

// Key makes the key of args, which are JSON. An error names the template and the
// field.
func (t Template) Key(args []byte) (string, error) {
	var key strings.Builder
	for _, part := range t.parts {
		key.WriteString(part.text)
		if part.path == nil {
			continue
		}
		value, err := part.value(args)
		if err != nil {
			return "", fmt.Errorf("template %q: field %s: %w", t.text, strings.Join(part.path, "."), err)
		}
		key.WriteString(value)
	}
	if err := store.CheckLimitKey(key.String()); err != nil {
		return "", fmt.Errorf("template %q: %w", t.text, err)
	}
	return key.String(), nil
}

// value is the field's text in the args.
func (p *templatePart) value(args []byte) (string, error) {
	for i, name := range p.path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(args, &object); err != nil {
			if i > 0 {
				return "", fmt.Errorf("%s is not an object", strings.Join(p.path[:i], "."))
			}
			return "", fmt.Errorf("the args are not an object")
		}
		if args = object[name]; isNull(args) {
			return p.missing("is missing")
		}
	}
	value, err := scalar(args)
	if err == nil && value == "" {
		return p.missing("is empty")
	}
	return value, err
}

func (p *templatePart) missing(why string) (string, error) {
	if p.optional {
		return "", nil
	}
	return "", fmt.Errorf("%s; want a value, or {%s?} where there may be none", why, strings.Join(p.path, "."))
}

func isNull(value json.RawMessage) bool {
	return len(value) == 0 || bytes.Equal(bytes.TrimSpace(value), []byte("null"))
}

// scalar is a JSON text, number or boolean as text.
func scalar(value []byte) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	token, err := decoder.Token()
	if err != nil {
		return "", err
	}
	switch v := token.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return fmt.Sprint(v), nil
	default:
		return "", fmt.Errorf("is an object or an array; want a text, a number or a boolean")
	}
}
