package otlp

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// The fields of opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest and
// of what is in it. Their numbers are stable.
const (
	requestResourceSpans = 1

	resourceSpansResource   = 1
	resourceSpansScopeSpans = 2
	resourceSpansSchema     = 3

	resourceAttributes = 1

	scopeSpansScope  = 1
	scopeSpansSpans  = 2
	scopeSpansSchema = 3

	scopeName    = 1
	scopeVersion = 2

	spanTraceID           = 1
	spanSpanID            = 2
	spanTraceState        = 3
	spanParentID          = 4
	spanName              = 5
	spanKind              = 6
	spanStart             = 7
	spanEnd               = 8
	spanAttributes        = 9
	spanDroppedAttributes = 10
	spanEvents            = 11
	spanDroppedEvents     = 12
	spanLinks             = 13
	spanDroppedLinks      = 14
	spanStatus            = 15
	spanFlags             = 16

	eventTime       = 1
	eventName       = 2
	eventAttributes = 3
	eventDropped    = 4

	linkTraceID    = 1
	linkSpanID     = 2
	linkTraceState = 3
	linkAttributes = 4
	linkDropped    = 5
	linkFlags      = 6

	statusMessage = 2
	statusCode    = 3

	keyValueKey   = 1
	keyValueValue = 2

	valueString = 1
	valueBool   = 2
	valueInt    = 3
	valueDouble = 4
	valueArray  = 5

	arrayValues = 1
)

// The flags of a span say, beside those of the W3C, whether its parent is known to be
// of another process.
const (
	flagHasIsRemote = 0x100
	flagIsRemote    = 0x200
)

// message is a message of protobuf that is being written.
type message []byte

const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

func (m *message) tag(field, wire int) { m.raw(uint64(field)<<3 | uint64(wire)) } //nolint:gosec // constants
func (m *message) raw(v uint64)        { *m = binary.AppendUvarint(*m, v) }

func (m *message) varint(field int, v uint64) {
	if v != 0 {
		m.tag(field, wireVarint)
		m.raw(v)
	}
}

func (m *message) count(field, n int) { m.varint(field, uint64(max(n, 0))) } //nolint:gosec // not negative

func (m *message) fixed64(field int, v uint64) {
	m.tag(field, wireFixed64)
	*m = binary.LittleEndian.AppendUint64(*m, v)
}

func (m *message) fixed32(field int, v uint32) {
	m.tag(field, wireFixed32)
	*m = binary.LittleEndian.AppendUint32(*m, v)
}

func (m *message) bytes(field int, b []byte) {
	m.tag(field, wireBytes)
	m.raw(uint64(len(b)))
	*m = append(*m, b...)
}

// begin begins a message within this one; end ends it. In between, everything that is
// written is its content.
func (m *message) begin(field int) (from int) {
	m.tag(field, wireBytes)
	*m = append(*m, 0) // its length, if that is below 128
	return len(*m)
}

func (m *message) end(from int) {
	n := len(*m) - from
	var length [binary.MaxVarintLen64]byte
	size := binary.PutUvarint(length[:], uint64(n)) //nolint:gosec // not negative
	*m = append(*m, length[1:size]...)              // room for what is more than a byte
	copy((*m)[from-1+size:], (*m)[from:from+n])
	copy((*m)[from-1:], length[:size])
}

func (m *message) text(field int, s string) {
	if s != "" {
		m.tag(field, wireBytes)
		m.raw(uint64(len(s)))
		*m = append(*m, s...)
	}
}

func (m *message) time(field int, t time.Time) { m.fixed64(field, uint64(max(t.UnixNano(), 0))) } //nolint:gosec // not negative

// encode writes the spans as a request, into memory of that capacity. All are of one
// provider, and so of one resource; those of one scope stand together.
func encode(spans []sdk.ReadOnlySpan, capacity int) []byte {
	request := make(message, 0, capacity)
	all := request.begin(requestResourceSpans)
	resource := request.begin(resourceSpansResource)
	attributes(&request, resourceAttributes, spans[0].Resource().Attributes())
	request.end(resource)
	for _, scope := range scopesOf(spans) {
		these := request.begin(resourceSpansScopeSpans)
		about := request.begin(scopeSpansScope)
		request.text(scopeName, scope.Name)
		request.text(scopeVersion, scope.Version)
		request.end(about)
		request.text(scopeSpansSchema, scope.SchemaURL)
		for _, s := range spans {
			if sameScope(s.InstrumentationScope(), scope) {
				one := request.begin(scopeSpansSpans)
				span(&request, s)
				request.end(one)
			}
		}
		request.end(these)
	}
	request.text(resourceSpansSchema, spans[0].Resource().SchemaURL())
	request.end(all)
	return request
}

