// Package otlptest is a collector for tests: it takes spans by OTLP over HTTP on the
// loopback interface, and reads the messages without a library of OpenTelemetry's.
package otlptest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// Span is a span as it arrived.
type Span struct {
	Trace, ID, Parent string // in hex; no parent: empty
	Name              string
	Kind, Status      uint64 // as in OTLP
	Attributes        map[string]string
	Links             []string // ids of spans
	Resource          map[string]string
}

// Collector collects spans. Start makes one.
type Collector struct {
	URL string

	mu    sync.Mutex
	spans []Span
	fault error
}

// Start begins to listen, until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Spans are those that have arrived. It fails the test if a message could not be read.
func (c *Collector) Spans(t testing.TB) []Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		t.Fatal(c.fault)
	}
	return append([]Span(nil), c.spans...)
}

// Named returns the span of a name, and fails the test if there is not exactly one.
func (c *Collector) Named(t testing.TB, name string) (found Span) {
	t.Helper()
	n := 0
	for _, s := range c.Spans(t) {
		if s.Name == name {
			found = s
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d spans are called %q, among %v", n, name, c.Spans(t))
	}
	return found
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var spans []Span
	if err == nil {
		spans, err = read(body)
	}
	if kind := r.Header.Get("Content-Type"); kind != "application/x-protobuf" {
		err = fmt.Errorf("the content is %q", kind)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spans = append(c.spans, spans...); err != nil {
		c.fault = err
		w.WriteHeader(http.StatusBadRequest)
	}
}

// field is one field of a message.
type field struct {
	number uint64
	value  uint64 // of a number
	bytes  []byte // of all others
}

// fields reads a message of protobuf.
func fields(text []byte) (all []field, err error) {
	for len(text) > 0 {
		key, n := binary.Uvarint(text)
		if n <= 0 {
			return nil, fmt.Errorf("a key is cut: %x", text)
		}
		text = text[n:]
		one := field{number: key >> 3}
		var size int
		switch key & 7 {
		case 0:
			one.value, size = binary.Uvarint(text)
		case 1:
			if size = 8; len(text) >= size {
				one.value = binary.LittleEndian.Uint64(text)
			}
		case 2:
			length, n := binary.Uvarint(text)
			if size = n + int(length); n > 0 && length <= uint64(len(text)-n) { //nolint:gosec // compared with what there is
				one.bytes = text[n:size]
			}
		case 5:
			if size = 4; len(text) >= size {
				one.value = uint64(binary.LittleEndian.Uint32(text))
			}
		default:
			return nil, fmt.Errorf("wire type %d", key&7)
		}
		if size <= 0 || size > len(text) {
			return nil, fmt.Errorf("field %d is cut", one.number)
		}
		all, text = append(all, one), text[size:]
	}
	return all, nil
}

// each calls a function for the fields of a number that are messages.
func each(text []byte, number uint64, call func(text []byte) error) error {
	all, err := fields(text)
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.number == number {
			if err := call(f.bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func read(request []byte) (spans []Span, err error) {
	return spans, each(request, 1, func(resourceSpans []byte) error {
		about := map[string]string{}
		if err := each(resourceSpans, 1, func(resource []byte) error { return attributes(resource, 1, about) }); err != nil {
			return err
		}
		return each(resourceSpans, 2, func(scopeSpans []byte) error {
			return each(scopeSpans, 2, func(text []byte) error {
				one, err := readSpan(text)
				one.Resource = about
				spans = append(spans, one)
				return err
			})
		})
	})
}

func readSpan(text []byte) (Span, error) {
	s := Span{Attributes: map[string]string{}}
	all, err := fields(text)
	if err != nil {
		return s, err
	}
	for _, f := range all {
		switch f.number {
		case 1:
			s.Trace = hex.EncodeToString(f.bytes)
		case 2:
			s.ID = hex.EncodeToString(f.bytes)
		case 4:
			s.Parent = hex.EncodeToString(f.bytes)
		case 5:
			s.Name = string(f.bytes)
		case 6:
			s.Kind = f.value
		case 13:
			err = each(f.bytes, 2, func(id []byte) error { s.Links = append(s.Links, hex.EncodeToString(id)); return nil })
		case 15:
			var status []field
			status, err = fields(f.bytes)
			for _, one := range status {
				if one.number == 3 {
					s.Status = one.value
				}
			}
		}
		if err != nil {
			return s, err
		}
	}
	return s, attributes(text, 9, s.Attributes)
}

// attributes reads pairs of a name and a value.
func attributes(text []byte, number uint64, into map[string]string) error {
	return each(text, number, func(pair []byte) error {
		var name string
		if err := each(pair, 1, func(key []byte) error { name = string(key); return nil }); err != nil {
			return err
		}
		return each(pair, 2, func(text []byte) error {
			value, err := fields(text)
			if err != nil || len(value) != 1 {
				return fmt.Errorf("attribute %s: %d values, %w", name, len(value), err)
			}
			switch f := value[0]; f.number {
			case 1:
				into[name] = string(f.bytes)
			case 2:
				into[name] = strconv.FormatBool(f.value != 0)
			case 3:
				into[name] = strconv.FormatInt(int64(f.value), 10) //nolint:gosec // as protobuf writes an int64
			case 4:
				into[name] = strconv.FormatFloat(math.Float64frombits(f.value), 'g', -1, 64)
			default:
				into[name] = fmt.Sprintf("%x", f.bytes)
			}
			return nil
		})
	})
}