// scopesOf returns the scopes of spans, which are few, in the order of their first
// spans.
func scopesOf(spans []sdk.ReadOnlySpan) (scopes []instrumentation.Scope) {
	for _, s := range spans {
		scope := s.InstrumentationScope()
		if !slices.ContainsFunc(scopes, func(known instrumentation.Scope) bool { return sameScope(known, scope) }) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

func sameScope(a, b instrumentation.Scope) bool { return a.Name == b.Name && a.Version == b.Version }

func span(m *message, s sdk.ReadOnlySpan) {
	identity(m, spanTraceID, spanSpanID, spanTraceState, s.SpanContext())
	if parent := s.Parent(); parent.SpanID().IsValid() {
		id := parent.SpanID()
		m.bytes(spanParentID, id[:])
	}
	m.text(spanName, s.Name())
	m.varint(spanKind, uint64(s.SpanKind())) //nolint:gosec // the numbers of OTLP are those of the interface
	m.time(spanStart, s.StartTime())
	m.time(spanEnd, s.EndTime())
	attributes(m, spanAttributes, s.Attributes())
	m.count(spanDroppedAttributes, s.DroppedAttributes())
	for _, e := range s.Events() {
		event := m.begin(spanEvents)
		m.time(eventTime, e.Time)
		m.text(eventName, e.Name)
		attributes(m, eventAttributes, e.Attributes)
		m.count(eventDropped, e.DroppedAttributeCount)
		m.end(event)
	}
	m.count(spanDroppedEvents, s.DroppedEvents())
	for _, l := range s.Links() {
		link := m.begin(spanLinks)
		identity(m, linkTraceID, linkSpanID, linkTraceState, l.SpanContext)
		attributes(m, linkAttributes, l.Attributes)
		m.count(linkDropped, l.DroppedAttributeCount)
		m.fixed32(linkFlags, flagsOf(l.SpanContext, l.SpanContext))
		m.end(link)
	}
	m.count(spanDroppedLinks, s.DroppedLinks())
	status := m.begin(spanStatus)
	m.text(statusMessage, s.Status().Description)
	m.varint(statusCode, statusOf(s))
	m.end(status)
	m.fixed32(spanFlags, flagsOf(s.SpanContext(), s.Parent()))
}

func identity(m *message, traceField, spanField, stateField int, of trace.SpanContext) {
	traceID, spanID := of.TraceID(), of.SpanID()
	m.bytes(traceField, traceID[:])
	m.bytes(spanField, spanID[:])
	m.text(stateField, of.TraceState().String())
}

func flagsOf(of, parent trace.SpanContext) uint32 {
	flags := uint32(of.TraceFlags()) | flagHasIsRemote
	if parent.IsRemote() {
		flags |= flagIsRemote
	}
	return flags
}

func attributes(m *message, field int, all []attribute.KeyValue) {
	for i := range all {
		pair := m.begin(field)
		m.text(keyValueKey, string(all[i].Key))
		value := m.begin(keyValueValue)
		m.value(all[i].Value)
		m.end(value)
		m.end(pair)
	}
}

// value writes a value also where it is zero: it is the choice of a oneof.
func (m *message) value(v attribute.Value) {
	switch v.Type() {
	case attribute.BOOL:
		m.tag(valueBool, wireVarint)
		if v.AsBool() {
			m.raw(1)
		} else {
			m.raw(0)
		}
	case attribute.INT64:
		m.tag(valueInt, wireVarint)
		m.raw(uint64(v.AsInt64())) //nolint:gosec // as protobuf writes an int64
	case attribute.FLOAT64:
		m.fixed64(valueDouble, math.Float64bits(v.AsFloat64()))
	case attribute.STRINGSLICE:
		array(m, v.AsStringSlice(), attribute.StringValue)
	case attribute.INT64SLICE:
		array(m, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		array(m, v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.BOOLSLICE:
		array(m, v.AsBoolSlice(), attribute.BoolValue)
	default:
		text := v.String()
		m.tag(valueString, wireBytes)
		m.raw(uint64(len(text)))
		*m = append(*m, text...)
	}
}

func array[T any](m *message, all []T, value func(T) attribute.Value) {
	within := m.begin(valueArray)
	for _, one := range all {
		each := m.begin(arrayValues)
		m.value(value(one))
		m.end(each)
	}
	m.end(within)
}
